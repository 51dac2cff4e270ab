"""ReduceSum, ReduceMean, ReduceMax, ReduceMin, ArgMax, ArgMin.

The axes moved from an attribute to an input: of ReduceSum in 13, of all others in 18.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minorm import dtypes
from minorm.onnx.graph import Graph, Value
from minorm.onnx.registry import Rule, writes
from minorm.onnx.shape import reshape
from minorm.onnx.sizes import Shape, product
from minorm.ops import reduction as ops

_AXES_ARE_AN_INPUT = {"ReduceSum": 13}  # 18 for the others


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """`shape` without these axes, or with ones in their place."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def reduce(g: Graph, operator: str, x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
    """A reduction in the form of the opset; over no axes it is x itself."""
    if not axes:
        return g.add("Identity", x)
    shape = reduced_shape(x.known_shape, axes, keepdims)
    if g.has(operator, _AXES_ARE_AN_INPUT.get(operator, 18)):
        return g.add(operator, x, g.constant(list(axes), np.int64, "axes"), shape=shape, keepdims=int(keepdims))
    return g.add(operator, x, shape=shape, axes=list(axes), keepdims=int(keepdims))


def _rule(operator: str) -> Rule:
    def write(g: Graph, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
        return reduce(g, operator, g.cast(x, g.result.dtype), axes, keepdims)

    return write


writes(ops.Sum, "ReduceSum", since=(1, 11, 13))(_rule("ReduceSum"))
writes(ops.Mean, "ReduceMean", since=(1, 11, 13, 18))(_rule("ReduceMean"))
writes(ops.Max, "ReduceMax", since=(1, 11, 12, 13, 18, 20))(_rule("ReduceMax"))
writes(ops.Min, "ReduceMin", since=(1, 11, 12, 13, 18, 20))(_rule("ReduceMin"))


def _place(operator: str) -> Rule:
    def write(g: Graph, x: Value, axis: int | None, keepdims: bool) -> Value:
        if axis is None:
            flat = reshape(g, x, (product(x.known_shape),))
            place = g.add(operator, flat, shape=(), dtype=dtypes.int64, axis=0, keepdims=0)
            return reshape(g, place, g.result.shape) if keepdims else place
        axis %= x.ndim
        shape = reduced_shape(x.known_shape, (axis,), keepdims)
        return g.add(operator, x, shape=shape, dtype=dtypes.int64, axis=axis, keepdims=int(keepdims))

    return write


writes(ops.ArgMax, "ArgMax", since=(1, 11, 12, 13))(_place("ArgMax"))
writes(ops.ArgMin, "ArgMin", since=(1, 11, 12, 13))(_place("ArgMin"))
