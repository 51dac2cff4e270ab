"""Sums over some axes: neighbouring axes merge, and what is left is summed from the inside out, an axis at a time.

    x (32, 64, 56, 56) over (0, 2, 3)        32 added, 64 kept, 3136 added
    first                                    2048 batches, 3136 rows, 1 column     -> 32 x 64
    then                                     1 batch, 32 rows, 64 columns          -> 64

Each step sums the middle axis of (batches, rows, columns); that covers every set of axes of an array without gaps,
whatever the order of its axes in memory. Sums go on in double over pieces that the shape alone decides and are rounded
once at the end, so the result is as good on any number of threads, and the same.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import minorm_ext
from minorm import dtypes
from minorm.kernels.cpu import memory
from minorm.kernels.cpu.operands import is_plain, plain
from minorm.kernels.reference import sums as reference

_kernels: Any = minorm_ext.kernels("sums")
_float32, _float64 = dtypes.float32, dtypes.float64
_empty = memory.empty
_get_num_threads = minorm_ext.get_num_threads

Stage = tuple[int, int, int]  # batches, rows, columns


def sum_axes(x: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    if x.size == 0 or x.dtype not in dtypes.FLOATS:
        return reference.sum_axes(x, axes, keepdims)
    return _total(x, frozenset(axes), False).reshape(_shape(x.shape, axes, keepdims))


def mean_axes(x: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    if x.size == 0 or x.dtype not in dtypes.FLOATS:
        return reference.mean_axes(x, axes, keepdims)
    return _total(x, frozenset(axes), True).reshape(_shape(x.shape, axes, keepdims))


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    if x.shape == shape:
        return x
    if x.size == 0 or x.dtype not in dtypes.FLOATS:
        return reference.sum_to(x, shape)
    return _total(x, _stretched(x.shape, shape), False).reshape(shape)


@functools.lru_cache(maxsize=4096)
def _shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape) if keepdims or axis not in axes)


@functools.lru_cache(maxsize=4096)
def _stretched(shape: tuple[int, ...], small: tuple[int, ...]) -> frozenset[int]:
    """The axes along which an array of shape `small` is repeated in `shape`."""
    lead = len(shape) - len(small)
    return frozenset(range(lead)) | {i + lead for i, n in enumerate(small) if n == 1}


@functools.lru_cache(maxsize=4096)
def _stages(shape: tuple[int, ...], summed: frozenset[int]) -> tuple[Stage, ...]:
    """How a C-ordered array of this shape is summed: the last of its merged summed axes first."""
    loops: list[tuple[int, bool]] = []
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        before, kind = loops.pop() if loops and loops[-1][1] == (axis in summed) else (1, axis in summed)
        loops.append((before * length, kind))
    stages = []
    while any(kind for _, kind in loops):
        last = max(i for i, (_, kind) in enumerate(loops) if kind)
        rows, _ = loops.pop(last)
        stages.append((prod(n for n, _ in loops[:last]), rows, prod(n for n, _ in loops[last:])))
    return tuple(stages) or ((prod(shape), 1, 1),)


def _total(x: Any, summed: frozenset[int], mean: bool) -> Any:
    """The sum or mean over some axes of an array that has elements, the kept axes in their order; of x's type."""
    dtype = x.dtype
    if not is_plain(x):
        return _other_order(x, summed, mean)
    if dtype in dtypes.HALVES:
        x = x.astype(_float32)
    stages = _stages(x.shape, summed)
    threads = _get_num_threads()
    count = 1
    for batches, rows, columns in stages[:-1]:
        inner = _empty((batches * columns,), _float64)
        _kernels.sum_middle(x, inner, batches, rows, columns, 1.0, _scratch, threads)
        x, count = inner, count * rows
    batches, rows, columns = stages[-1]
    result = _empty((batches * columns,), dtype if dtype.itemsize > 2 else _float64)
    _kernels.sum_middle(x, result, batches, rows, columns, count * rows if mean else 1.0, _scratch, threads)
    return result if dtype.itemsize > 2 else result.astype(dtype)


def _other_order(x: Any, summed: frozenset[int], mean: bool) -> Any:
    """`_total` where x is not in C order: its axes as they lie in memory, and the result's axes back in order."""
    repeated = [axis for axis in summed if x.strides[axis] == 0 and x.shape[axis] > 1]
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    kept = [axis for axis in order if axis not in summed]
    y = x[tuple(slice(0, 1) if axis in repeated else slice(None) for axis in range(x.ndim))]
    y = plain(y.transpose(order))
    total = _total(y, frozenset(i for i, axis in enumerate(order) if axis in summed), mean)
    if repeated and not mean:  # the same numbers again and again, as in the gradient of a sum
        total = (total.astype(_float64) * prod(x.shape[axis] for axis in repeated)).astype(x.dtype)
    return total.reshape([x.shape[axis] for axis in kept]).transpose([kept.index(axis) for axis in sorted(kept)])


def _scratch(doubles: int) -> Any:
    return memory.scratch((doubles,), _float64)
