"""Read the signature of a function that a model defines, once for all calls of the function."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, NamedTuple

from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.node_rewriter import path_of
from minorm.onnx.graph.tensors import text


class Signature(NamedTuple):
    """Holds the signature of a function: its names, attributes and opsets.

    formals     the names of the function's inputs; an input that a call leaves out has no value
    defaults    attributes that a call may leave out, as AttributeProtos
    path        the name of the function's body, from `path_of`
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    formals: frozenset[str]
    attributes: frozenset[str]
    defaults: dict[str, Any]
    opsets: Mapping[str, int]
    path: str

    @classmethod
    def of(cls, function: Any) -> Signature:
        """Read the signature of this FunctionProto."""
        inputs = tuple(function.input)
        defaults = {attribute.name: attribute for attribute in function.attribute_proto}
        attributes = frozenset((*function.attribute, *defaults))
        opsets = opset_table(function.opset_import, f"function {function.name!r}")
        return cls(
            function.name, inputs, tuple(function.output), frozenset(inputs), attributes, defaults, opsets,
            path_of(function),
        )  # fmt: skip

    def given(self, label: str, inputs: int, outputs: int, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the attributes of the call `label`, with defaults; raise LoadError if names or counts do not fit."""
        if inputs > len(self.inputs) or outputs > len(self.outputs):
            raise LoadError(
                f"load: {label!r} calls function {self.name!r} with {inputs} inputs and {outputs} outputs; the "
                f"function has {len(self.inputs)} inputs and {len(self.outputs)} outputs"
            )
        if not attributes.keys() <= self.attributes:
            raise LoadError(
                f"load: function {self.name!r} has no attribute {min(attributes.keys() - self.attributes)!r}"
            )
        return ChainMap(dict(attributes), self.defaults) if self.defaults else attributes


def domain_of(name: str) -> str:
    """Return the domain; the domain of ONNX is "", even if the file writes "ai.onnx"."""
    return "" if name == "ai.onnx" else text(name, "the name of a domain")


def opset_table(imports: Any, what: str) -> dict[str, int]:
    """Map each domain to its opset; raise LoadError if a domain appears twice with different opsets."""
    table: dict[str, int] = {}
    for entry in imports:
        domain = domain_of(entry.domain)
        if table.setdefault(domain, entry.version) != entry.version:
            raise LoadError(f"load: {what} imports two opsets of domain {domain!r}: {table[domain]}, {entry.version}")
    return table
