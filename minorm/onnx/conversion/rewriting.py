"""Rewrite the graph of a model for another opset, node by node; the model does not run.

A node whose operator has the same version at both opsets is copied. All other nodes go through the steps of their
operator (steps.py). Graphs inside nodes are rewritten in the same way. The bodies of the model's functions are
rewritten too, from the opset that each function declares. Nodes of other domains are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from minorm.onnx.conversion import steps
from minorm.onnx.graph import schemas
from minorm.onnx.graph.errors import ExportError, LoadError, RuleNotApplicable
from minorm.onnx.graph.lengths import length_of
from minorm.onnx.graph.names import drop, names_of, reads_of, refill
from minorm.onnx.graph.node_rewriter import (
    LANGUAGE,
    Kind,
    Kinds,
    NodeRewriter,
    Values,
    constant_of,
    graphs_of,
    in_words,
    is_node,
    path_of,
)
from minorm.onnx.graph.tensors import text
from minorm.onnx.loading.flattening import MAX_DEPTH
from minorm.onnx.loading.signatures import opset_table


class Rewriter:
    """Rewrites a ModelProto for another opset, in place.

    opset    the target
    kinds    a function that infers types and shapes; it is called if a rule needs a type or a shape that the graph does
             not declare
    folded   a function that computes constants; it is called if a rule needs the contents of a value that a node makes
    """

    def __init__(
        self, model: Any, opset: int, kinds: Callable[[], Kinds], folded: Callable[[], Mapping[str, Any]]
    ) -> None:
        self.model, self.opset, self.kinds, self.folded = model, opset, kinds, folded
        self.functions = {(f.domain, f.name, f.overload) for f in model.functions}
        self.taken = {text(name, "the name of a value") for name in names_of(model)}
        self.refused: dict[tuple[str, ...], str] = {}  # outputs of a node -> the reason
        self.changed = 0  # nodes that needed a step

    def rewrite(self) -> None:
        """Rewrite all graphs and functions; an ExportError names all nodes that have no form at the target."""
        self._graph(self.model.graph, opset_table(self.model.opset_import, "the model"), "", None, 0)
        for function in self.model.functions:
            self._function(function)
        if self.refused:
            nodes = f"{len(self.refused)} node{'s' if len(self.refused) > 1 else ''}"
            what = f"convert: {nodes} cannot be written at opset {self.opset}"
            raise ExportError("\n  ".join([f"{what}:", *self.refused.values()]))
        _set_opset(self.model.opset_import, self.opset)

    def _function(self, function: Any) -> None:
        opsets = opset_table(function.opset_import, f"function {function.name!r}")
        path = path_of(function)
        values = self.values(function, path)
        self._nodes(function.node, opsets, path, values, 0)
        self._prune(function.node, values, function.output)
        _set_opset(function.opset_import, self.opset)
        drop_descriptions(function, function.input)

    def values(self, holder: Any, path: str, around: Values | None = None) -> Values:
        """Collect the known facts about the values of a graph or function."""
        values = Values(lambda: self.kinds().get(path, {}), self.taken, around)
        if not hasattr(holder, "initializer"):
            values.read = reads_of(holder.node) | set(holder.output)
            return values
        values.tensors = {tensor.name: tensor for tensor in holder.initializer}
        values.initializers = holder.initializer
        values.folded = self.folded if around is None else None
        values.made = {entry.name: said_of(entry) for entry in holder.input if said_of(entry).shape is not None}
        values.read = reads_of(holder.node) | {entry.name for entry in holder.output}
        return values

    def _graph(self, graph: Any, opsets: Mapping[str, int], path: str, around: Values | None, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise LoadError(f"convert: graphs are nested more than {MAX_DEPTH} deep")
        values = self.values(graph, path, around)
        outputs = [entry.name for entry in graph.output]
        self._nodes(graph.node, opsets, path, values, depth)
        given = {entry.name for entry in graph.input}
        dead = self._prune(graph.node, values, outputs)
        drop(graph.initializer, lambda tensor: tensor.name in dead and tensor.name not in given)
        drop_descriptions(graph, [*given, *outputs, *(t.name for t in graph.initializer)])

    def _prune(self, nodes: Any, values: Values, outputs: Iterable[str]) -> set[str]:
        """Remove nodes whose results became attributes; return the names of values that no node reads any more."""
        dead = values.absorbed
        if not dead:
            return set()
        read = reads_of(nodes) | set(outputs)
        for index in range(len(nodes) - 1, -1, -1):
            made = set(nodes[index].output) - {""}
            if made & dead and not made & read:
                dead |= set(nodes[index].input)
                self.refused.pop(tuple(nodes[index].output), None)
                del nodes[index]
                read = reads_of(nodes) | set(outputs)
        return dead - read

    def _nodes(self, nodes: Any, opsets: Mapping[str, int], path: str, values: Values, depth: int) -> None:
        refill(nodes, self._rewritten(nodes, opsets, path, values, depth))

    def _rewritten(self, nodes: Any, opsets: Mapping[str, int], path: str, values: Values, depth: int) -> Iterator[Any]:
        for index, node in enumerate(nodes):
            for name, graph in graphs_of(node):
                self._graph(graph, opsets, f"{path}/{index}.{name}", values, depth + 1)
            yield from self._node(node, opsets.get("", 0), values)

    def _node(self, node: Any, opset: int, values: Values) -> list[Any]:
        if not is_node(node) or (node.domain, node.op_type, node.overload) in self.functions:
            return [node]
        if node.op_type == "Constant" and len(node.output) == 1:
            tensor = constant_of(node)
            if tensor is not None:
                values.tensors[node.output[0]] = tensor
        since = steps.since(node.op_type, opset)
        label = in_words(node)
        if not since:
            self.refused[tuple(node.output)] = f"{label}: opset {opset} has no such operator"
            return [node]
        try:
            check_node(node, steps.published(node.op_type)[since])
            if since == steps.since(node.op_type, self.opset):
                return [node]
            self.changed += 1
            return self._walk(node, since, values)
        except RuleNotApplicable as why:
            self.refused[tuple(node.output)] = f"{label}: {why}"
            return [node]
        except (ValueError, TypeError, IndexError, KeyError, OverflowError, ArithmeticError) as error:
            if isinstance(error, LoadError):
                raise
            raise LoadError(f"convert: {label} is damaged: {error}") from error

    def _walk(self, node: Any, since: int, values: Values) -> list[Any]:
        copy = type(node)()
        copy.CopyFrom(node)
        draft = self.draft(copy, since, values)
        steps.walk(draft)
        return [*draft.before, *([] if draft.node is None else [draft.node]), *draft.behind]

    def draft(self, node: Any, since: int, values: Values) -> NodeRewriter:
        """Return a NodeRewriter for a node; nodes that a rule adds are converted to the target opset."""
        return NodeRewriter(node, since, self.opset, values, self._emitted, steps.published(node.op_type).get(since))

    def _emitted(self, node: Any, values: Values) -> list[Any]:
        """Rewrite a node that a rule has added: from opset LANGUAGE (18), in which rules write nodes, to the target."""
        since = steps.since(node.op_type, LANGUAGE)
        return [node] if since == steps.since(node.op_type, self.opset) else self._walk(node, since, values)


def said_of(entry: Any) -> Kind:
    """Return the Kind (type and shape) that a value_info declares."""
    kind = entry.type.tensor_type
    if not kind.HasField("shape"):
        return Kind(kind.elem_type)
    return Kind(kind.elem_type, tuple(None if (n := length_of(dim)) == "" else n for dim in kind.shape.dim))


# Descriptions


def drop_descriptions(holder: Any, others: Iterable[str]) -> None:
    """Drop the value_info of values that are gone."""
    there = {name for node in holder.node for name in node.output} | set(others)
    drop(holder.value_info, lambda entry: entry.name not in there)


def _set_opset(imports: Any, opset: int) -> None:
    for entry in [entry for entry in imports if entry.domain in ("", "ai.onnx")][1:]:
        imports.remove(entry)
    own = next((entry for entry in imports if entry.domain in ("", "ai.onnx")), None) or imports.add()
    own.version = opset


# Nodes against their schemas


def check_node(node: Any, schema: Any) -> None:
    """Raise LoadError if the number of inputs or outputs is wrong, or an attribute is unknown, repeated or mistyped."""
    what = in_words(node)
    names = [attribute.name for attribute in node.attribute]
    if why := schemas.misfit(schema, node.input, node.output, names):
        raise LoadError(f"convert: {what} {why}")
    for attribute in node.attribute:
        if names.count(attribute.name) > 1:
            raise LoadError(f"convert: {what} has two attributes {attribute.name!r}")
        kind = schema.attributes[attribute.name].type
        if attribute.type != kind.value and not attribute.ref_attr_name:
            raise LoadError(f"convert: {what}: attribute {attribute.name!r} is not of type {kind.name}")
