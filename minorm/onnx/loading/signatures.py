"""What a call needs to know of a function that a model brings along, found once however often it is called."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, NamedTuple

from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.node_rewriter import path_of
from minorm.onnx.graph.tensors import text


class Signature(NamedTuple):
    """The head of a function.

    formals     the names of its inputs; those that a call leaves out are absent
    defaults    attributes that a call may leave out, as AttributeProtos
    path        what its body is called among the paths of graphs
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
        """The head of this FunctionProto."""
        inputs = tuple(function.input)
        defaults = {attribute.name: attribute for attribute in function.attribute_proto}
        attributes = frozenset((*function.attribute, *defaults))
        opsets = opset_table(function.opset_import, f"function {function.name!r}")
        return cls(
            function.name, inputs, tuple(function.output), frozenset(inputs), attributes, defaults, opsets,
            path_of(function),
        )  # fmt: skip

    def given(self, label: str, inputs: int, outputs: int, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
        """The attributes in a call, `label`, with so many inputs and outputs; LoadError where they do not fit."""
        if inputs > len(self.inputs) or outputs > len(self.outputs):
            raise LoadError(
                f"load: {label!r} calls function {self.name!r} with {inputs} inputs and {outputs} outputs; it has "
                f"{len(self.inputs)} and {len(self.outputs)}"
            )
        if not attributes.keys() <= self.attributes:
            raise LoadError(
                f"load: function {self.name!r} has no attribute {min(attributes.keys() - self.attributes)!r}"
            )
        return ChainMap(dict(attributes), self.defaults) if self.defaults else attributes


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
