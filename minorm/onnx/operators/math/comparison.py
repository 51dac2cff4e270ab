"""Read and write comparisons, And, Or, Xor and Where; write searchsorted and isin, which count comparisons.

Equal compares floats from opset 11 on; LessOrEqual and GreaterOrEqual exist from 12 on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, Rule, lowers, reads, writes
from minorm.onnx.graph.sizes import product
from minorm.onnx.operators.math.arithmetic import Binary, paired
from minorm.onnx.operators.math.reduction import reduce
from minorm.onnx.operators.shape.shape import reshape, unsqueeze
from minorm.ops import elementwise as ops
from minorm.ops.stepwise import Bitwise, IsIn, SearchSorted
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor

_OPERATORS = {
    "equal": "Equal",
    "less": "Less",
    "greater": "Greater",
    "less_equal": "LessOrEqual",
    "greater_equal": "GreaterOrEqual",
}
_LOGIC = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}


@lowers(ops.Compare)
def write_compare(g: Graph, a: Value, b: Value, relation: str) -> Value:
    if relation == "not_equal":
        return g.add("Not", compare(g, a, b, "equal"))
    if relation in _LOGIC:
        return g.add(_LOGIC[relation], a, b)
    return compare(g, a, b, relation)


@lowers(Bitwise)
def write_bitwise(g: Graph, a: Value, b: Value, relation: str) -> Value:
    if a.dtype != dtypes.bool:
        operator = f"Bitwise{relation.removeprefix('bitwise_').title()}"
        if not g.has(operator):
            raise RuleNotApplicable(f"{operator} exists from opset 18 on; before, there are only operators for bools")
        return g.add(operator, a, b)
    return g.add(_LOGIC[relation.replace("bitwise", "logical")], a, b)


def compare(g: Graph, a: Value, b: Value, relation: str) -> Value:
    """Write a mask that is True if `a relation b` holds; no relation holds for NaN."""
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
    """Write a mask that is False for NaN, without IsNaN: only a number is above -1 or below 1."""
    return g.add("Or", g.add("Greater", x, g.scalar(-1, x)), g.add("Less", x, g.scalar(1, x)))


@writes(ops.Where, "Where", since=9)
def write_where(g: Graph, condition: Value, a: Value, b: Value) -> Value:
    return g.add("Where", condition, a, b, dtype=a.dtype)


@lowers(ops.Where)
def lower_where(g: Graph, condition: Value, a: Value, b: Value) -> Value:
    raise RuleNotApplicable("Where exists from opset 9 on, and a product with 0 and 1 would turn infinities into NaN")


@reads("Where", since=9, fixed=(0,))
def read_where(node: Node) -> Callable[..., Tensor]:
    def choose(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
        node.fits(np.broadcast_shapes(condition.shape, a.shape, b.shape), a.dtype)
        return where(condition, a, b)

    return choose


def _reader(relation: str) -> Rule:
    def read(node: Node) -> Binary:
        return paired(node, lambda a, b: ops.Compare.apply(a, b, relation=relation))

    return read


for _relation, _operator in (_OPERATORS | _LOGIC).items():
    reads(_operator, fixed=EVERY)(_reader(_relation))


@lowers(SearchSorted)
def write_searchsorted(g: Graph, order: Value, x: Value, right: bool, dtype: np.dtype[np.generic]) -> Value:
    """Write the number of elements of the sequence that do not come after x; if x is NaN, all elements count."""
    sequence, x = _wide(g, order if order.ndim == 1 else unsqueeze(g, order, [-2 % (order.ndim + 1)])), _wide(g, x)
    behind = compare(g, sequence, unsqueeze(g, x, [x.ndim]), "greater" if right else "greater_equal")
    return g.cast(_counted(g, g.add("Not", behind)), dtype)


@lowers(IsIn)
def write_isin(g: Graph, x: Value, others: Value) -> Value:
    others, x = _wide(g, reshape(g, others, (product(others.known_shape),))), _wide(g, x)
    count = _counted(g, compare(g, unsqueeze(g, x, [x.ndim]), others, "equal"))
    return compare(g, count, g.scalar(0, count), "greater")


def _wide(g: Graph, x: Value) -> Value:
    return g.cast(x, dtypes.compute_type(x.dtype))


def _counted(g: Graph, condition: Value) -> Value:
    """Write the count of True values along the last axis."""
    return reduce(g, "ReduceSum", g.cast(condition, dtypes.int64), [condition.ndim - 1], keepdims=False)
