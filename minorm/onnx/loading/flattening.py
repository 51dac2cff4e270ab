"""Flatten a model to one list, which also has the nodes of functions, of the branches of If and of the bodies of loops.

The names of values inside a call begin with the name of the call: `call/value`. The nodes of a branch have a condition
under which they run (`conditions`). An If after these nodes picks the results of one branch. The body of a Loop or Scan
is between two nodes (`Body`). The depth of the nesting and the number of nodes have limits, so that a small file cannot
ask for billions of nodes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from onnx import TensorProto

from minorm.onnx.graph import paths, tensors
from minorm.onnx.graph.body import Body
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node, attribute_value
from minorm.onnx.graph.tensors import Budget, text
from minorm.onnx.loading.signatures import Signature, domain_of
from minorm.onnx.operators import expansions
from minorm.support.safe_names import printable

MAX_DEPTH = 64
MAX_LOOPS = 16  # nested in each other
MAX_NODES = 10_000  # that functions may make
MAX_NAMES = 1 << 24  # characters in the names that functions make, and in the prefixes of names in branches and loops

NAME = 16  # characters that each name counts in addition to its length

Key = tuple[str, str, str]  # domain, name, overload


class Home(NamedTuple):
    """Says where in the file a value of the flat list is: in which graph, under which name, in which call or branch."""

    path: str  # as conversion/rewriting.py names bodies: "/3.then_branch", or "domain:name:overload" of a function
    name: str
    context: str


@dataclass
class Layout:
    """Records how the bodies of a file became one list, so that each value can be found in the file.

    A context is the label of the call, branch or loop around a node; "" is the graph itself.
    homes     where the values in functions and branches are, by their names in the flat list
    labels    the label of a call or an If, by its context and its index in this context
    around    the context of a call or branch -> the context around it
    """

    homes: dict[str, Home] = field(default_factory=dict)
    labels: dict[tuple[str, int], str] = field(default_factory=dict)
    around: dict[str, str] = field(default_factory=dict)


@dataclass
class _Place:
    """Describes where in the model the current nodes are: in its graph, a call, a loop, or a branch of an If."""

    label: str
    path: str
    opsets: Mapping[str, int]
    names: dict[str, str] | None  # formal name -> name outside; None in the model itself
    attributes: Mapping[str, Any]  # the call's values of the function's attributes, as AttributeProtos
    stack: tuple[Key, ...]
    conditions: tuple[tuple[str, bool], ...] = ()
    around: _Place | None = None  # for a branch or a Loop: the place around it, whose names it can use
    branches: int = 0  # the number of branches around it
    loops: int = 0
    module: str = ""  # the path of the module from which the call comes
    formals: Container[str] = ()  # names without a value unless the call gives one


class _Nest(NamedTuple):
    """Describes a node that holds nodes: a call of a function, an If, a Loop or a Scan.

    The names of its inputs and outputs are those of the flat list.
    """

    operator: str
    label: str
    number: int  # in its place, from 0
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    place: _Place
    module: str


class Flattener:
    """Writes the nodes of a model as a flat list, and replaces calls of functions by the functions' bodies."""

    def __init__(self, model: Any, opsets: Mapping[str, int], folder: str | None, budget: Budget) -> None:
        self.model, self.opsets, self.folder, self.budget = model, opsets, folder, budget
        self.functions: dict[Key, Any] = {}
        for function in model.functions:
            key = (domain_of(function.domain), function.name, function.overload)
            attributes = [*function.attribute, *(a.name for a in function.attribute_proto)]
            for name in (*key, *function.input, *function.output, *attributes):
                text(name, "a name in a function")
            if key in self.functions:
                raise LoadError(f"load: the model defines function {function.name!r} of {function.domain!r} twice")
            self.functions[key] = function
        self.calls: dict[str, int] = {}  # label -> the last number that was appended to it
        self.heads: dict[Key, Signature] = {}
        self.known: dict[int, tuple[Any, Any]] = {}  # by the id of a proto: its value, and itself
        self.made = self.letters = 0
        self.flat: list[Node] = []
        self.layout = Layout()
        self.expanded: set[Key] = set()  # minorm's functions: each makes a few nodes and calls no function
        self.sequences = {entry.name for entry in model.graph.input if entry.type.HasField("sequence_type")}
        self.held: dict[str, tuple[int, int | None]] | None = None

    def nodes(self) -> list[Node]:
        """Return all nodes, in the order of the file."""
        self._write(self.model.graph.node, _Place("", "", self.opsets, None, {}, ()))
        return self.flat

    def _write(self, protos: Any, place: _Place) -> None:
        for index, proto in enumerate(protos):
            for given in (proto.name, proto.op_type, proto.overload, *proto.input, *proto.output):
                text(given, "a name in a node")
            label = proto.name or f"{proto.op_type}_{index}"
            name = f"{place.label}/{label}" if place.label else proto.name
            attributes = self._attributes(proto, place, name or label)
            key = self._expanded((domain_of(proto.domain), proto.op_type, proto.overload), proto, attributes, place)
            module = (place.module if place.stack else "") or paths.of(proto) or place.module
            inputs = tuple(self._name(n, place) for n in proto.input)
            outputs = tuple(self._name(n, place) for n in proto.output)
            if not self.expanded.issuperset(place.stack):
                unfolded = (name, *inputs, *outputs, *proto.attribute, *proto.metadata_props)
                self._count(1, sum(NAME + (len(part) if isinstance(part, str) else 0) for part in unfolded))
            elif place.names is not None:
                self._count(0, len(place.label), "branches and loops")
            if key[0] == "" and (
                key[1] in _SEQUENCES or (inputs and inputs[0] in self.sequences and key[1] == "Identity")
            ):
                self.sequences.update(outputs)
            if key in self.functions or key in _HOLDING:
                unique = self._unique(name or label, place, index)
                nest = _Nest(key[1], unique, index, inputs, outputs, attributes, place, module)
                self._call(key, nest) if key in self.functions else _HOLDING[key](self, nest)
                continue
            if place.names is not None:
                here = zip(outputs, proto.output, strict=True)
                self.layout.homes |= {flat: Home(place.path, own, place.label) for flat, own in here if own}
            what = f"node {name or label!r} ({printable(proto.op_type)})"
            values = self._values(attributes, what, place)
            self.flat.append(self._node(key[1], name, inputs, outputs, values, place, module, key[0]))

    def _expanded(self, key: Key, proto: Any, attributes: dict[str, Any], place: _Place) -> Key:
        """Make the function into which minorm expands a node, and return the key of this function.

        Return `key` unchanged if minorm does not expand the node.
        """
        if key in self.functions or key[:2] not in expansions.EXPANSIONS:
            return key
        flat = [self._name(name, place) for name in proto.input]
        known = [self._known(name) for name in flat]
        call = expansions.Call(
            inputs=tuple(map(bool, flat)),
            outputs=tuple(map(bool, proto.output)),
            ranks=tuple(rank for _, rank in known),
            elements=tuple(elem for elem, _ in known),
            sequences=tuple(name in self.sequences for name in flat),
            attributes=expansions.attribute_values(attributes),
            opset=place.opsets.get(key[0], 0),
            opsets=place.opsets,
        )
        function = expansions.function(key[0], key[1], call)
        if function is None:
            return key
        own = (*key[:2], f"{key[2]}#{id(function)}")  # the function is kept alive, so its id stays unique
        self.functions.setdefault(own, function)
        self.expanded.add(own)
        return own

    def _known(self, name: str) -> tuple[int, int | None]:
        """Return (element type, rank) of an initializer, (element type, None) of an input, or (0, None)."""
        if self.held is None:
            graph = self.model.graph
            self.held = {entry.name: (entry.type.tensor_type.elem_type, None) for entry in graph.input}
            self.held |= {tensor.name: (tensor.data_type, len(tensor.dims)) for tensor in graph.initializer}
        return self.held.get(name, (0, None))

    def _count(self, nodes: int, letters: int, where: str = "the functions") -> None:
        """Count the nodes in the flat list and the characters of their names; raise LoadError above a limit."""
        self.made += nodes
        self.letters += letters
        if self.letters > MAX_NAMES:
            raise LoadError(
                f"load: the names in {where} become longer than {MAX_NAMES} characters when calls are replaced by nodes"
            )
        if self.made > MAX_NODES:
            raise LoadError(
                f"load: the functions of the model become more than {MAX_NODES} nodes when calls are replaced by nodes"
            )

    def _call(self, key: Key, nest: _Nest) -> None:
        _, label, _, inputs, outputs, attributes, place, module = nest
        function = self.functions[key]
        if key in place.stack:
            raise LoadError(f"load: function {function.name!r} calls itself")
        if len(place.stack) >= MAX_DEPTH:
            raise LoadError(f"load: calls of functions are nested more than {MAX_DEPTH} deep")
        head = self._head(key)
        given = head.given(label, len(inputs), len(outputs), attributes)
        handed = [(formal, actual) for formal, actual in zip(head.outputs, outputs, strict=False) if actual]
        names = {formal: actual for formal, actual in handed if formal not in head.formals}
        names.update(zip(head.inputs, inputs, strict=False))
        self.layout.around[label] = place.label
        depth = (place.branches, place.loops)
        inside = _Place(
            label, head.path, head.opsets, names, given, (*place.stack, key), place.conditions, None, *depth, module,
            head.formals,
        )  # fmt: skip
        self._write(function.node, inside)
        for formal, actual in handed:
            if formal in head.formals:  # the body passes an input on
                source = (self._name(formal, inside),)
                self.flat.append(self._node("Identity", label, source, (actual,), {}, place, module))

    def _head(self, key: Key) -> Signature:
        if key not in self.heads:
            self.heads[key] = Signature.of(self.functions[key])
        return self.heads[key]

    def _branches(self, nest: _Nest) -> None:
        _, label, index, inputs, outputs, attributes, place, module = nest
        branches = [attributes.get(name) for name in ("then_branch", "else_branch")]
        if len(inputs) != 1 or not inputs[0] or not all(b is not None and b.HasField("g") for b in branches):
            raise LoadError(f"load: node {label!r} (If) has no condition, or lacks a branch")
        if place.branches >= MAX_DEPTH:
            raise LoadError(f"load: branches are nested more than {MAX_DEPTH} deep")
        results: list[str] = []
        for attribute, taken in zip(branches, (True, False), strict=True):
            body, inside = attribute.g, f"{label}/{attribute.name}"  # type: ignore[union-attr]
            if body.input or len(body.output) != len(outputs):
                raise LoadError(
                    f"load: a branch of node {label!r} (If) has {len(body.input)} inputs and {len(body.output)} "
                    f"outputs; expected 0 inputs and {len(outputs)} outputs"
                )
            conditions = (*place.conditions, (inputs[0], taken))
            path = f"{place.path}/{index}.{attribute.name}"  # type: ignore[union-attr]
            results += self._graph(body, inside, path, place, module, conditions, place.branches + 1, place.loops)
        self.flat.append(self._node("If", label, (*inputs, *results), outputs, {}, place, module))

    def _repeat(self, nest: _Nest) -> None:
        operator, label, index, inputs, outputs, attributes, place, module = nest
        attribute = attributes.pop("body", None)
        what = f"node {label!r} ({operator})"
        if attribute is None or not attribute.HasField("g"):
            raise LoadError(f"load: {what} has no body")
        if place.loops >= MAX_LOOPS:
            raise LoadError(f"load: loops are nested more than {MAX_LOOPS} deep")
        values = self._values(attributes, what, place)
        scanned = values.get("num_scan_inputs", 0) if operator == "Scan" else 0
        own = Body.of(attribute.g, operator, place.opsets.get("", 0), inputs, len(outputs), scanned, what)
        inside, path = f"{label}/body", f"{place.path}/{index}.body"
        begin = self._node(operator, label, inputs, tuple(f"{inside}/{name}" for name in own.inputs), {}, place, module)
        self.flat.append(begin)
        results = self._graph(attribute.g, inside, path, place, module, (), place.branches, place.loops + 1)
        begin.enters, begin.body = True, replace(own, inputs=begin.outputs, outputs=tuple(results))
        last = self._node(operator, label, (*inputs, *begin.outputs, *results), outputs, values, place, module)
        last.body = begin.body
        self.flat.append(last)

    def _graph(
        self,
        graph: Any,
        label: str,
        path: str,
        around: _Place,
        module: str,
        conditions: tuple[tuple[str, bool], ...],
        branches: int,
        loops: int,
    ) -> list[str]:
        """Write the nodes of a graph that is inside a node; return the names of the graph's outputs."""
        own = [name for node in graph.node for name in node.output if name]
        own += [entry.name for entry in (*graph.initializer, *graph.input)]
        self._count(0, len(own) * len(label), "branches and loops")
        names = {text(name, "a name in a branch or a loop"): f"{label}/{name}" for name in own}
        known = (around.opsets, names, around.attributes, around.stack)
        place = _Place(label, path, *known, conditions, around, branches, loops, module)
        self.layout.around[label] = around.label
        for tensor in graph.initializer:
            self.layout.homes[names[tensor.name]] = Home(path, tensor.name, label)
            value = self._value(tensor, f"initializer {tensor.name!r}", place)
            given = {"value": value}
            node = self._node("Constant", tensor.name, (), (names[tensor.name],), given, place, module)
            node.is_initializer = True
            self.flat.append(node)
        self._write(graph.node, place)
        return [self._name(text(entry.name, "the name of an output"), place) for entry in graph.output]

    def _node(
        self,
        operator: str,
        name: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Any],
        place: _Place,
        module: str,
        domain: str = "",
    ) -> Node:
        return Node(
            operator, domain, name, place.opsets.get(domain, 0), inputs, outputs, attributes,
            budget=self.budget, conditions=place.conditions, module=module,
        )  # fmt: skip

    def _values(self, attributes: Mapping[str, Any], what: str, place: _Place) -> dict[str, Any]:
        return {name: self._value(a, f"attribute {name!r} of {what}", place) for name, a in attributes.items()}

    def _value(self, proto: Any, what: str, place: _Place) -> Any:
        """Return the contents of an AttributeProto or TensorProto.

        If the node is in a function, the contents are read once for all calls of the function.
        """
        read = tensors.read if isinstance(proto, TensorProto) else attribute_value
        if not place.stack:
            return read(proto, what, self.folder, self.budget)
        if id(proto) not in self.known:
            self.known[id(proto)] = read(proto, what, self.folder, self.budget), proto
        value = self.known[id(proto)][0]
        self._count(0, len(value) if isinstance(value, list) else 0)  # later checks look at the elements of each node
        return value

    def _unique(self, label: str, place: _Place, index: int) -> str:
        """Return an unused label for a call or an If, with which the names of the values inside begin.

        The result is `label` if this label is unused. Otherwise, it is `label` with _, _2 ... at its end.
        """
        unique, number = label, self.calls.get(label, 0)
        while unique in self.calls:
            number += 1
            unique = f"{label}_{number if number > 1 else ''}"
        self.calls[label] = number
        self.calls.setdefault(unique, 0)
        self.layout.labels[place.label, index] = unique
        return unique

    def _name(self, name: str, place: _Place) -> str:
        """Return the name in the flat list of the value that is called `name` in `place`."""
        if place.names is None or not name:
            return str(name)
        if name not in place.names and name in place.formals:
            return ""
        if place.around is not None and name not in place.names:
            return self._name(name, place.around)
        return place.names.setdefault(name, f"{place.label}/{name}")

    def _attributes(self, proto: Any, place: _Place, what: str) -> dict[str, Any]:
        """Return the AttributeProtos; each reference is replaced by the attribute that the function's call gives."""
        found: dict[str, Any] = {}
        for attribute in proto.attribute:
            if text(attribute.name, f"the name of an attribute of {what!r}") in found:
                raise LoadError(f"load: node {what!r} has two attributes {attribute.name!r}")
            reference = attribute.ref_attr_name
            if reference and not place.stack:
                raise LoadError(f"load: node {what!r} refers to an attribute {reference!r}, but is not in a function")
            if not reference:
                found[attribute.name] = attribute
            elif reference in place.attributes:
                found[attribute.name] = place.attributes[reference]
        return found


_SEQUENCES = frozenset(
    ("SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceMap", "SplitToSequence")
)  # operators whose results are sequences
_HOLDING = {
    ("", "If", ""): Flattener._branches,
    ("", "Loop", ""): Flattener._repeat,
    ("", "Scan", ""): Flattener._repeat,
}
