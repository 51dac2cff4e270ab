"""Convert to and from ONNX's older broadcasting.

From version 7 on, operators broadcast as NumPy does; Sum, Max, Min and Mean do so from version 8 on. In older versions,
operators like Add have two attributes: `broadcast`, and `axis`, which is the axis of A at which B's shape begins. PRelu
has one slope per channel. Operators like Sum need operands of the same shape.
"""

from __future__ import annotations

from collections.abc import Callable

from onnx import TensorProto

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import FLOATS, Kind, NodeRewriter
from minorm.onnx.graph.registry import converts
from minorm.onnx.operators.composing import one_number, place_of, unsqueeze


def _numpy(d: NodeRewriter) -> None:
    axis, stretches = d.take("axis"), d.take("broadcast", 0)
    d.drop("consumed_inputs")
    if not stretches or axis is None:
        return
    rank, own = d.rank(d.input(0)), d.rank(d.input(1))
    behind = rank - place_of(axis, rank) - own
    if own and behind > 0:
        d.feed(1, unsqueeze(d, d.input(1), range(own, own + behind), own + behind))


for _operator in ("Add", "Sub", "Mul", "Div"):
    converts(_operator, 6, 7)(_numpy)
for _operator in ("And", "Or", "Xor", "Equal", "Greater", "Less", "Pow"):
    converts(_operator, 1, 7)(_numpy)


@converts("Gemm", 6, 7)
def gemm_7(d: NodeRewriter) -> None:
    d.drop("broadcast")


@converts("Gemm", 11, 9)
def gemm_9(d: NodeRewriter) -> None:
    if not d.input(2):
        d.feed(2, d.constant([0], d.elem(d.input(0)), "C"))


@converts("PRelu", 6, 7)
def prelu_7(d: NodeRewriter) -> None:
    slope = d.shape(d.input(1))
    rank = d.rank(d.input(0))
    if len(slope) == 1 and slope[0] != 1 and rank > 2:
        d.feed(1, unsqueeze(d, d.input(1), range(1, rank - 1), rank - 1))


def _one_shape(d: NodeRewriter) -> bool:
    shapes = {d.kind(name).shape for name in d.node.input}
    return len(d.node.input) == 1 or (len(shapes) == 1 and all(s is not None and None not in s for s in shapes))


def _pairwise(d: NodeRewriter, combine: Callable[[str, str], str]) -> str:
    first, *others = d.node.input
    for name in others:
        first = combine(first, name)
    return first


@converts("Sum", 8, 6)
def sum_6(d: NodeRewriter) -> None:
    if not _one_shape(d):
        *_, last = d.node.input
        d.node.input.pop()
        d.replace("Add", _pairwise(d, lambda a, b: d.emit("Add", a, b)), last)
        d.node = None


@converts("Mean", 8, 6)
def mean_6(d: NodeRewriter) -> None:
    if not _one_shape(d):
        total = _pairwise(d, lambda a, b: d.emit("Add", a, b))
        d.replace("Div", total, d.scalar(len(d.node.input), d.input(0)))
        d.node = None


def _bound(d: NodeRewriter) -> None:
    """Write Max or Min of a value and numbers as Clip."""
    if _one_shape(d):
        return
    fixed = [name for name in d.node.input if d.values.array(name) is not None and d.values.array(name).size == 1]
    free = [name for name in d.node.input if name not in fixed]
    if len(free) != 1 or d.elem(free[0]) not in FLOATS:
        raise RuleNotApplicable(
            "before opset 8 all operands must have one shape, and here the shapes differ or are not known"
        )
    operator, y = d.node.op_type, free[0]
    for name in fixed:
        number = d.scalar(one_number(d.values.array(name), "the bound"), y)
        y = d.emit("Clip", y, *((number,) if operator == "Max" else ("", number)))
    d.replace("Identity", y)
    d.node = None


converts("Max", 8, 6)(_bound)
converts("Min", 8, 6)(_bound)


def _integers(d: NodeRewriter) -> None:
    """Write Max or Min of integers with Where, because only version 12 added integers."""
    elem = d.elem(d.input(0))
    if elem in FLOATS or len(d.node.input) == 1:
        return
    order = "Less" if d.node.op_type == "Max" else "Greater"
    chosen = _pairwise(d, lambda a, b: d.emit("Where", d.emit(order, a, b), b, a, kind=Kind(elem, d.kind(a).shape)))
    d.replace("Identity", chosen)
    d.node = None


converts("Max", 12, 8)(_integers)
converts("Min", 12, 8)(_integers)


@converts("Pow", 12, 7)
def pow_7(d: NodeRewriter) -> None:
    """Cast the exponent to the type of the base, because before 12, these two must have the same type."""
    base, exponent = (d.kind(d.input(place)).elem for place in (0, 1))
    if base in FLOATS and exponent and exponent != base:
        d.feed(1, d.emit("Cast", d.input(1), elem=base))
    elif base not in (0, *FLOATS):
        raise RuleNotApplicable("before opset 12 the base is a float")


@converts("Equal", 11, 7)
def equal_7(d: NodeRewriter) -> None:
    """Write Equal of floats by other operators, because only version 11 added floats.

    Two numbers are equal if neither number is less than the other and neither number is NaN.
    """
    if d.kind(d.input(0)).elem not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        return
    a, b = d.input(0), d.input(1)
    differ = d.emit("Or", d.emit("Less", a, b), d.emit("Greater", a, b))
    d.replace("And", d.emit("Not", differ), d.emit("And", numbered(d, a), numbered(d, b)))
    d.node = None


def numbered(d: NodeRewriter, x: str) -> str:
    """Write a mask of the elements of x that are not NaN."""
    zero, one = d.scalar(0, x), d.scalar(1, x)
    return d.emit("Or", d.emit("Less", x, one), d.emit("Greater", x, zero))


def _or_equal(d: NodeRewriter) -> None:
    a, b = d.input(0), d.input(1)
    order, other = ("Greater", "Less") if d.node.op_type == "GreaterOrEqual" else ("Less", "Greater")
    if d.elem(a) not in FLOATS:
        d.replace("Not", d.emit(other, a, b))
    elif d.opset >= 11:
        d.replace("Or", d.emit(order, a, b), d.emit("Equal", a, b))
    else:
        d.replace("And", d.emit("Not", d.emit(other, a, b)), d.emit("And", numbered(d, a), numbered(d, b)))
    d.node = None


converts("GreaterOrEqual", 12, 0)(_or_equal)
converts("LessOrEqual", 12, 0)(_or_equal)
