"""Write the normalization equation in elementary operators, and the running statistics as outputs in training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.sizes import Length, Size, product
from minorm.onnx.operators.math.reduction import reduce


def ones(g: Graph, shape: Sequence[int], like: Value) -> Value:
    """Write a constant scale of ones."""
    return g.constant(np.ones(shape), like.dtype, "ones")


def zeros(g: Graph, shape: Sequence[int], like: Value) -> Value:
    """Write a constant bias of zeros."""
    return g.constant(np.zeros(shape), like.dtype, "zeros")


def moments(g: Graph, x: Value, axes: Sequence[int], keepdims: bool = True) -> tuple[Value, Value]:
    """Write mean and population variance over `axes` in two passes, so that large squares do not cancel."""
    mean = reduce(g, "ReduceMean", x, axes)
    centred = g.add("Sub", x, mean)
    var = reduce(g, "ReduceMean", g.add("Mul", centred, centred), axes, keepdims)
    return mean if keepdims else reduce(g, "ReduceMean", x, axes, keepdims=False), var


def standardize(
    g: Graph, x: Value, axes: Sequence[int], eps: float, centered: bool = True, guard: bool = False
) -> Value:
    """Write (x - mean) / sqrt(var + eps) over `axes`.

    The mean is 0 if `centered` is False. If `guard` is True, eps is added outside the root.
    """
    if centered:
        x = g.add("Sub", x, reduce(g, "ReduceMean", x, axes))
    var = reduce(g, "ReduceMean", g.add("Mul", x, x), axes)
    small = g.scalar(eps, x)
    std = g.add("Add", g.add("Sqrt", var), small) if guard else g.add("Sqrt", g.add("Add", var, small))
    return g.add("Div", x, std)


def affine(g: Graph, y: Value, scale: Value | None, bias: Value | None) -> Value:
    """Write y * scale + bias; scale and bias broadcast to y, and each may be absent."""
    if scale is not None:
        y = g.add("Mul", y, scale)
    return y if bias is None else g.add("Add", y, bias)


def wide(g: Graph, x: Value) -> Value:
    """Write x in the type that minorm computes in: float32 for 16-bit floats."""
    return g.cast(x, dtypes.compute_type(x.dtype))


def computed(x: Value, compute_dtype: Any) -> Any:
    """Return the type to compute in: `compute_dtype`, or minorm's choice for x."""
    return dtypes.compute_type(x.dtype) if compute_dtype is None else compute_dtype


def is_usual(x: Value, compute_dtype: Any, *parameters: Value | None) -> bool:
    """Return True if all parameters have x's type, and `compute_dtype` is the usual type for x.

    Most operators cannot express other types.
    """
    same = all(p is None or p.dtype == x.dtype for p in parameters)
    return same and computed(x, compute_dtype) == dtypes.compute_type(x.dtype)


def cast_all(g: Graph, dtype: Any, *values: Value | None) -> tuple[Any, ...]:
    """Cast all values to this type; None stays None."""
    return tuple(None if value is None else g.cast(value, dtype) for value in values)


def one_type(g: Graph, *values: Value) -> tuple[Value, ...]:
    """Return the values unchanged if all have the same type; else cast all values to one type.

    This type is the widest of the types in which minorm computes with the values.
    """
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
    """Write running = running * keep + batch * (1 - keep).

    keep is `momentum`, or batches / (batches + 1) if `momentum` is None.

    `correction` is a factor of the batch's statistics (N / (N - 1) for an unbiased variance).
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
    """Return N / (N - 1), where N is the product of these lengths and may depend on the batch."""
    count = product(lengths)
    if not isinstance(count, Size):
        return g.scalar(count / max(count - 1, 1), like)
    n = g.cast(g.length(count), like.dtype)
    return g.add("Div", n, g.add("Sub", n, g.scalar(1, n)))


def count_up(g: Graph, batches: Value) -> None:
    """Write the new value batches + 1."""
    old = g.current(batches)
    g.update(batches, g.add("Add", old, g.scalar(1, old)))
