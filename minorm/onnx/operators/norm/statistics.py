"""The one normalization equation in elementary operators, and running statistics as outputs of a training graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.sizes import Length, Size, product
from minorm.onnx.operators.math.reduction import reduce


def ones(g: Graph, shape: Sequence[int], like: Value) -> Value:
    """A constant scale that changes nothing."""
    return g.constant(np.ones(shape), like.dtype, "ones")


def zeros(g: Graph, shape: Sequence[int], like: Value) -> Value:
    """A constant bias that changes nothing."""
    return g.constant(np.zeros(shape), like.dtype, "zeros")


def moments(g: Graph, x: Value, axes: Sequence[int], keepdims: bool = True) -> tuple[Value, Value]:
    """Mean and population variance over `axes`, by two passes: no cancellation of large squares."""
    mean = reduce(g, "ReduceMean", x, axes)
    centred = g.add("Sub", x, mean)
    var = reduce(g, "ReduceMean", g.add("Mul", centred, centred), axes, keepdims)
    return mean if keepdims else reduce(g, "ReduceMean", x, axes, keepdims=False), var


def standardize(
    g: Graph, x: Value, axes: Sequence[int], eps: float, centered: bool = True, guard: bool = False
) -> Value:
    """(x - mean) / sqrt(var + eps) over `axes`; the mean is 0 if not centered, eps outside the root with the guard."""
    if centered:
        x = g.add("Sub", x, reduce(g, "ReduceMean", x, axes))
    var = reduce(g, "ReduceMean", g.add("Mul", x, x), axes)
    small = g.scalar(eps, x)
    std = g.add("Add", g.add("Sqrt", var), small) if guard else g.add("Sqrt", g.add("Add", var, small))
    return g.add("Div", x, std)


def affine(g: Graph, y: Value, scale: Value | None, bias: Value | None) -> Value:
    """y * scale + bias, what is absent left out; both broadcast to y."""
    if scale is not None:
        y = g.add("Mul", y, scale)
    return y if bias is None else g.add("Add", y, bias)


def wide(g: Graph, x: Value) -> Value:
    """x in the type minorm computes in: 16-bit floats in float32."""
    return g.cast(x, dtypes.compute_type(x.dtype))


def computed(x: Value, compute_dtype: Any) -> Any:
    """The type minorm computes in."""
    return dtypes.compute_type(x.dtype) if compute_dtype is None else compute_dtype


def is_usual(x: Value, compute_dtype: Any, *parameters: Value | None) -> bool:
    """Is everything of x's type, and computed in the type that belongs to it? Most operators can say nothing else."""
    same = all(p is None or p.dtype == x.dtype for p in parameters)
    return same and computed(x, compute_dtype) == dtypes.compute_type(x.dtype)


def cast_all(g: Graph, dtype: Any, *values: Value | None) -> tuple[Any, ...]:
    """All in this type; None stays None."""
    return tuple(None if value is None else g.cast(value, dtype) for value in values)


def one_type(g: Graph, *values: Value) -> tuple[Value, ...]:
    """The values as they are if they are of one type; else all in the widest of the types they are computed in."""
    types = {value.dtype for value in values}
    if len(types) == 1:
        return values
    widest = max((dtypes.compute_type(t) for t in types), key=lambda t: t.itemsize)
    return tuple(g.cast(value, widest) for value in values)


def blend(
    g: Graph,
    running: Value,
    batch: Value,
    momentum: float | None,
    batches: Value | None,
    correction: Value | None = None,
) -> None:
    """running = running * keep + batch * (1 - keep), keep = momentum, or batches / (batches + 1) for None.

    correction: a factor of the batch's statistics (N / (N - 1) for an unbiased variance).
    """
    old = g.current(running)
    batch = g.cast(batch, old.dtype)
    if correction is not None:
        batch = g.add("Mul", batch, correction)
    if momentum is None:
        assert batches is not None
        seen = g.cast(batches, old.dtype)
        keep = g.add("Div", seen, g.add("Add", seen, g.scalar(1, seen)))
        share = g.add("Sub", g.scalar(1, seen), keep)
    else:
        keep, share = g.scalar(momentum, old), g.scalar(1 - momentum, old)
    g.update(running, g.add("Add", g.add("Mul", old, keep), g.add("Mul", batch, share)))


def correction(g: Graph, lengths: Sequence[Length], like: Value) -> Value:
    """N / (N - 1), N the number of elements under these axes, which may follow the batch."""
    count = product(lengths)
    if not isinstance(count, Size):
        return g.scalar(count / max(count - 1, 1), like)
    n = g.cast(g.length(count), like.dtype)
    return g.add("Div", n, g.add("Sub", n, g.scalar(1, n)))


def count_up(g: Graph, batches: Value) -> None:
    """batches + 1"""
    old = g.current(batches)
    g.update(batches, g.add("Add", old, g.scalar(1, old)))
