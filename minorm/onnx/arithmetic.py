"""Add, Sub, Mul, Div, Pow, Max, Min, Clip and functions of one number; Cast and Identity.

Since opset 7 the binary operators broadcast as NumPy does; before it (import only) an `axis` attribute said how.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm import dtypes
from minorm.onnx.errors import Decline
from minorm.onnx.graph import Graph, Value
from minorm.onnx.reading import Node
from minorm.onnx.registry import Rule, reads, writes
from minorm.onnx.shape import expand
from minorm.onnx.sizes import broadcast
from minorm.ops import elementwise as ops
from minorm.tensor import Tensor

# Add, Sub, Mul, Div. 13: bfloat16. 14: 8- and 16-bit integers.


def _binary(operator: str) -> Rule:
    def write(g: Graph, a: Value, b: Value) -> Value:
        return g.add(operator, a, b)

    return write


for _function, _operator in {ops.Add: "Add", ops.Sub: "Sub", ops.Mul: "Mul", ops.Div: "Div"}.items():
    writes(_function, _operator, since=(7, 13, 14))(_binary(_operator))


Binary = Callable[[Tensor, Tensor], Tensor]


def paired(node: Node, function: Binary) -> Binary:
    """`function` of two operands that broadcast as the node's version says: before 7, by `broadcast` and `axis`."""
    legacy = node.since < 7
    stretched = legacy and bool(node["broadcast"])
    axis = node["axis"] if stretched else None

    def apply(a: Tensor, b: Tensor) -> Tensor:
        if legacy and not stretched and a.shape != b.shape:
            raise ValueError(f"shapes {a.shape} and {b.shape} differ; expected equal ones, since broadcast=0")
        if axis is not None and b.ndim:
            start = axis + a.ndim if axis < 0 else axis
            b = b.reshape(*b.shape, *(1,) * (a.ndim - start - b.ndim))
        if a.shape != b.shape:
            node.fits(np.broadcast_shapes(a.shape, b.shape), a.dtype)
        return function(a, b)

    return apply


@reads("Add", since=(1, 6, 7, 13, 14))
def read_add(node: Node) -> Binary:
    return paired(node, lambda a, b: a + b)


@writes(ops.Pow, "Pow", since=(7, 12, 13, 15))  # 12: integers
def write_pow(g: Graph, a: Value, b: Value) -> Value:
    return g.add("Pow", a, b)


# Max, Min. 8: they broadcast. 12: integers.


def extreme(g: Graph, operator: str, a: Value, b: Value) -> Value:
    """The larger ("Max") or smaller ("Min") of each pair."""
    if not g.has(operator, 8) and a.shape != b.shape:
        shape = broadcast(a.known_shape, b.known_shape)
        a, b = expand(g, a, shape), expand(g, b, shape)
    return g.add(operator, a, b)


@writes(ops.Maximum, "Max", since=(6, 8, 12, 13))
def write_maximum(g: Graph, a: Value, b: Value) -> Value:
    return extreme(g, "Max", a, b)


@writes(ops.Minimum, "Min", since=(6, 8, 12, 13))
def write_minimum(g: Graph, a: Value, b: Value) -> Value:
    return extreme(g, "Min", a, b)


# Clip. 6: bounds are attributes. 11: they are inputs. 12: integers.


@writes(ops.Clip, "Clip", since=(6,))
def write_clip_6(g: Graph, x: Value, low: float | None, high: float | None) -> Value:
    if not dtypes.is_float(x.dtype):
        raise Decline("Clip takes integers from opset 12 on")
    return g.add("Clip", x, min=None if low is None else float(low), max=None if high is None else float(high))


@writes(ops.Clip, "Clip", since=(11, 12, 13))
def write_clip_11(g: Graph, x: Value, low: float | None, high: float | None) -> Value:
    return g.add("Clip", x, *[None if bound is None else g.scalar(bound, x) for bound in (low, high)])


def clip(g: Graph, x: Value, low: float | None, high: float | None) -> Value:
    """min(max(x, low), high), in the form of the opset."""
    return (write_clip_11 if g.has("Clip", 11) else write_clip_6)(g, x, low, high)


# One operand


def _unary(operator: str) -> Rule:
    def write(g: Graph, x: Value) -> Value:
        return g.add(operator, x)

    return write


for _function, _operator, _since in (
    (ops.Neg, "Neg", (6, 13)),
    (ops.Abs, "Abs", (6, 13)),
    (ops.Exp, "Exp", (6, 13)),
    (ops.Log, "Log", (6, 13)),
    (ops.Sqrt, "Sqrt", (6, 13)),
    (ops.Sin, "Sin", (7, 22)),
    (ops.Cos, "Cos", (7, 22)),
    (ops.Copy, "Identity", (1, 13, 14, 16, 19, 21, 23, 24, 25)),
):
    writes(_function, _operator, since=_since)(_unary(_operator))


@writes(ops.Cast, "Cast", since=(6, 9, 13, 19, 21, 23, 24, 25, 28))  # 13: bfloat16
def write_cast(g: Graph, x: Value, dtype: Any) -> Value:
    return g.cast(x, dtype)


@reads("Identity", since=(1, 13, 14, 16, 19, 21, 23, 24, 25))
def read_identity(node: Node) -> Callable[[Tensor], Tensor]:
    return lambda x: x
