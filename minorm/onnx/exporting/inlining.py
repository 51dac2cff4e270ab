"""Inline calls of a model's functions: replace a call by the function's nodes, with the names that `load` gives these.

A function has no state: all its calls share its Constants and the modes of its nodes. If a loaded module needs
different Constants or modes in different calls, we inline these calls. `loading/flattening.py` has the rules for the
names.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from onnx import NodeProto, helper

from minorm.onnx.graph.errors import ExportError
from minorm.onnx.graph.node_rewriter import graphs_of
from minorm.onnx.loading.flattening import Layout
from minorm.onnx.loading.signatures import domain_of

Names = Callable[[str], str]  # a value's name in a body -> its name outside


def write_out(model: Any, layout: Layout, calls: Container[str]) -> None:
    """Inline the calls with these labels; a call inside a function is inlined only together with the outer call."""
    _Inliner(model, layout, calls).graph(model.graph.node, "")


class _Inliner:
    def __init__(self, model: Any, layout: Layout, calls: Container[str]) -> None:
        self.model, self.layout, self.calls = model, layout, calls
        self.functions = {(domain_of(f.domain), f.name, f.overload): f for f in model.functions}

    def graph(self, nodes: Any, context: str) -> None:
        """Inline calls in a graph, from the last node to the first, so that the indices of earlier nodes stay valid."""
        for index in range(len(nodes) - 1, -1, -1):
            node, label = nodes[index], self.layout.labels.get((context, index), "")
            if label in self.calls:
                body = self._call(node, label)
                del nodes[index]
                for place, inner in enumerate(body, start=index):
                    nodes.insert(place, inner)
            else:
                for name, graph in graphs_of(node):
                    self.graph(graph.node, f"{label}/{name}")

    def _call(self, call: Any, label: str) -> list[Any]:
        function = self.functions[domain_of(call.domain), call.op_type, call.overload]
        self._import(function)
        names = dict.fromkeys(function.input, "") | dict(zip(function.input, call.input, strict=False))
        ends = [(formal, actual) for formal, actual in zip(function.output, call.output, strict=False) if actual]
        passed = [(names[formal], actual) for formal, actual in ends if formal in names]
        for formal, actual in ends:
            names.setdefault(formal, actual)
        given = {a.name: a for a in (*function.attribute_proto, *call.attribute)}
        body = self._body(function.node, label, scope_of_names(names, label), given)
        return body + [helper.make_node("Identity", [source], [actual], label) for source, actual in passed]

    def _import(self, function: Any) -> None:
        """Import a function's domains into the model; raise ExportError if the model has a domain at another opset."""
        known = {domain_of(entry.domain): entry.version for entry in self.model.opset_import}
        for entry in function.opset_import:
            if known.setdefault(domain_of(entry.domain), entry.version) != entry.version:
                raise ExportError(
                    f"export: the calls of function {function.name!r} have become different, and the nodes of the "
                    f"function cannot be put in their place: the function has opset {entry.version}, the graph has "
                    f"opset {known[domain_of(entry.domain)]}; convert the file to one opset first"
                )
            if entry.domain not in {e.domain for e in self.model.opset_import}:
                self.model.opset_import.append(entry)

    def _body(self, nodes: Any, context: str, rename: Names, given: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for index, node in enumerate(renamed(nodes, context, rename, given, self.layout.labels)):
            label = self.layout.labels.get((context, index), "")
            found += self._call(node, label) if label in self.calls else [node]
        return found


def renamed(
    nodes: Any,
    context: str,
    rename: Names,
    given: Mapping[str, Any] | None = None,
    labels: Mapping[tuple[str, int], str] | None = None,
) -> list[Any]:
    """Copy nodes, with the graphs inside them, into another graph.

    rename    a function that turns the name of a value into the value's name in the other graph
    given     the attributes that a call passes to the function; None for nodes outside functions
    labels    (context, index) of a node with graphs inside -> its label
    """
    found: list[Any] = []
    for index, old in enumerate(nodes):
        node = NodeProto()
        node.CopyFrom(old)
        node.name = f"{context}/{old.name}" if old.name else ""
        _rename(node.input, rename)
        _rename(node.output, rename)
        if given is not None:
            _refer(node, given)
        label = (labels or {}).get((context, index), "") or f"{context}/{old.name or f'{old.op_type}_{index}'}"
        for name, graph in graphs_of(node):
            inside = f"{label}/{name}"
            own = [value for inner in graph.node for value in inner.output if value]
            own += [entry.name for entry in (*graph.initializer, *graph.input)]
            names = scope_of_names({value: f"{inside}/{value}" for value in own}, "", rename)
            body = renamed(graph.node, inside, names, given, labels)
            del graph.node[:]
            graph.node.extend(body)
            for entry in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
                entry.name = names(entry.name)
        found.append(node)
    return found


def scope_of_names(known: dict[str, str], context: str, around: Names | None = None) -> Names:
    """Return a function that renames values.

    A name in `known` is replaced by the name there. For all other names, the function calls `around`. If `around` is
    None, the new name is `context/name`, which is added to `known`.
    """

    def rename(name: str) -> str:
        if not name or name in known:
            return known.get(name, "")
        return around(name) if around is not None else known.setdefault(name, f"{context}/{name}")

    return rename


def _rename(names: Any, rename: Names) -> None:
    new = [rename(name) for name in names]
    del names[:]
    names.extend(new)


def _refer(node: Any, given: Mapping[str, Any]) -> None:
    """Replace references to the function's attributes by the attributes in `given`; drop all other references."""
    for index in range(len(node.attribute) - 1, -1, -1):
        name, reference = node.attribute[index].name, node.attribute[index].ref_attr_name
        if reference in given:
            node.attribute[index].CopyFrom(given[reference])
            node.attribute[index].name = name
        elif reference:
            del node.attribute[index]
