"""Pooling on the CPU, by minorm_ext/pool/pool.pyx for float32 and float64, and by the reference for other types.

16-bit floats compute in float32, and the result is rounded once.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import minorm_ext
from minorm.devices.dtypes import BYTES, HALVES, float32, float64
from minorm.kernels.cpu.memory import empty
from minorm.kernels.cpu.operands import plain
from minorm.kernels.reference import pool as reference
from minorm.kernels.reference.pool import output_shape, reached

__all__ = ["avg_backward", "avg_forward", "max_backward", "max_forward", "output_shape"]

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

_kernel: Any = minorm_ext.kernels("pool")


def max_forward(x: Any, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, ceil_mode: bool) -> tuple[Any, Any]:
    """Return y, and the int32 index of each maximum in its plane."""
    if x.dtype in HALVES or x.dtype in BYTES:  # float32 holds them exactly
        y, indices = max_forward(x.astype(float32), kernel, stride, padding, dilation, ceil_mode)
        if x.dtype in BYTES:  # a window that has only padding gives -inf
            y = np.maximum(y, np.iinfo(x.dtype).min)
        return y.astype(x.dtype), indices
    if not _covers(x) or math.prod(x.shape[2:]) >= 1 << 31:
        return reference.max_forward(x, kernel, stride, padding, dilation, ceil_mode)
    out = output_shape(x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    windows = _windows(x.shape[2:], out, kernel, stride, padding, dilation, True, None, x.dtype)
    shape, planes = x.shape[:2] + out, x.shape[0] * x.shape[1]
    y, indices = empty(shape, x.dtype), empty(shape, np.int32)
    _kernel.max_forward(windows, plain(x), y, indices, x.itemsize, planes, minorm_ext.get_num_threads())
    return y, indices


def max_backward(
    dy: Any,
    indices: Any,
    x_shape: Ints,
    how: Any = None,
    last: bool | None = None,  # noqa: ARG001  for a GPU
) -> Any:
    """Return dx: each dy is added at the index of its maximum, and all other elements are 0."""
    if dy.dtype in HALVES:
        return max_backward(dy.astype(float32), indices, x_shape, how).astype(dy.dtype)
    if not _covers(dy):
        return reference.max_backward(dy, indices, x_shape, how)
    dx = empty(x_shape, dy.dtype)
    planes = x_shape[0] * x_shape[1]
    windows = _lengths(math.prod(x_shape[2:]), math.prod(dy.shape[2:]))
    _kernel.max_backward(windows, plain(dy), indices, dx, dy.itemsize, planes, minorm_ext.get_num_threads())
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
    if x.dtype in HALVES:
        wide = x.astype(float32)
        y = avg_forward(wide, kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor)
        return y.astype(x.dtype)
    if not _covers(x):
        return reference.avg_forward(x, kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor)
    out = output_shape(x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    windows = _windows(x.shape[2:], out, kernel, stride, padding, dilation, count_include_pad, divisor, x.dtype)
    y = empty(x.shape[:2] + out, x.dtype)
    _kernel.avg_forward(windows, plain(x), y, x.itemsize, x.shape[0] * x.shape[1], minorm_ext.get_num_threads())
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
    last: bool | None = None,  # noqa: ARG001  for a GPU
) -> Any:
    """Return dx: each dy, divided by its window's divisor, is added to every element of the window."""
    if dy.dtype in HALVES:
        dx = avg_backward(dy.astype(float32), x_shape, kernel, stride, padding, dilation, count_include_pad, divisor)
        return dx.astype(dy.dtype)
    if not _covers(dy):
        return reference.avg_backward(dy, x_shape, kernel, stride, padding, dilation, count_include_pad, divisor)
    windows = _windows(
        x_shape[2:], dy.shape[2:], kernel, stride, padding, dilation, count_include_pad, divisor, dy.dtype
    )
    threads = minorm_ext.get_num_threads()
    dx, rows = empty(x_shape, dy.dtype), empty((threads, dy.shape[-1]), dy.dtype)
    _kernel.avg_backward(windows, plain(dy), dx, rows, dy.itemsize, x_shape[0] * x_shape[1], threads)
    return dx


@functools.lru_cache(maxsize=256)
def _windows(
    size: Ints,
    out: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    count_include_pad: bool,
    divisor: int | None,
    dtype: Any,
) -> Any:
    """Return the kernel's object Windows, which always has three axes. Missing leading axes have length 1."""
    kernel = reached(size, kernel, padding, dilation)
    axes: list[Ints] = [(1, 1, 1, 1, 0, 1)] * (3 - len(size))
    axes += [
        (n, o, k, s, low, d)
        for n, o, k, s, (low, _), d in zip(size, out, kernel, stride, padding, dilation, strict=True)
    ]
    n, o, k, s, low, d = axes[-1]
    at = np.arange(o)[:, None] * s + np.arange(k) * d - low
    inside = (at >= 0) & (at < n)
    first = np.where(inside, at, n).min(axis=1)
    windows = np.arange(o)[:, None]
    begin, end = np.where(inside, windows, o).min(axis=0), np.where(inside, windows + 1, 0).max(axis=0)
    counts = reference.counts(size, out, kernel, stride, padding, dilation, count_include_pad, divisor)
    return _kernel.Windows(
        tuple(axes),
        np.stack([at[0], begin, end], axis=1).astype(np.intp),
        np.where(first < n, first, -1).astype(np.int32),
        np.ascontiguousarray(np.broadcast_to(counts, out), dtype),
    )


@functools.lru_cache(maxsize=256)
def _lengths(source: int, results: int) -> Any:
    """Return an object Windows for a kernel that reads only the sizes of the planes."""
    axis = (1, 1, 1, 1, 0, 1)
    axes = ((source, results, 1, 1, 0, 1), axis, axis)
    return _kernel.Windows(axes, np.zeros((1, 3), np.intp), np.zeros(1, np.int32), np.ones(1, np.float32))


def _covers(x: Any) -> bool:
    """Return True if the array is not empty and has a type that the kernel knows."""
    return x.dtype in (float32, float64) and x.size > 0
