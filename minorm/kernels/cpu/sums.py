"""Sums over some axes: neighbouring axes merge until they are (outer, kept, inner), of which outer and inner are added.

That covers the gradient of every usual broadcast operand: a bias (outer, kept), a scale per channel (outer, kept,
inner), a scalar. Partial sums are taken in double over pieces that the shape alone decides, and added in order, so
the result is the same on any number of threads.
"""

from __future__ import annotations

import functools
from typing import Any

import minorm_ext
from minorm import dtypes
from minorm.kernels.cpu import memory
from minorm.kernels.reference import sums as reference

_kernels: Any = minorm_ext.kernels("sums")
_float32, _float64 = dtypes.float32, dtypes.float64
_empty = memory.empty
_get_num_threads = minorm_ext.get_num_threads

ROW_CUT, COLUMN_CUT = 1 << 16, 1 << 10  # elements of a row, and rows, that make one partial sum


@functools.lru_cache(maxsize=4096)
def _outer_kept_inner(shape: tuple[int, ...], summed: frozenset[int]) -> tuple[int, int, int] | None:
    """Lengths of the three loops of a sum over the axes `summed` of a C-ordered array; None where it takes more."""
    lengths = [1, 1, 1]
    place = 0
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        kept = axis not in summed
        if kept != (place == 1):
            place += 1
        if place > 2:
            return None
        lengths[place] *= length
    outer, kept_length, inner = lengths
    return (1, 1, outer * inner) if kept_length == 1 else (outer, kept_length, inner)  # all summed: one row


def _dense_sum(x: Any, summed: frozenset[int]) -> Any:
    """The sum over some axes, flat, in float64, or None where the kernels do not cover it."""
    if x.dtype not in (_float32, _float64) or x.size == 0:
        return None
    if not x.flags.c_contiguous:
        order = sorted(range(x.ndim), key=lambda axis: -x.strides[axis])
        x = x.transpose(order)
        kept = [axis for axis in order if axis not in summed]
        if not x.flags.c_contiguous or kept != sorted(kept):
            return None
        summed = frozenset(i for i, axis in enumerate(order) if axis in summed)
    loops = _outer_kept_inner(x.shape, summed)
    if loops is None:
        return None
    outer, kept_length, inner = loops
    threads = _get_num_threads()
    if inner > 1:
        pieces = -(-inner // ROW_CUT)
        parts = _empty((outer, kept_length, pieces), _float64)
        _kernels.row_sums(x, parts, outer * kept_length, inner, ROW_CUT, x.itemsize, threads)
        if pieces > 1:
            parts = parts.sum(axis=2)
        return (parts.reshape(outer, kept_length).sum(axis=0) if outer > 1 else parts).reshape(-1)
    parts = _empty((-(-outer // COLUMN_CUT), kept_length), _float64)
    _kernels.column_sums(x, parts, outer, kept_length, COLUMN_CUT, x.itemsize, threads)
    return parts.sum(axis=0) if len(parts) > 1 else parts[0]


def sum_axes(x: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    total = _dense_sum(x, frozenset(axes))
    if total is None:
        return reference.sum_axes(x, axes, keepdims)
    shape = [1 if axis in axes else n for axis, n in enumerate(x.shape) if keepdims or axis not in axes]
    return total.astype(x.dtype).reshape(shape)


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    if x.shape == shape:
        return x
    lead = x.ndim - len(shape)
    axes = frozenset(range(lead)) | {i + lead for i, n in enumerate(shape) if n == 1}
    total = _dense_sum(x, axes)
    return reference.sum_to(x, shape) if total is None else total.astype(x.dtype).reshape(shape)
