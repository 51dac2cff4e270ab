"""Read NonZero, Compress and Unique; the lengths of their results depend on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, reads
from minorm.onnx.operators.traced_as_one_call import whole
from minorm.ops.operands import axis_of
from minorm.tensor.tensor import Tensor


@reads("NonZero", since=9, fixed=EVERY)
def read_non_zero(node: Node) -> Callable[[Tensor], Tensor]:
    """Return the indices of the nonzero elements, as (axes, n); a scalar counts as a vector, as in onnxruntime."""

    def non_zero(x: Tensor) -> Tensor:
        node.fits((max(1, x.ndim), x.numel()), dtypes.int64)
        found = np.stack(np.nonzero(x.array.reshape(1) if x.ndim == 0 else x.array))
        return Tensor(found.astype(dtypes.int64))

    return whole(node, non_zero)


@reads("Compress", since=9, fixed=(1,))
def read_compress(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    """Keep the slices of x along an axis (the elements of x if there is no axis) for which the condition is True."""

    def compress(x: Tensor, condition: Tensor) -> Tensor:
        axis = None if node["axis"] is None else axis_of("compress", node["axis"], x)
        given = x.reshape(-1) if axis is None else x
        place = axis or 0
        if condition.ndim != 1 or len(condition) > given.shape[place]:
            raise ValueError(
                f"condition has shape {condition.shape}; expected one axis of at most {given.shape[place]} bools"
            )
        return given[(*(slice(None),) * place, np.flatnonzero(condition.array))]

    return whole(node, compress)


WIDE = 256  # above this many elements in a slice, rows are compared as lists


@reads("Unique", since=11)
def read_unique(node: Node) -> Callable[[Tensor], tuple[Tensor, ...]]:
    """Return the distinct elements (or slices along an axis), their first indices, the inverse and the counts."""
    ordered = bool(node["sorted"])

    def unique(x: Tensor) -> tuple[Tensor, ...]:
        axis = None if node["axis"] is None else axis_of("unique", node["axis"], x)
        given = x.reshape(-1) if axis is None else x
        place = axis or 0
        first, inverse, counts = _different(given.array, place)
        if not ordered:
            order = np.argsort(first)
            first, counts = first[order], counts[order]
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order))
            inverse = rank[inverse]
        y = given[(*(slice(None),) * place, first)]
        return (y, *(Tensor(found.astype(dtypes.int64)) for found in (first, inverse, counts)))

    return whole(node, unique)


def _different(x: Any, axis: int) -> tuple[Any, Any, Any]:
    """Find the distinct slices in ascending order; return the first index of each, the inverse and the counts."""
    if x.dtype == dtypes.bfloat16:
        x = x.astype(dtypes.float32)
    if x.size == 0:
        places = np.arange(min(1, x.shape[axis]))
        return places, np.zeros(x.shape[axis], np.int64), np.full(len(places), x.shape[axis])
    rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    if rows.shape[1] > WIDE:
        return _different_rows(rows)
    _, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    return first, inverse.reshape(-1), counts


def _different_rows(rows: Any) -> tuple[Any, Any, Any]:
    """Do the same as `_different` for long rows, because NumPy would take a microsecond for each column."""
    whole_rows = [row.tolist() for row in rows]
    order = sorted(range(len(rows)), key=whole_rows.__getitem__)
    inverse, first, counts = np.empty(len(rows), np.int64), [], []
    for place, i in enumerate(order):
        if place == 0 or whole_rows[i] != whole_rows[order[place - 1]]:
            first.append(i)
            counts.append(0)
        inverse[i] = len(first) - 1
        counts[-1] += 1
    return np.array(first), inverse, np.array(counts)
