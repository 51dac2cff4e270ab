"""One flat list of nodes: functions that a model brings along, and the branches of If, are written out in place.

Values inside a call are named after it, `call/value`. The nodes of a branch carry the condition under which they run
(`guards`), and behind them stands an If that picks the results of one branch. How deep all this nests and how many
nodes it makes is bounded, so that a small file cannot ask for billions of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minorm.onnx.graph import tensors
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.reading import Node, attribute_values
from minorm.onnx.graph.tensors import Budget, text

MAX_DEPTH = 64
MAX_NODES = 10_000  # made by functions
MAX_NAMES = 1 << 24  # characters in the names of what functions make: each carries those of the calls around it

Key = tuple[str, str, str]  # domain, name, overload


def domain_of(name: str) -> str:
    """The domain, with ONNX's own always written ""."""
    return "" if name == "ai.onnx" else text(name, "the name of a domain")


def opset_table(imports: Any, what: str) -> dict[str, int]:
    """domain -> opset; LoadError where a domain stands there twice with different opsets."""
    table: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        if table.setdefault(domain, entry.version) != entry.version:
            raise LoadError(f"load: {what} imports two opsets of domain {domain!r}: {table[domain]}, {entry.version}")
    return table


@dataclass
class _Place:
    """Where nodes are being written: the model itself, the body of one call, or a branch of an If."""

    label: str
    opsets: Mapping[str, int]
    names: dict[str, str] | None  # formal name -> name outside; None in the model itself
    attributes: Mapping[str, Any]  # what the call gives for the function's attributes, as AttributeProtos
    stack: tuple[Key, ...]
    guards: tuple[tuple[str, bool], ...] = ()
    around: _Place | None = None  # of a branch: it sees the names there


class Flattener:
    """Writes the nodes of a model as a flat list, its functions replaced by their bodies."""

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
        self.calls: dict[str, int] = {}  # labels, and the last number behind each
        self.made = self.letters = 0
        self.flat: list[Node] = []

    def nodes(self) -> list[Node]:
        """All nodes, in the order of the file."""
        self._write(self.model.graph.node, _Place("", self.opsets, None, {}, ()))
        return self.flat

    def _write(self, protos: Any, place: _Place) -> None:
        for index, proto in enumerate(protos):
            for given in (proto.name, proto.op_type, proto.overload, *proto.input, *proto.output):
                text(given, "a name in a node")
            label = proto.name or f"{proto.op_type}_{index}"
            name = f"{place.label}/{label}" if place.label else proto.name
            attributes = self._attributes(proto, place, name or label)
            key = (domain_of(proto.domain), proto.op_type, proto.overload)
            inputs = tuple(self._name(n, place) for n in proto.input)
            outputs = tuple(self._name(n, place) for n in proto.output)
            if key in self.functions:
                self._call(key, inputs, outputs, attributes, name or label, place)
                continue
            if key == ("", "If", ""):
                self._branches(inputs, outputs, attributes, name or label, place)
                continue
            if place.stack:
                self.made += 1
                self.letters += sum(map(len, (name, *inputs, *outputs)))
                if self.letters > MAX_NAMES:
                    raise LoadError(f"load: the names in the functions unfold to more than {MAX_NAMES} characters")
                if self.made > MAX_NODES:
                    raise LoadError(f"load: the functions of the model unfold to more than {MAX_NODES} nodes")
            what = f"node {name or label!r} ({proto.op_type})"
            values = attribute_values(attributes, what, self.folder, self.budget)
            self.flat.append(self._node(key[1], name, inputs, outputs, values, place, key[0]))

    def _call(
        self,
        key: Key,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Any],
        label: str,
        place: _Place,
    ) -> None:
        function = self.functions[key]
        if key in place.stack:
            raise LoadError(f"load: function {function.name!r} calls itself")
        if len(place.stack) >= MAX_DEPTH:
            raise LoadError(f"load: functions call each other more than {MAX_DEPTH} deep")
        if len(inputs) > len(function.input) or len(outputs) > len(function.output):
            raise LoadError(
                f"load: {label!r} calls function {function.name!r} with {len(inputs)} inputs and {len(outputs)} "
                f"outputs; it has {len(function.input)} and {len(function.output)}"
            )
        allowed = {*function.attribute, *(a.name for a in function.attribute_proto)}
        if not set(attributes) <= allowed:
            raise LoadError(f"load: function {function.name!r} has no attribute {min(set(attributes) - allowed)!r}")
        label = self._unique(label)
        names = dict.fromkeys(function.input, "") | dict(zip(function.input, inputs, strict=False))
        passed = [(formal, actual) for formal, actual in zip(function.output, outputs, strict=False) if formal in names]
        for formal, actual in zip(function.output, outputs, strict=False):
            if actual and formal not in names:
                names[formal] = actual
        opsets = opset_table(function.opset_import, f"function {function.name!r}")
        given = {a.name: a for a in function.attribute_proto} | attributes
        self._write(function.node, _Place(label, opsets, names, given, (*place.stack, key), place.guards))
        for formal, actual in passed:  # the body hands an input on
            if actual:
                self.flat.append(self._node("Identity", label, (names[formal],), (actual,), {}, place))

    def _branches(
        self,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Any],
        label: str,
        place: _Place,
    ) -> None:
        branches = [attributes.get(name) for name in ("then_branch", "else_branch")]
        if len(inputs) != 1 or not inputs[0] or not all(b is not None and b.HasField("g") for b in branches):
            raise LoadError(f"load: node {label!r} (If) has no condition, or lacks a branch")
        if len(place.guards) >= MAX_DEPTH:
            raise LoadError(f"load: branches nest more than {MAX_DEPTH} deep")
        label = self._unique(label)
        results: list[str] = []
        for attribute, taken in zip(branches, (True, False), strict=True):
            body, inside = attribute.g, f"{label}/{attribute.name}"  # type: ignore[union-attr]
            if body.input or len(body.output) != len(outputs):
                raise LoadError(
                    f"load: a branch of node {label!r} (If) has {len(body.input)} inputs and {len(body.output)} "
                    f"outputs; expected none and {len(outputs)}"
                )
            own = [name for node in body.node for name in node.output if name] + [t.name for t in body.initializer]
            names = {text(name, "a name in a branch"): f"{inside}/{name}" for name in own}
            guards = (*place.guards, (inputs[0], taken))
            branch = _Place(inside, place.opsets, names, place.attributes, place.stack, guards, place)
            for tensor in body.initializer:
                value = tensors.read(tensor, f"initializer {tensor.name!r}", self.folder, self.budget)
                self.flat.append(self._node("Constant", "", (), (names[tensor.name],), {"value": value}, branch))
            self._write(body.node, branch)
            results += [self._name(text(entry.name, "the name of an output"), branch) for entry in body.output]
        self.flat.append(self._node("If", label, (*inputs, *results), outputs, {}, place))

    def _node(
        self,
        operator: str,
        name: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: dict[str, Any],
        place: _Place,
        domain: str = "",
    ) -> Node:
        opset = place.opsets.get(domain, 0)
        return Node(operator, domain, name, opset, inputs, outputs, attributes, budget=self.budget, guards=place.guards)

    def _unique(self, label: str) -> str:
        """The label, with _, _2, _3 ... where it is taken; what is written inside will be named after it."""
        unique, number = label, self.calls.get(label, 0)
        while unique in self.calls:
            number += 1
            unique = f"{label}_{number if number > 1 else ''}"
        self.calls[label] = number
        self.calls.setdefault(unique, 0)
        return unique

    def _name(self, name: str, place: _Place) -> str:
        """The name, in the flat list, of what is called `name` here."""
        if place.names is None or not name:
            return str(name)
        if place.around is not None and name not in place.names:
            return self._name(name, place.around)
        return place.names.setdefault(name, f"{place.label}/{name}")

    def _attributes(self, proto: Any, place: _Place, what: str) -> dict[str, Any]:
        """The attributes as AttributeProtos; those that refer to one of the function's replaced by it."""
        found: dict[str, Any] = {}
        for attribute in proto.attribute:
            if text(attribute.name, f"the name of an attribute of {what!r}") in found:
                raise LoadError(f"load: node {what!r} has two attributes {attribute.name!r}")
            reference = attribute.ref_attr_name
            if reference and not place.stack:
                raise LoadError(f"load: node {what!r} refers to an attribute {reference!r}, but is in no function")
            if not reference:
                found[attribute.name] = attribute
            elif reference in place.attributes:
                found[attribute.name] = place.attributes[reference]
        return found
