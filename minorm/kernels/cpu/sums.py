"""Sums over some axes of NumPy arrays, by one kernel call for each stage of axis_sums.py.

Sums are computed in float64 over pieces that depend only on the shape, and are rounded once at the end. So the result
is the same on any number of threads.
"""

from __future__ import annotations

from typing import Any

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.axis_sums import Sums, in_memory_order, stages
from minorm.kernels.cpu import memory
from minorm.kernels.cpu.operands import is_plain, plain

_kernels: Any = minorm_ext.kernels("sums")
_float32, _float64 = dtypes.float32, dtypes.float64
_empty = memory.empty
_get_num_threads = minorm_ext.get_num_threads


def _total(x: Any, summed: frozenset[int], mean: bool) -> Any:
    """Return the sum or mean over the axes `summed` of an array that is not empty; the other axes keep their order."""
    dtype = x.dtype
    if not is_plain(x):
        order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
        return in_memory_order(_total, x, summed, mean, order, plain)
    if dtype in dtypes.HALVES:
        x = x.astype(_float32)
    steps = stages(x.shape, summed)
    threads = _get_num_threads()
    count = 1
    for batches, rows, columns in steps[:-1]:
        inner = _empty((batches * columns,), _float64)
        _kernels.sum_middle(x, inner, batches, rows, columns, 1.0, _scratch, threads)
        x, count = inner, count * rows
    batches, rows, columns = steps[-1]
    result = _empty((batches * columns,), dtype if dtype.itemsize > 2 else _float64)
    _kernels.sum_middle(x, result, batches, rows, columns, count * rows if mean else 1.0, _scratch, threads)
    return result if dtype.itemsize > 2 else result.astype(dtype)


def _scratch(doubles: int) -> Any:
    return memory.empty((doubles,), _float64)


_sums = Sums(_total)
sum_axes, mean_axes, sum_to = _sums.sum_axes, _sums.mean_axes, _sums.sum_to
