"""Softmax, its logarithm and the cross entropy on CuPy arrays; the formulas stand in the reference.

Along the last axis a warp or a block has a row, along any other each thread has one. One launch a function for all four
float types; the sums of long rows go on in float64, in an order that the shape alone decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu import launch
from minorm.kernels.gpu.operands import outer, plain
from minorm.kernels.gpu.plans import softmax_plan
from minorm.kernels.gpu.program import Program
from minorm.kernels.reference import softmax as reference

THREADS = 128  # of the kernels that give a thread its own row

_program = Program("softmax.cu")


def _along(name: str, fallback: Callable[..., Any], a: Any, b: Any, axis: int) -> Any:
    """Operation `name` along `axis` of one or two arrays of one shape and float type."""
    dtype = a.dtype
    if dtype not in dtypes.FLOATS or not a.size or not a.ndim or (b is not None and b.dtype != dtype):
        return fallback(a, axis) if b is None else fallback(a, b, axis)
    a, b = plain(a), a if b is None else plain(b)
    out = cupy.empty(a.shape, dtype)
    compute = dtypes.compute_type(dtype)
    before, n, after = outer(a.shape, axis)
    if after == 1:
        plan = softmax_plan.rows(before, n, dtype, launch.is_aligned(a, b, out), 1 if a is b else 2)
        kernel = _program.kernel("rows", name, dtype, compute, plan.width, plan.packs, plan.warp, plan.integer)
        kernel(plan.grid, plan.block, (plan.integer.type(before), plan.integer.type(n), a, b, out))
    else:
        index = softmax_plan.columns_index(before, n, after)
        kernel = _program.kernel("columns", name, dtype, compute, index)
        count = before * after
        sizes = (index.type(count), index.type(n), index.type(after))
        kernel((launch.blocks(count, THREADS),), (THREADS,), (*sizes, a, b, out))
    return out


def softmax(x: Any, axis: int = -1) -> Any:
    return _along("op::softmax", reference.softmax, x, None, axis)


def softmax_grad(dy: Any, y: Any, axis: int = -1) -> Any:
    return _along("op::softmax_grad", reference.softmax_grad, dy, y, axis)


def log_softmax(x: Any, axis: int = -1) -> Any:
    return _along("op::log_softmax", reference.log_softmax, x, None, axis)


def log_softmax_grad(dy: Any, y: Any, axis: int = -1) -> Any:
    return _along("op::log_softmax_grad", reference.log_softmax_grad, dy, y, axis)


def cross_entropy(x: Any, target: Any, ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """As the reference, but that a target which is no class makes its row's loss NaN: the host is not asked."""
    dtype = x.dtype
    if dtype not in dtypes.FLOATS or not x.size:
        return reference.cross_entropy(x, target, ignore_index, label_smoothing)
    count, n = x.shape
    x, classes = plain(x), plain(target.astype(np.int64, copy=False))
    loss, lse = cupy.empty(count, dtype), cupy.empty(count, np.float64)
    plan = softmax_plan.rows(count, n, dtype, launch.is_aligned(x), 0)
    kernel = _program.kernel("cross_entropy", dtype, dtypes.compute_type(dtype), plan.width, plan.warp, plan.integer)
    sizes = (plan.integer.type(count), plan.integer.type(n))
    options = (np.int64(ignore_index), np.float64(label_smoothing))
    kernel(plan.grid, plan.block, (*sizes, x, classes, loss, lse, *options))
    return loss, lse


def cross_entropy_grad(
    dy: Any, x: Any, target: Any, lse: Any, ignore_index: int = -100, label_smoothing: float = 0.0
) -> Any:
    dtype = x.dtype
    if dtype not in dtypes.FLOATS or not x.size:
        return reference.cross_entropy_grad(dy, x, target, lse, ignore_index, label_smoothing)
    n = x.shape[1]
    dy, x, classes = plain(dy.astype(dtype, copy=False)), plain(x), plain(target.astype(np.int64, copy=False))
    dx = cupy.empty(x.shape, dtype)
    width = launch.width(dtype.itemsize, n) if launch.is_aligned(x, dx) else 1
    index = launch.index_type(x.size)
    kernel = _program.kernel("cross_entropy_grad", dtype, dtypes.compute_type(dtype), width, index)
    options = (np.int64(ignore_index), np.float64(label_smoothing))
    grid = (launch.blocks(x.size // width, THREADS),)
    kernel(grid, (THREADS,), (index.type(x.size), index.type(n), dy, x, classes, lse, dx, *options))
    return dx


check_target = reference.check_target
