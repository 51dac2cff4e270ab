"""Give a reading rule a node of the file, with the attributes, the default values and the constant inputs.

    @reads("Elu", since=1)
    def read_elu(node):
        alpha = node["alpha"]              # as the file says, or the default of this version of the operator
        return lambda x: F.elu(x, alpha)   # called with the node's inputs, each time the model runs

README.md, "Adding a reader", explains the rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import onnx
from onnx import AttributeProto

from minorm.onnx.graph import tensors
from minorm.onnx.graph.body import Body
from minorm.onnx.graph.decimals import shortest
from minorm.onnx.graph.errors import LoadError
from minorm.onnx.graph.tensors import MAX_RANK, Budget
from minorm.support.safe_names import printable

_NOTHING: Mapping[str, Any] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return _NOTHING  # a dict for each node would be most of its memory


@dataclass(eq=False, slots=True)
class Node:
    """An operation of the file; absent optional inputs and outputs are ""."""

    operator: str
    domain: str
    name: str
    opset: int  # the opset of the operator's domain
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]  # the attributes that the file gives
    since: int = 0  # the version of the operator that the opset means
    constants: Mapping[str, Any] = field(default_factory=_nothing)  # the arrays known when the file is loaded, by name
    types: Mapping[str, Any] = field(default_factory=_nothing)  # the element types known when it is loaded, by name
    used: frozenset[str] = frozenset()  # the values that another node or an output reads
    budget: Budget = field(default_factory=Budget)
    conditions: tuple[tuple[str, bool], ...] = ()  # (value, bool): the node runs only if each value is this bool
    module: str = ""  # the path of the module that it comes from, if the file records it: paths.py
    body: Body | None = None  # the graph that a Loop or Scan repeats
    is_initializer: bool = False  # True for a Constant that was an initializer, called `name`, of a branch or a body
    enters: bool = False  # True if it begins that graph, False if it ends it
    statistics: tuple[str, ...] = ()  # the buffers of its running mean and variance, if it owns them
    described: Any = None  # how it keeps its running statistics (node_layers.Statistics), if minorm's metadata says it
    updates: bool = True  # True if it changes these buffers in training; False if other nodes compute the new values

    # Questions of rules

    def __getitem__(self, attribute: str) -> Any:
        """Return an attribute as a Python value; if the file does not give it, return the default or None.

        A float is returned as the shortest decimal with the same float32: 0.1, and not 0.10000000149011612.
        """
        if attribute in self.attributes:
            return self.attributes[attribute]
        defaults = attribute_defaults(self.operator, self.since)
        if attribute not in defaults:
            raise KeyError(f"{self.operator} {self.since} has no attribute {attribute}; the rule is for other versions")
        return defaults[attribute]

    def get(self, attribute: str, default: Any = None) -> Any:
        """Return node[attribute], or `default` if this version of the operator has no such attribute."""
        known = attribute in self.attributes or attribute in attribute_defaults(self.operator, self.since)
        return self[attribute] if known else default

    def has(self, place: int) -> bool:
        """Return whether input `place` is present."""
        return place < len(self.inputs) and self.inputs[place] != ""

    def wants(self, place: int) -> bool:
        """Return whether another node reads output `place`, or the graph returns this output."""
        return place < len(self.outputs) and self.outputs[place] in self.used

    def constant(self, place: int) -> Any:
        """Return the array of input `place` if it is known at load time, else None."""
        return self.constants.get(self.inputs[place]) if self.has(place) else None

    def type(self, place: int) -> Any:
        """Return the dtype of input `place` if it is known at load time, else None."""
        return self.types.get(self.inputs[place]) if self.has(place) else None

    def fits(self, shape: Sequence[int], dtype: Any) -> None:
        """Raise an error if an array of this shape may not be allocated.

        A rule calls this method if a small file can ask for much memory.
        """
        self.budget.fits(shape, dtype)

    def check_work(self, *steps: int) -> None:
        """Raise an error if the product of `steps`, the number of multiplications, is above the limit of a run."""
        self.budget.check_work(math.prod(steps))

    @property
    def scope(self) -> str:
        """The path of the module from which minorm exported the node."""
        return self.name.rpartition("/")[0]

    def __str__(self) -> str:
        label = printable(f"{self.domain}.{self.operator}" if self.domain else self.operator)
        place = (
            f"node {self.name!r}" if self.name else f"the node that computes {next(filter(None, self.outputs), '')!r}"
        )
        since = f"since version {self.since}, " if self.since else ""
        return f"{label} ({since}opset {self.opset}), {place}"


def integers(given: Any, name: str, most: int = 2 * MAX_RANK) -> list[int]:
    """Return the whole numbers (axes, lengths, counts) in an input as a list.

    The input may hold floats, as in Split 1.
    """
    if given.ndim > 1:
        raise ValueError(f"{name} has shape {given.shape}; expected a vector")
    if given.numel() > most:
        raise ValueError(f"{name} has {given.numel()} elements; expected at most {most}")
    numbers = given.array.reshape(-1).tolist()
    if not all(n == n // 1 for n in numbers):
        raise ValueError(f"{name} is {numbers}; expected whole numbers")
    return [int(n) for n in numbers]


@functools.cache
def attribute_defaults(operator: str, since: int) -> dict[str, Any]:
    """Map each attribute of this version of an operator to its default, or to None if it has no default."""
    schema = onnx.defs.get_schema(operator, since, "")
    return {
        name: attribute_value(a.default_value, f"the default of {name}", None, Budget())
        for name, a in schema.attributes.items()
    }


def attribute_values(given: Mapping[str, Any], what: str, folder: str | None, budget: Budget) -> dict[str, Any]:
    """Map the names of AttributeProtos to Python values; tensors become arrays, and subgraphs stay unchanged."""
    return {
        name: attribute_value(attribute, f"attribute {name!r} of {what}", folder, budget)
        for name, attribute in given.items()
    }


_FIELDS = {
    AttributeProto.FLOAT: "f",
    AttributeProto.INT: "i",
    AttributeProto.STRING: "s",
    AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g",
    AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats",
    AttributeProto.INTS: "ints",
    AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors",
    AttributeProto.GRAPHS: "graphs",
}


def attribute_value(attribute: Any, what: str, folder: str | None, budget: Budget) -> Any:
    """Convert an AttributeProto to a Python value."""
    kind = attribute.type
    if kind == AttributeProto.UNDEFINED:  # ir_version 1 and 2 had no types: find the field that is set
        kind = next((k for k, name in _FIELDS.items() if _is_set(attribute, name)), None)
        if kind is None:
            return None
    if kind not in _FIELDS:
        raise LoadError(f"load: {what} is {AttributeProto.AttributeType.Name(kind)}, which minorm does not read")
    value = getattr(attribute, _FIELDS[kind])
    if kind == AttributeProto.FLOAT:
        return shortest(value)
    if kind == AttributeProto.FLOATS:
        return [shortest(number) for number in value]
    if kind == AttributeProto.STRING:
        return _text(value, what)
    if kind == AttributeProto.STRINGS:
        return [_text(s, what) for s in value]
    if kind == AttributeProto.TENSOR:
        return tensors.read(value, what, folder, budget)
    if kind == AttributeProto.TENSORS:
        return [tensors.read(t, what, folder, budget) for t in value]
    return list(value) if kind in (AttributeProto.INTS, AttributeProto.GRAPHS) else value


def _is_set(attribute: Any, name: str) -> bool:
    repeated = name.endswith("s") and name != "s"
    return bool(len(getattr(attribute, name))) if repeated else attribute.HasField(name)


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise LoadError(f"load: {what} is no UTF-8 text: {value[:40]!r}") from None
