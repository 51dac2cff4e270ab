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
from minorm.kernels.gpu.program import Launch, Program, cached
from minorm.kernels.order import is_in_rows

_program = Program("sums.cu")


def _total(x: Any, summed: frozenset[int], mean: bool) -> Any:
    """Return the sum or mean over the axes `summed` of an array that is not empty; the other axes keep their order."""
    if not is_in_rows(x):
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
    chunks, run = _planned(stage, x.dtype, launch.is_aligned(x), result, divisor)
    y = memory.empty((batches * chunks * columns,), result if chunks == 1 else dtypes.float64)
    run(x, y)
    return y if chunks == 1 else middle(y, (batches, chunks, columns), result, divisor)


@cached
def _planned(stage: Stage, dtype: Any, aligned: bool, result: Any, divisor: float) -> tuple[int, Launch]:
    """Return the number of chunks of each sum, and the launch. The sums of several chunks are not divided yet."""
    plan = sums_plan.plan(stage, dtype.itemsize, aligned)
    last = plan.chunks == 1
    written = result if last else dtypes.float64
    kernel = _program.kernel(plan.name, dtype, written, plan.width, plan.team, plan.integer)
    sizes, divide = map(plan.integer.type, plan.sizes), dtypes.float64.type(divisor if last else 1)
    return plan.chunks, Launch(kernel, plan.grid, plan.block, sizes, (divide,))


_sums = Sums(_total)
sum_axes, mean_axes, sum_to = _sums.sum_axes, _sums.mean_axes, _sums.sum_to
