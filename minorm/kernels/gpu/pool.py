"""Pooling on CuPy arrays of the four float types. Each function is one launch (pool.cu). The reference computes
everything else.

Results keep the memory order of the input, C order or channels last.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu import channels_last, launch
from minorm.kernels.gpu.operands import plain
from minorm.kernels.gpu.plans import pool_plan, window_struct
from minorm.kernels.gpu.plans.structs import Struct
from minorm.kernels.gpu.program import Launch, Program, cached
from minorm.kernels.gpu.sums import middle
from minorm.kernels.reference import pool as reference
from minorm.kernels.reference.pool import has_channels_last, output_shape, reached

__all__ = ["avg_backward", "avg_forward", "max_backward", "max_forward", "output_shape"]

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

THREADS = 256

_program = Program("pool.cu")


def max_forward(x: Any, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, ceil_mode: bool) -> tuple[Any, Any]:
    """Return y, and the int32 index of each maximum in its plane."""
    size = x.shape[2:]
    if not _covers(x, size):
        return reference.max_forward(x, kernel, stride, padding, dilation, ceil_mode)
    last = _are_channels_last(x, size)
    out = output_shape(size, kernel, stride, padding, dilation, ceil_mode)
    y, places = (_empty(x.shape[:2] + out, dtype, last) for dtype in (x.dtype, dtypes.int32))
    if y.size:
        how = _met(size, kernel, stride, padding, dilation)
        _run("largest", False, _inner(x.shape, last), size, out, how, _memory_in_order(x, last), y, places)
    return y, places


def max_backward(dy: Any, indices: Any, x_shape: Ints, how: Any = None, last: bool | None = None) -> Any:
    """Return dx: each dy is added at the index of its maximum, and all other elements are 0.

    `how` is (kernel, stride, padding, dilation). If `how` is None, each element of dx looks through all windows of its
    plane, which gives the same result but is slow. With last=True, dx's channels are last in memory. If `last` is None,
    dx has the memory order of `indices`.
    """
    size, out = x_shape[2:], dy.shape[2:]
    if not _covers(dy, size):
        return reference.max_backward(dy, indices, x_shape)
    last = _are_channels_last(indices, size) if last is None else last and _fits_int(x_shape)
    dx = _empty(x_shape, dy.dtype, last)
    if dx.size:
        places = _memory_in_order(indices.astype(np.int32, copy=False), last)
        how = how and _met(size, *how)
        _run("largest", True, _inner(x_shape, last), size, out, how, _memory_in_order(dy, last), dx, places)
    return dx


def avg_forward(
    x: Any,
    kernel: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Any:
    """Return the mean over every window."""
    size = x.shape[2:]
    if not _covers(x, size):
        return reference.avg_forward(x, kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor)
    last = _are_channels_last(x, size)
    out = output_shape(size, kernel, stride, padding, dilation, ceil_mode)
    if _is_whole(size, out, kernel, padding, dilation):  # several threads for each sum
        inner = _inner(x.shape, last)
        stage = x.size // (prod(size) * inner), prod(size), inner
        return middle(_memory_in_order(x, last), stage, x.dtype, divisor or prod(size)).reshape(x.shape[:2] + out)
    y = _empty(x.shape[:2] + out, x.dtype, last)
    if y.size:
        how = _met(size, kernel, stride, padding, dilation)
        inner = _inner(x.shape, last)
        _run("mean", False, inner, size, out, how, _memory_in_order(x, last), y, None, count_include_pad, divisor)
    return y


def avg_backward(
    dy: Any,
    x_shape: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    count_include_pad: bool,
    divisor: int | None,
    last: bool | None = None,
) -> Any:
    """Return dx: each dy, divided by its window's divisor, is added to every element of the window.

    With last=True, dx's channels are last in memory. If `last` is None, dx has the memory order of dy.
    """
    size, out = x_shape[2:], dy.shape[2:]
    if not _covers(dy, size):
        return reference.avg_backward(dy, x_shape, kernel, stride, padding, dilation, count_include_pad, divisor)
    last = _are_channels_last(dy, size) if last is None else last and _fits_int(x_shape)
    dx = _empty(x_shape, dy.dtype, last)
    if not dx.size:
        return dx
    if _is_whole(size, out, kernel, padding, dilation):
        _spread(plain(dy), dx, _inner(x_shape, last), divisor or prod(size))
    else:
        how = _met(size, kernel, stride, padding, dilation)
        inner = _inner(x_shape, last)
        _run("mean", True, inner, size, out, how, _memory_in_order(dy, last), dx, None, count_include_pad, divisor)
    return dx


def _run(
    what: str,
    backward: bool,
    inner: int,
    size: Ints,
    out: Ints,
    how: Any,
    given: Any,
    result: Any,
    places: Any,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> None:
    """Launch one thread for each access of `result`. In memory, all arrays have the axes (images, positions, inner)."""
    sizes, aligned = (result.size, given.size), launch.is_aligned(given, result, places)
    run = _planned(what, backward, inner, size, out, how, result.dtype, sizes, aligned, count_include_pad, divisor)
    if backward:
        run(given, places, result)
    else:
        run(given, result, places)


@cached
def _planned(
    what: str,
    backward: bool,
    inner: int,
    size: Ints,
    out: Ints,
    how: Any,
    dtype: Any,
    sizes: tuple[int, int],
    aligned: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Launch:
    """Return the launch. `sizes` are the numbers of elements of the result and of the given array."""
    plan = pool_plan.plan(size, out, how, inner, dtype.itemsize, aligned, backward)
    index, same = launch.index_type(max(sizes)), 0
    if what == "mean":
        same = pool_plan.divisor_of_all(size, out, how, count_include_pad, divisor)
        what = "mean" if same else "uneven_mean"
    kernel = _program.kernel(plan.kernel, f"op::{what}", dtype, dtypes.compute_type(dtype), *plan.options, index)
    count = sizes[0] // (prod(size if backward else out) * inner) * plan.images
    options = np.bool_(count_include_pad), np.int32(same)
    grid = (launch.blocks(count, THREADS),)
    return Launch(kernel, grid, (THREADS,), (Struct(plan.fields), index.type(count)), options)


def _spread(dy: Any, dx: Any, inner: int, divisor: int) -> None:
    """Write each dy, divided by `divisor`, to all elements of its plane."""
    _planned_spread(dx.dtype, dx.size, dx.size // dy.size, inner, divisor)(dy, dx)


@cached
def _planned_spread(dtype: Any, n: int, plane: int, inner: int, divisor: int) -> Launch:
    index, width = launch.index_type(n), launch.ACCESS // dtype.itemsize
    kernel = _program.kernel("spread", dtype, dtypes.compute_type(dtype), width, index)
    before = Struct(pool_plan.spread(plane, inner)), index.type(n)
    return Launch(kernel, (launch.blocks(-(-n // width), THREADS),), (THREADS,), before, (np.int32(divisor),))


@cached
def _met(size: Ints, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> pool_plan.Windows:
    """Return the windows without the taps that never reach x. Such taps exist if the kernel is far larger than x."""
    return reached(size, kernel, padding, dilation), stride, padding, dilation


@cached
def _is_whole(size: Ints, out: Ints, kernel: Ints, padding: Pairs, dilation: Ints) -> bool:
    """Return True if there is a single window and it covers x exactly."""
    whole = prod(out) == 1 and reached(size, kernel, padding, dilation) == size
    return whole and not any(low or high for low, high in padding) and set(dilation) <= {1}


def _covers(x: Any, size: Ints) -> bool:
    """Return True if the array is not empty and has a type and size that the kernels know."""
    return x.dtype in dtypes.FLOATS and x.size > 0 and len(size) <= 3 and prod(size) < window_struct.LARGEST


def _are_channels_last(x: Any, size: Ints) -> bool:
    """Return True if x's channels are last in memory and the kernels can index images of this size."""
    return has_channels_last(x) and _fits_int((*x.shape[:2], *size))


def _fits_int(shape: Ints) -> bool:
    """Return True if the type int holds the indices of all elements of an image with all its channels."""
    return prod(shape[1:]) < window_struct.LARGEST


def _inner(shape: Ints, last: bool) -> int:
    """Return how many neighbours in memory belong to the same pixel: the channels if they are last, else 1."""
    return shape[1] if last else 1


def _empty(shape: Ints, dtype: Any, last: bool) -> Any:
    return channels_last.empty(shape, dtype, channels_last.strides_of(shape, dtype.itemsize, True) if last else None)


def _memory_in_order(x: Any, last: bool) -> Any:
    """Return x in C order, or with last=True with the channels last. Copy x if it has another memory order."""
    return plain(x.transpose(0, *range(2, x.ndim), 1) if last else x)
