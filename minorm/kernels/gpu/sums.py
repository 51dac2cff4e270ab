"""Sums and means over some axes of CuPy arrays: each stage of axis_sums.py is one or two launches (sums_plan.py).

Sums are computed in float64, in an order that depends only on the shape, and are rounded once at the end.
"""

from __future__ import annotations

from typing import Any

from minorm.devices import dtypes
from minorm.kernels.axis_sums import Stage, Sums, in_memory_order, stages
from minorm.kernels.gpu import copying, launch, memory
from minorm.kernels.gpu.operands import memory_order, plain
from minorm.kernels.gpu.plans import sums_plan
from minorm.kernels.gpu.program import Program

_program = Program("sums.cu")


def _total(x: Any, summed: frozenset[int], mean: bool) -> Any:
    """Return the sum or mean over the axes `summed` of an array that is not empty; the other axes keep their order."""
    if not x.flags.c_contiguous:
        return in_memory_order(_total, x, summed, mean, memory_order(x), plain)
    dtype, count = x.dtype, 1
    steps = stages(x.shape, summed)
    for batches, rows, columns in steps[:-1]:
        x = middle(x, (batches, rows, columns), dtypes.float64)
        count *= rows
    return middle(x, steps[-1], dtype, count * steps[-1][1] if mean else 1)


def middle(x: Any, stage: Stage, result: Any, divisor: float = 1) -> Any:
    """Sum x (batches, rows, columns) over its rows and divide; return (batches * columns,) of type `result`."""
    batches, rows, columns = stage
    if rows == 1:
        return copying.cast(x.reshape(-1), result)
    plan = sums_plan.plan(stage, x.dtype.itemsize, launch.is_aligned(x))
    last = plan.chunks == 1
    y = memory.empty((batches * plan.chunks * columns,), result if last else dtypes.float64)
    kernel = _program.kernel(plan.name, x.dtype, y.dtype, plan.width, plan.team, plan.integer)
    sizes = map(plan.integer.type, plan.sizes)
    kernel(plan.grid, plan.block, (*sizes, x, y, dtypes.float64.type(divisor if last else 1)))
    return y if last else middle(y, (batches, plan.chunks, columns), result, divisor)


_sums = Sums(_total)
sum_axes, mean_axes, sum_to = _sums.sum_axes, _sums.mean_axes, _sums.sum_to
