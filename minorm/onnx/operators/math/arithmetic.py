"""Read and write Add, Sub, Mul, Div, Pow, Sum, Mean, Max, Min, Clip, Cast and Identity.

From opset 7 on, the binary operators broadcast as NumPy does; before 7 (import only), an `axis` attribute aligns the
shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import add, mul, sub
from typing import Any

import numpy as np
from onnx import TensorProto

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.errors import LoadError, RuleNotApplicable, Unsupported
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.node_rewriter import FLOATS, NodeRewriter
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, Rule, converts, reads, writes
from minorm.onnx.graph.sizes import broadcast
from minorm.onnx.graph.storage import narrow
from minorm.onnx.graph.tensors import element_type
from minorm.onnx.operators.composing import one_number, to_input
from minorm.onnx.operators.shape.shape import expand
from minorm.ops import elementwise as ops
from minorm.ops.stepwise import Quotient
from minorm.tensor import combining
from minorm.tensor.tensor import Tensor

# Add, Sub, Mul, Div. 13: bfloat16. 14: 8- and 16-bit integers.


def _binary(operator: str) -> Rule:
    def write(g: Graph, a: Value, b: Value) -> Value:
        return g.add(operator, a, b)

    return write


_OPERATORS = {ops.Add: "Add", ops.Sub: "Sub", ops.Deviation: "Sub", ops.Mul: "Mul", ops.Div: "Div"}
for _function, _operator in _OPERATORS.items():
    writes(_function, _operator, since=7)(_binary(_operator))


Binary = Callable[[Tensor, Tensor], Tensor]


def paired(node: Node, function: Binary) -> Binary:
    """Apply `function` to two operands.

    Before version 7, the attributes `broadcast` and `axis` say how the operands broadcast. From 7 on, they broadcast as
    in NumPy.
    """

    def apply(a: Tensor, b: Tensor) -> Tensor:
        if a.shape != b.shape:
            node.fits(np.broadcast_shapes(a.shape, b.shape), a.dtype)
        return function(a, b)

    return apply if node.since >= 7 else _by_attributes(node, apply)


def _by_attributes(node: Node, apply: Binary) -> Binary:
    stretched = bool(node["broadcast"])
    axis = node["axis"] if stretched else None

    def fitted(a: Tensor, b: Tensor) -> Tensor:
        if not stretched and a.shape != b.shape:
            raise ValueError(f"shapes {a.shape} and {b.shape} differ; expected equal shapes, because broadcast=0")
        if axis is not None and b.ndim:
            start = axis + a.ndim if axis < 0 else axis
            if not 0 <= start <= a.ndim - b.ndim:
                raise ValueError(f"axis is {axis}; from this axis on, {b.shape} does not fit into {a.shape}")
            b = b.reshape(*b.shape, *(1,) * (a.ndim - start - b.ndim))
        return apply(a, b)

    return fitted


@reads("Add", since=1)
def read_add(node: Node) -> Binary:
    return paired(node, add)


@reads("Sub", since=1)
def read_sub(node: Node) -> Binary:
    return paired(node, sub)


@reads("Mul", since=1)
def read_mul(node: Node) -> Binary:
    return paired(node, mul)


@reads("Div", since=1)
def read_div(node: Node) -> Binary:
    def divided(a: Tensor, b: Tensor) -> Tensor:
        if dtypes.is_float(a.dtype):
            return a / b
        node.fits((2, *np.broadcast_shapes(a.shape, b.shape)), a.dtype)  # the quotient and the remainder
        return Quotient.apply(a, b)

    return paired(node, divided)


@writes(Quotient, "Div", since=7)
def write_quotient(g: Graph, a: Value, b: Value) -> Value:
    return g.add("Div", a, b)


# Pow. 12: the exponent may have another type; the result has the base's.


def power(a: Tensor, b: Tensor) -> Tensor:
    """Compute a ** b in the type of a."""
    if dtypes.is_float(a.dtype):
        return a ** b.to(a.dtype)
    if dtypes.is_float(b.dtype) or (b.array < 0).any():
        return (a.double() ** b.double()).to(a.dtype)
    return (a**b).to(a.dtype)


STEPS = 400  # a power with its gradient takes as long as this many multiplications


@reads("Pow", since=1)
def read_pow(node: Node) -> Binary:
    def raised(a: Tensor, b: Tensor) -> Tensor:
        shape = np.broadcast_shapes(a.shape, b.shape)
        node.check_work(STEPS, *shape)
        if not dtypes.is_float(a.dtype):
            node.fits((2, *shape), dtypes.float64)  # it computes in floats
        return power(a, b)

    return paired(node, raised)


@writes(ops.Pow, "Pow", since=7)  # 12: integers
def write_pow(g: Graph, a: Value, b: Value) -> Value:
    return g.add("Pow", a, b)


# Max, Min. 8: they broadcast. 12: integers.


def extreme(g: Graph, operator: str, a: Value, b: Value) -> Value:
    """Write the larger ("Max") or the smaller ("Min") number of each pair of elements."""
    if not g.has(operator, 8) and a.shape != b.shape:
        shape = broadcast(a.known_shape, b.known_shape)
        a, b = expand(g, a, shape), expand(g, b, shape)
    return g.add(operator, a, b)


@writes(ops.Maximum, "Max", since=6)
def write_maximum(g: Graph, a: Value, b: Value) -> Value:
    return extreme(g, "Max", a, b)


@writes(ops.Minimum, "Min", since=6)
def write_minimum(g: Graph, a: Value, b: Value) -> Value:
    return extreme(g, "Min", a, b)


# Any number of operands. 8: they broadcast.


def several(node: Node, function: Binary) -> Callable[..., Tensor]:
    """Apply `function` to the first two operands, then to the result and the third operand, and so on."""

    def apply(*operands: Tensor) -> Tensor:
        shapes = [x.shape for x in operands]
        if node.since < 8 and len(set(shapes)) > 1:
            raise ValueError(f"the operands have shapes {', '.join(map(str, shapes))}; expected equal shapes")
        node.fits(np.broadcast_shapes(*shapes), operands[0].dtype)
        return functools.reduce(function, operands)

    return apply


@reads("Max", since=1)
def read_max(node: Node) -> Callable[..., Tensor]:
    return several(node, combining.maximum)


@reads("Min", since=1)
def read_min(node: Node) -> Callable[..., Tensor]:
    return several(node, combining.minimum)


@reads("Sum", since=1)
def read_sum(node: Node) -> Callable[..., Tensor]:
    return several(node, lambda a, b: a + b)


@reads("Mean", since=1)
def read_mean(node: Node) -> Callable[..., Tensor]:
    total = several(node, lambda a, b: a + b)

    def mean(*operands: Tensor) -> Tensor:
        wide = [x.to(dtypes.compute_type(x.dtype)) for x in operands]
        return (total(*wide) / len(operands)).to(operands[0].dtype)

    return mean


# Clip. 6: bounds are attributes. 11: they are inputs. 12: integers.


@writes(ops.Clip, "Clip", since=6)
def write_clip_6(g: Graph, x: Value, low: float | None, high: float | None) -> Value:
    if not dtypes.is_float(x.dtype):
        return _clip_integers(g, x, low, high)
    return g.add("Clip", x, min=None if low is None else float(low), max=None if high is None else float(high))


@writes(ops.Clip, "Clip", since=11)
def write_clip_11(g: Graph, x: Value, low: float | None, high: float | None) -> Value:
    if not dtypes.is_float(x.dtype) and not g.has("Clip", 12):
        return _clip_integers(g, x, low, high)
    return g.add("Clip", x, *[None if bound is None else g.scalar(bound, x) for bound in (low, high)])


def _clip_integers(g: Graph, x: Value, low: float | None, high: float | None) -> Value:
    """Write nodes for a Clip of integers before opset 12: Where replaces each number beyond a bound by the bound."""
    if not g.has("Where", 9):
        raise RuleNotApplicable(
            "Clip takes integers from opset 12 on, and Where, which could replace it, exists from 9 on"
        )
    for bound, is_least in ((low, True), (high, False)):
        if bound is not None:
            limit = g.scalar(bound, x)
            beyond = g.add("Less", *((x, limit) if is_least else (limit, x)))
            x = g.add("Where", beyond, limit, x, dtype=x.dtype, shape=x.shape)
    return x


def clip(g: Graph, x: Value, low: float | None, high: float | None) -> Value:
    """Write min(max(x, low), high) in the form of the opset."""
    return (write_clip_11 if g.has("Clip", 11) else write_clip_6)(g, x, low, high)


@reads("Clip", since=1)
def read_clip_1(node: Node) -> Callable[[Tensor], Tensor]:
    given = node.attributes.get("min"), node.attributes.get("max")  # version 6 has defaults only for floats
    _check_bounds(node.type(0), *given)
    return lambda x: clipped(x, *((node["min"], node["max"]) if dtypes.is_float(x.dtype) else given))


@reads("Clip", since=11, fixed=(1, 2))
def read_clip_11(node: Node) -> Callable[..., Tensor]:
    known = [node.constant(place) for place in (1, 2)]
    _check_bounds(node.type(0), *(b.item() if b is not None and b.size == 1 else None for b in known))

    def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
        return clipped(x, *[None if bound is None else bound.item() for bound in (low, high)])

    return clip


def clipped(x: Tensor, low: float | None, high: float | None) -> Tensor:
    """Compute min(max(x, low), high)."""
    _check_bounds(x.dtype, low, high)
    if low == 0 and high == 6 and dtypes.is_float(x.dtype):
        return F.relu6(x)
    return x if low is None and high is None else ops.Clip.apply(x, low=low, high=high)


def _check_bounds(dtype: Any, low: float | None, high: float | None) -> None:
    """Raise ValueError for a bound outside x's integer type: in ONNX, bounds have x's type, so the file is damaged."""
    if dtype is None or dtype.kind not in "iu":
        return
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    for name, bound in (("min", low), ("max", high)):
        if bound is not None and not least <= bound <= most:
            raise ValueError(f"{name} is {bound}; expected {least} to {most}, because x is {dtype}")


# Cast, Identity


@writes(ops.Cast, "Cast", since=6)  # 13: bfloat16
def write_cast(g: Graph, x: Value, dtype: Any) -> Value:
    return g.cast(x, dtype)


@reads("Cast", since=1, fixed=lambda node: () if _to_float(node) else EVERY)
def read_cast(node: Node) -> Callable[[Tensor], Tensor]:
    dtype, form = target_type(node), (bool(node.get("saturate", 1)), node.get("round_mode", "up"))
    return lambda x: converted(x, dtype, *form)


def converted(x: Tensor, dtype: Any, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """Convert x to another type; either type may be narrow."""
    if dtype in narrow.BITS:
        return narrow.tensor(narrow.cast(x.array, dtype, saturate, round_mode))
    return Tensor(narrow.widened(x.array, dtype)) if x.dtype in narrow.BITS else x.to(dtype)


def target_type(node: Node) -> Any:
    """Return the type that the attribute `to` gives: as a number, or in version 1 as a name."""
    code = node["to"]
    if isinstance(code, str):
        code = dict(TensorProto.DataType.items()).get(code, TensorProto.UNDEFINED)
    try:
        return element_type(code, f"to={node['to']!r}")
    except LoadError as error:
        raise Unsupported(str(error).removeprefix("load: ")) from error


def _to_float(node: Node) -> bool:
    try:
        return bool(dtypes.is_float(target_type(node)))
    except Unsupported:
        return False


@reads("CastLike", since=15, fixed=(1,))
def read_cast_like(node: Node) -> Binary:
    form = bool(node.get("saturate", 1)), node.get("round_mode", "up")
    return lambda x, like: converted(x, like.dtype, *form)


@writes(ops.Copy, "Identity", since=1)
def write_copy(g: Graph, x: Value, order: str) -> Value:
    return g.add("Identity", x)  # a graph does not record the memory layout


@reads("Identity", since=1)
def read_identity(node: Node) -> Callable[[Tensor], Tensor]:
    return lambda x: x


# To other versions


@converts("Clip", 6, 11)
def clip_11(d: NodeRewriter) -> None:
    for place, name in ((1, "min"), (2, "max")):
        if d.has(name):
            to_input(d, name, place, d.elem(d.input(0)))


@converts("Clip", 11, 6)
def clip_6(d: NodeRewriter) -> None:
    if any(d.input(place) and d.array(place) is None for place in (1, 2)):
        _bounded(d)
        return
    for place, name in ((2, "max"), (1, "min")):
        if d.input(place):
            d.set(name, float(one_number(d.absorb(place, name), name)))


@converts("Clip", 12, 11)
def clip_integers(d: NodeRewriter) -> None:
    if d.elem(d.input(0)) not in FLOATS:
        _bounded(d)


def _bounded(d: NodeRewriter) -> None:
    """Write a Max and then a Min, which give the same result as Clip."""
    y = d.input(0)
    for place, operator in ((1, "Max"), (2, "Min")):
        y = d.emit(operator, y, d.input(place)) if d.input(place) else y
    d.replace("Identity", y)
    d.node = None


@converts("Cast", 1, 6)
def cast_6(d: NodeRewriter) -> None:
    name = str(d.get("to")).upper()
    if name not in TensorProto.DataType.keys():  # noqa: SIM118  an enum of protobuf
        raise RuleNotApplicable(f"to is {name!r}, which is not a type")
    d.set("to", TensorProto.DataType.Value(name))


@converts("CastLike", 15, 0)
def cast_like(d: NodeRewriter) -> None:
    d.replace("Cast", d.input(0), elem=d.elem(d.input(1)))
    d.node = None


@converts("Mod", 28, 13)
def mod_13(d: NodeRewriter) -> None:
    if not d.get("fmod") and d.elem(d.input(0)) in FLOATS:
        raise RuleNotApplicable("before opset 28 Mod of floats requires fmod=1")
