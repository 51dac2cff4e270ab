"""Softmax, its logarithm and the cross entropy on CuPy arrays; the reference has the formulas.

If the axis is the last one, some lanes of a warp or a block compute a row; otherwise each thread computes a row. Each
function is one launch and takes all four float types. The result may have another type than the input. The order of
every sum depends only on the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu import launch, memory
from minorm.kernels.gpu.operands import outer, plain
from minorm.kernels.gpu.plans import softmax_plan
from minorm.kernels.gpu.program import Program
from minorm.kernels.reference import softmax as reference

THREADS = 128  # threads in a block of the kernels with one row for each thread
SUMMING = 256  # threads in a block that adds up losses
CHUNK = 1 << 11  # the fewest losses that a block adds up, if there are several blocks
MOST_CHUNKS = 1024  # whose sums another block adds up

_program = Program("softmax.cu")


def _along(name: str, fallback: Callable[..., Any], a: Any, b: Any, axis: int, result: Any) -> Any:
    """Apply the operation `name` along `axis` to arrays of the same shape and float type. `result` is the type of the
    result; None means the type of the arrays.
    """
    dtype = a.dtype
    if dtype not in dtypes.FLOATS or not a.size or not a.ndim or (b is not None and b.dtype != dtype):
        return fallback(a, axis, dtype=result) if b is None else fallback(a, b, axis, dtype=result)
    result = result or dtype
    a, b = plain(a), a if b is None else plain(b)
    out = memory.empty(a.shape, result)
    compute = dtypes.compute_type(dtype)
    before, n, after = outer(a.shape, axis)
    if after == 1:
        plan = softmax_plan.rows(before, n, dtype, launch.is_aligned(a, b, out), 1 if a is b else 2)
        kernel = _program.kernel("rows", name, dtype, result, compute, plan.width, plan.packs, plan.lanes, plan.integer)
        kernel(plan.grid, plan.block, (plan.integer.type(before), plan.integer.type(n), a, b, out))
    else:
        index = launch.index_type(a.size)
        kernel = _program.kernel("columns", name, dtype, result, compute, index)
        count = before * after
        sizes = (index.type(count), index.type(n), index.type(after))
        kernel((launch.blocks(count, THREADS),), (THREADS,), (*sizes, a, b, out))
    return out


def softmax(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    return _along("op::softmax", reference.softmax, x, None, axis, dtype)


def softmax_grad(dy: Any, y: Any, axis: int = -1, dtype: Any = None) -> Any:
    return _along("op::softmax_grad", reference.softmax_grad, dy, y, axis, dtype)


def log_softmax(x: Any, axis: int = -1, dtype: Any = None) -> Any:
    return _along("op::log_softmax", reference.log_softmax, x, None, axis, dtype)


def log_softmax_grad(dy: Any, y: Any, axis: int = -1, dtype: Any = None) -> Any:
    return _along("op::log_softmax_grad", reference.log_softmax_grad, dy, y, axis, dtype)


def cross_entropy(x: Any, target: Any, ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """Compute the same as the reference's cross_entropy.

    If a target is not a class, its loss is NaN. No error is raised, since a check would make the host wait.
    """
    dtype, compute = x.dtype, dtypes.compute_type(x.dtype)
    if dtype not in dtypes.FLOATS or not x.size:
        return reference.cross_entropy(x, target, ignore_index, label_smoothing)
    count, n = x.shape
    x, classes = plain(x), plain(target.astype(np.int64, copy=False))
    loss, lse = memory.empty((count,), compute), memory.empty((count,), dtypes.float64)
    plan = softmax_plan.rows(count, n, dtype, launch.is_aligned(x), 1, once=True)
    rest = plan.width, plan.packs, plan.lanes, plan.integer, label_smoothing != 0
    kernel = _program.kernel("cross_entropy", dtype, compute, *rest)
    sizes = (plan.integer.type(count), plan.integer.type(n))
    options = (np.int64(ignore_index), np.float64(label_smoothing), np.float64(1 / n))
    kernel(plan.grid, plan.block, (*sizes, x, classes, loss, lse, *options))
    return loss, lse


def cross_entropy_grad(
    dy: Any, x: Any, target: Any, lse: Any, ignore_index: int = -100, label_smoothing: float = 0.0, count: Any = None
) -> Any:
    """Compute the same as the reference's cross_entropy_grad.

    `count` is the float64 array of one element that `reduce_losses` returns. dy may have another type than x.
    """
    dtype, compute = x.dtype, dtypes.compute_type(x.dtype)
    if dtype not in dtypes.FLOATS or dy.dtype not in dtypes.FLOATS or not x.size:
        return reference.cross_entropy_grad(dy, x, target, lse, ignore_index, label_smoothing, count)
    rows, n = x.shape
    one = dy.size == 1 or not any(dy.strides)  # one number for all rows, as in an expanded view
    dy = dy if one else plain(dy)
    x, classes = plain(x), plain(target.astype(np.int64, copy=False))
    dx = memory.empty(x.shape, dtype)
    plan = softmax_plan.pieces(rows, n, dtype, launch.is_aligned(x, dx))
    types = dtype, dy.dtype, compute
    kernel = _program.kernel("cross_entropy_grad", *types, plan.width, plan.packs, plan.lanes, plan.integer)
    sizes = (plan.integer.type(rows), plan.integer.type(n))
    shares = (compute.type(1 - label_smoothing), compute.type(label_smoothing / n))
    arrays = (dy, plan.integer.type(0 if one else 1), count, x, classes, lse, dx)
    kernel(plan.grid, plan.block, (*sizes, *arrays, np.int64(ignore_index), *shares))
    return dx


def reduce_losses(losses: Any, target: Any, ignore_index: int, mean: bool, dtype: Any) -> tuple[Any, Any]:
    """Compute the same as the reference's reduce_losses.

    The order of the additions depends on the number of rows. The returned count is a float64 array on the GPU.
    """
    chunk = max(CHUNK, -(-losses.size // MOST_CHUNKS))
    blocks = -(-losses.size // chunk)
    if not blocks:
        return reference.reduce_losses(losses, target, ignore_index, mean, dtype)
    result, counted = memory.empty((), dtype), memory.empty((), dtypes.float64)
    parts = memory.empty((2 * blocks,), dtypes.float64) if blocks > 1 else None
    kernel = _program.kernel("sum_losses", result.dtype, losses.dtype)
    sizes, ends = (np.int64(losses.size), np.int32(chunk)), (result, counted, np.bool_(mean))
    kernel((blocks,), (SUMMING,), (*sizes, losses, target, np.int64(ignore_index), parts, *ends))
    if blocks > 1:
        _program.kernel("sum_parts", result.dtype)((1,), (SUMMING,), (np.int32(blocks), parts, *ends))
    return result, counted


check_target = reference.check_target
