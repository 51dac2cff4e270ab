"""Comparisons and Where. Equal compares floats from opset 11 on; `or equal` has operators of its own from 12 on."""

from __future__ import annotations

from minorm import dtypes
from minorm.onnx.errors import Decline
from minorm.onnx.graph import Graph, Value
from minorm.onnx.registry import lowers, writes
from minorm.ops import elementwise as ops

_OPERATORS = {
    "equal": "Equal",
    "less": "Less",
    "greater": "Greater",
    "less_equal": "LessOrEqual",
    "greater_equal": "GreaterOrEqual",
}


@lowers(ops.Compare)
def write_compare(g: Graph, a: Value, b: Value, relation: str) -> Value:
    if relation == "not_equal":
        return g.add("Not", compare(g, a, b, "equal"))
    return compare(g, a, b, relation)


def compare(g: Graph, a: Value, b: Value, relation: str) -> Value:
    """Where `a relation b` holds; never where either is NaN."""
    operator = _OPERATORS[relation]
    if relation.endswith("_equal") and not g.has(operator):
        either = compare(g, a, b, relation.removesuffix("_equal"))
        return g.add("Or", either, compare(g, a, b, "equal"))
    if relation == "equal" and not g.has("Equal", 11) and dtypes.is_float(a.dtype):
        apart = g.add("Or", g.add("Less", a, b), g.add("Greater", a, b))
        return g.add("And", g.add("Not", apart), g.add("And", _number(g, a), _number(g, b)))
    if relation in ("less", "greater") and not g.has(operator, 9) and not dtypes.is_float(a.dtype):
        a, b = g.cast(a, dtypes.float64), g.cast(b, dtypes.float64)  # version 7 compares floats only
    return g.add(operator, a, b)


def _number(g: Graph, x: Value) -> Value:
    """Where x is not NaN, before IsNaN existed: every number is above -1 or below 1."""
    return g.add("Or", g.add("Greater", x, g.scalar(-1, x)), g.add("Less", x, g.scalar(1, x)))


@writes(ops.Where, "Where", since=(9, 16))
def write_where(g: Graph, condition: Value, a: Value, b: Value) -> Value:
    return g.add("Where", condition, a, b, dtype=a.dtype)


@lowers(ops.Where)
def lower_where(g: Graph, condition: Value, a: Value, b: Value) -> Value:
    raise Decline("Where exists from opset 9 on, and a product with 0 and 1 would turn infinities into NaN")
