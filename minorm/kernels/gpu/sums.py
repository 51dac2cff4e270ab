"""Sums and means over some axes of CuPy arrays: stages of one or two launches each, see sums_plan.py.

Sums go on in float64 in an order that the shape alone decides, and are rounded once at the end.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import cupy

from minorm import dtypes
from minorm.kernels.gpu import launch, sums_plan
from minorm.kernels.gpu.operands import memory_order, plain
from minorm.kernels.gpu.program import Program
from minorm.kernels.reference import sums as reference

_program = Program("sums.cu")


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


def _total(x: Any, summed: frozenset[int], mean: bool) -> Any:
    """The sum or mean over some axes of an array that has elements, the kept axes in their order; of x's type."""
    if not x.flags.c_contiguous:
        return _other_order(x, summed, mean)
    dtype, count = x.dtype, 1
    stages = sums_plan.stages(x.shape, summed)
    for batches, rows, columns in stages[:-1]:
        x = middle(x, (batches, rows, columns), dtypes.float64)
        count *= rows
    return middle(x, stages[-1], dtype, count * stages[-1][1] if mean else 1)


def middle(x: Any, stage: sums_plan.Stage, result: Any, divisor: float = 1) -> Any:
    """x (batches, rows, columns) summed over its rows and divided, of type `result`; (batches * columns,)."""
    batches, rows, columns = stage
    if rows == 1:
        return x.reshape(-1).astype(result)
    plan = sums_plan.plan(stage, x.dtype.itemsize, launch.is_aligned(x))
    last = plan.chunks == 1
    y = cupy.empty(batches * plan.chunks * columns, result if last else dtypes.float64)
    kernel = _program.kernel(plan.name, x.dtype, y.dtype, plan.width, plan.team, plan.integer)
    sizes = map(plan.integer.type, plan.sizes)
    kernel(plan.grid, plan.block, (*sizes, x, y, dtypes.float64.type(divisor if last else 1)))
    return y if last else middle(y, (batches, plan.chunks, columns), result, divisor)


def _other_order(x: Any, summed: frozenset[int], mean: bool) -> Any:
    """`_total` where x is not in C order: its axes as they lie in memory, and the result's axes back in order."""
    repeated = [axis for axis in summed if x.strides[axis] == 0 and x.shape[axis] > 1]
    order = memory_order(x)
    kept = [axis for axis in order if axis not in summed]
    y = x[tuple(slice(0, 1) if axis in repeated else slice(None) for axis in range(x.ndim))]
    y = plain(y.transpose(order))
    total = _total(y, frozenset(i for i, axis in enumerate(order) if axis in summed), mean)
    if repeated and not mean:  # the same numbers again and again, as in the gradient of a sum
        total = (total.astype(dtypes.float64) * prod(x.shape[axis] for axis in repeated)).astype(x.dtype)
    return total.reshape([x.shape[axis] for axis in kept]).transpose([kept.index(axis) for axis in sorted(kept)])
