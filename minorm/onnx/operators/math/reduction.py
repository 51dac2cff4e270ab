"""Read and write reductions: sums, means, products, extremes, norms, logarithms of sums, ArgMax and ArgMin.

The axes are an attribute in old versions, and an input from 13 on for ReduceSum, from 18 on for all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import EVERY, Rule, reads, writes
from minorm.onnx.graph.sizes import Shape, product
from minorm.onnx.operators.shape.shape import reshape
from minorm.ops import reduction as ops
from minorm.ops.elementwise import Root
from minorm.ops.operands import axes_of, axis_of
from minorm.tensor.tensor import Tensor

_AXES_ARE_AN_INPUT = {"ReduceSum": 13}  # 18 for the others


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """Return `shape` without `axes`; if `keepdims` is True, these axes stay with length 1."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def reduce(g: Graph, operator: str, x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
    """Write a reduction in the form that the opset has; if `axes` is empty, the result is x."""
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


writes(ops.Sum, "ReduceSum", since=1)(_rule("ReduceSum"))
writes(ops.Mean, "ReduceMean", since=1)(_rule("ReduceMean"))
writes(ops.Max, "ReduceMax", since=1)(_rule("ReduceMax"))
writes(ops.Min, "ReduceMin", since=1)(_rule("ReduceMin"))
writes(ops.MaxOfAll, "ReduceMax", since=1)(_rule("ReduceMax"))
writes(ops.MinOfAll, "ReduceMin", since=1)(_rule("ReduceMin"))
writes(ops.Prod, "ReduceProd", since=1)(_rule("ReduceProd"))
writes(ops.LogSumExp, "ReduceLogSumExp", since=1)(_rule("ReduceLogSumExp"))

Axes = tuple[int, ...]
Reduction = Callable[[Tensor, Axes, bool], Tensor]


def _wide(function: Reduction) -> Reduction:
    """Return a reduction that computes `function` in a wider type; the result has the type of x.

    The wider type is the type in which minorm computes with x, and float64 if x has integers.
    """

    def apply(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        wide = x.to(dtypes.compute_type(x.dtype) if dtypes.is_float(x.dtype) else dtypes.float64)
        return function(wide, axes, keepdims).to(x.dtype)

    return apply


def _extreme(reduction: Any, bound: float) -> Reduction:
    """Reduce to the largest or smallest element; an empty x gives the number of its type closest to `bound`."""

    def apply(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
        if all(x.shape[i] for i in axes):
            return cast(Tensor, reduction.apply(x, axes=axes, keepdims=keepdims))
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes]
        if not dtypes.is_float(x.dtype) and x.dtype != dtypes.bool:
            limits = np.iinfo(x.dtype)
            return Tensor(np.full(shape, limits.min if bound < 0 else limits.max, x.dtype)).to(x.device)
        return Tensor(np.full(shape, bound > 0 if x.dtype == dtypes.bool else bound, x.dtype)).to(x.device)

    return apply


def _sum(x: Tensor, axes: Axes, keepdims: bool) -> Tensor:
    """Sum over these axes; unlike in `x.sum`, () means no axis."""
    return cast(Tensor, ops.Sum.apply(x, axes=axes, keepdims=keepdims))


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": lambda x, axes, keepdims: _sum(x, axes, keepdims).to(x.dtype),
    "ReduceMean": _wide(lambda x, axes, keepdims: x.mean(axes, keepdims) if axes else x),
    "ReduceProd": lambda x, axes, keepdims: ops.Prod.apply(x, axes=axes, keepdims=keepdims),
    "ReduceMax": _extreme(ops.Max, -math.inf),
    "ReduceMin": _extreme(ops.Min, math.inf),
    "ReduceL1": lambda x, axes, keepdims: _sum(x.abs(), axes, keepdims).to(x.dtype),
    "ReduceL2": _wide(lambda x, axes, keepdims: Root.apply(_sum(x * x, axes, keepdims))),
    "ReduceSumSquare": _wide(lambda x, axes, keepdims: _sum(x * x, axes, keepdims)),
    "ReduceLogSum": _wide(lambda x, axes, keepdims: _sum(x, axes, keepdims).log()),
    "ReduceLogSumExp": _wide(lambda x, axes, keepdims: ops.LogSumExp.apply(x, axes=axes, keepdims=keepdims)),
}


def _reader(reduction: Reduction) -> Rule:
    def read(node: Node) -> Callable[..., Tensor]:
        given = node.since < _AXES_ARE_AN_INPUT.get(node.operator, 18)
        keepdims = bool(node["keepdims"])
        noop = not given and bool(node["noop_with_empty_axes"])

        def apply(x: Tensor, axes: Tensor | None = None) -> Tensor:
            wanted = (node["axes"] if given else None if axes is None else integers(axes, "axes")) or ()
            if not wanted and noop:
                return reduction(x, (), True) if node.operator in _EACH else x
            return reduction(x, axes_of(node.operator, tuple(wanted) or None, x), keepdims)

        return apply

    return read


# With noop_with_empty_axes and without axes, these operators still apply a function to each element.
_EACH = ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")

for _operator, _reduction in _REDUCTIONS.items():
    reads(_operator, fixed=(1,))(_reader(_reduction))


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


writes(ops.ArgMax, "ArgMax", since=1)(_place("ArgMax"))
writes(ops.ArgMin, "ArgMin", since=1)(_place("ArgMin"))


# ArgMax, ArgMin. 12: the last of equal elements, on request.


def _place_reader(reduction: Any) -> Rule:
    def read(node: Node) -> Callable[[Tensor], Tensor]:
        axis, keepdims = node["axis"], bool(node["keepdims"])
        last = node.since >= 12 and bool(node["select_last_index"])

        def place(x: Tensor) -> Tensor:
            along = axis_of(node.operator, axis, x)
            if x.shape[along] == 0:
                raise ValueError(f"axis {axis} of shape {x.shape} is empty; expected at least one element")
            if not last:
                return cast(Tensor, reduction.apply(x, axis=along, keepdims=keepdims))
            return x.shape[along] - 1 - reduction.apply(x.flip(along), axis=along, keepdims=keepdims)

        return place

    return read


reads("ArgMax", since=1, fixed=EVERY)(_place_reader(ops.ArgMax))
reads("ArgMin", since=1, fixed=EVERY)(_place_reader(ops.ArgMin))
