"""Retype the functions of a model whose floats get another type; each kind of call gets a separate body.

A call with data and a call with values computed from shapes need different bodies. Calls whose attributes name
different types need different bodies too. Equal bodies become one function. The first body keeps the function's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from minorm.onnx.exporting.float_types import Made
from minorm.onnx.exporting.retyped_values import Scope, Value
from minorm.onnx.graph.errors import ExportError
from minorm.onnx.graph.node_rewriter import FLOATS, fresh, is_node
from minorm.onnx.loading.flattening import MAX_DEPTH, MAX_NODES

Key = tuple[str, str, str]  # domain, name, overload


@dataclass(frozen=True)
class Variant:
    """Describes a function for one kind of call: its name, its inputs' types, and its outputs."""

    name: str
    reads: tuple[int, ...]
    makes: tuple[tuple[Made, bool], ...]  # each output, and True if it is silent


class Functions:
    """Holds the functions of a model, and the variants that the model's calls need.

    walk     a function that visits the nodes of a body
    opset    a function that finds the opset of ONNX's own operators in a list of imports
    taken    the names of existing values
    """

    def __init__(
        self, model: Any, walk: Callable[[Scope], None], opset: Callable[[Any, str], int], taken: set[str]
    ) -> None:
        self.model, self.walk, self.opset, self.taken = model, walk, opset, taken
        self.originals = {(f.domain, f.name, f.overload): f for f in model.functions}
        self.titles: dict[str, set[str]] = {}  # names of functions, by domain
        for domain, name, _ in self.originals:
            self.titles.setdefault(domain, set()).add(name)
        self.variants: dict[Any, Variant] = {}
        self.bodies: dict[Key, dict[bytes, Any]] = {}  # function -> contents of a body -> that body
        self.stack: list[Key] = []
        self.copied = 0  # the number of copied nodes

    def __contains__(self, key: Key) -> bool:
        return key in self.originals

    def variant(
        self, key: Key, inputs: Sequence[Value | None], passed: Mapping[str, Any], conditional: bool
    ) -> Variant:
        """Return the variant of a function that fits a call, and write this variant if it is new.

        The variant depends on the types of the call's inputs, and on the types that the call's attributes name.
        """
        passed = {a.name: a for a in self.originals[key].attribute_proto} | dict(passed)
        says = tuple(sorted((name, a.type, a.i, a.t.data_type) for name, a in passed.items()))
        kind = (key, tuple(None if v is None else (v.given, v.silent) for v in inputs), says, conditional)
        if kind not in self.variants:
            if key in self.stack or len(self.stack) > MAX_DEPTH:
                raise ExportError(
                    f"export: function {key[1]!r} calls itself, or calls are nested more than {MAX_DEPTH} deep"
                )
            self.stack.append(key)
            self.variants[kind] = self._body(key, inputs, passed, conditional)
            self.stack.pop()
        return self.variants[kind]

    def _body(self, key: Key, inputs: Sequence[Value | None], passed: Mapping[str, Any], conditional: bool) -> Variant:
        original = self.originals[key]
        self.copied += len(original.node)
        if self.copied > MAX_NODES:
            raise ExportError(
                f"export: the functions of the model together would have more than {MAX_NODES} nodes; export writes a "
                "separate copy of a function for each float type with which it is called"
            )
        function = onnx.FunctionProto()
        function.CopyFrom(original)
        what = f"function {key[1]!r}"
        scope = Scope(function, ":".join(key), self.opset(function.opset_import, what), None, conditional, passed)
        formal = []
        for i, name in enumerate(function.input):
            value = inputs[i] if i < len(inputs) else None
            if value is None:
                formal.append(scope.make(name, 0, silent=True))
            else:
                free = True if value.elem in FLOATS and not value.sequence else None
                formal.append(scope.make(name, value.elem, silent=value.silent, sequence=value.sequence, free=free))
        self.walk(scope)
        makes = []
        for i, name in enumerate(function.output):
            found = scope.find(name) or scope.make(name, 0)
            scope.read(function.output, i, found, found.elem if found.elem in FLOATS else 0)
            makes.append((Made(found.elem, found.sequence), found.silent))
        scope.finish(self.taken)
        if not scope.opset and any(is_node(node) for node in function.node):
            function.opset_import.add(version=self.opset(self.model.opset_import, "the model"))
        reads = tuple(value.made if value.free and value.wanted else 0 for value in formal)
        return Variant(self._filed(key, function), reads, tuple(makes))

    def _filed(self, key: Key, function: Any) -> str:
        """Store the body of a function, and return the function's name.

        If an equal body is already stored, return the name of that body's function. The first body keeps the name of
        the function, and each different body gets a new name.
        """
        bodies = self.bodies.setdefault(key, {})
        contents = function.SerializeToString(deterministic=True)
        if contents not in bodies:
            if bodies:
                function.name = fresh(function.name, self.titles[key[0]])
            bodies[contents] = function
        return str(bodies[contents].name)

    def write(self) -> None:
        """Put the bodies into the model; functions without a call stay unchanged."""
        for key, bodies in self.bodies.items():
            first, *others = bodies.values()
            self.originals[key].CopyFrom(first)
            self.model.functions.extend(others)
