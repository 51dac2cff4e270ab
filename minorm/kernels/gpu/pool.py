"""Pooling on CuPy arrays of the four float types: one launch each, see pool.cu. The reference does all else."""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu import launch
from minorm.kernels.gpu.operands import plain
from minorm.kernels.gpu.plans import window_struct
from minorm.kernels.gpu.plans.structs import unknown_windows, windows_of
from minorm.kernels.gpu.program import Program
from minorm.kernels.gpu.sums import middle
from minorm.kernels.reference import pool as reference
from minorm.kernels.reference.pool import output_shape, reached

__all__ = ["avg_backward", "avg_forward", "max_backward", "max_forward", "output_shape"]

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

THREADS = 256

_program = Program("pool.cu")


def _run(name: str, shape: Any, struct: Any, result: Any, *arguments: Any) -> None:
    """Launch one thread an element of `result`; arrays of `shape` may be larger."""
    index = launch.index_type(max(result.size, prod(shape)))
    kernel = _program.kernel(name, result.dtype, dtypes.compute_type(result.dtype), index)
    kernel((launch.blocks(result.size, THREADS),), (THREADS,), (struct, index.type(result.size), *arguments))


def max_forward(x: Any, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, ceil_mode: bool) -> tuple[Any, Any]:
    """(y, place of each maximum in its plane, int32)."""
    size = x.shape[2:]
    if not _covers(x, size):
        return reference.max_forward(x, kernel, stride, padding, dilation, ceil_mode)
    out = output_shape(size, kernel, stride, padding, dilation, ceil_mode)
    y, places = cupy.empty(x.shape[:2] + out, x.dtype), cupy.empty(x.shape[:2] + out, np.int32)
    if y.size:
        struct = _packed(size, out, kernel, stride, padding, dilation)
        _run("max_forward", x.shape, struct, y, plain(x), y, places)
    return y, places


def max_backward(dy: Any, indices: Any, x_shape: Ints, how: Any = None) -> Any:
    """Each dy goes to the place its maximum came from; `how` is (kernel, stride, padding, dilation).

    Where that is not given, every window of a plane is asked for every place: as exact, and slow.
    """
    size, out = x_shape[2:], dy.shape[2:]
    if not _covers(dy, size):
        return reference.max_backward(dy, indices, x_shape)
    struct = unknown_windows(prod(size), prod(out)) if how is None else _packed(size, out, *how)
    dx = cupy.empty(x_shape, dy.dtype)
    if dx.size:
        _run("max_backward", dy.shape, struct, dx, plain(dy), plain(indices.astype(np.int32, copy=False)), dx)
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
    """The mean over every window."""
    size = x.shape[2:]
    if not _covers(x, size):
        return reference.avg_forward(x, kernel, stride, padding, dilation, ceil_mode, count_include_pad, divisor)
    out = output_shape(size, kernel, stride, padding, dilation, ceil_mode)
    whole = reached(size, kernel, padding, dilation) == size and prod(out) == 1
    if whole and not any(low or high for low, high in padding) and set(dilation) <= {1}:
        planes, plane = prod(x.shape[:2]), prod(size)  # a mean of all of a plane: more than one thread for each
        return middle(plain(x), (planes, plane, 1), x.dtype, divisor or plane).reshape(x.shape[:2] + out)
    y = cupy.empty(x.shape[:2] + out, x.dtype)
    if y.size:
        struct = _packed(size, out, kernel, stride, padding, dilation)
        options = np.bool_(count_include_pad), np.int32(divisor or 0)
        _run("avg_forward", x.shape, struct, y, plain(x), y, *options)
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
) -> Any:
    """Each dy, divided, goes to every place its window met."""
    size, out = x_shape[2:], dy.shape[2:]
    if not _covers(dy, size):
        return reference.avg_backward(dy, x_shape, kernel, stride, padding, dilation, count_include_pad, divisor)
    dx = cupy.empty(x_shape, dy.dtype)
    if dx.size:
        struct = _packed(size, out, kernel, stride, padding, dilation)
        options = np.bool_(count_include_pad), np.int32(divisor or 0)
        _run("avg_backward", dy.shape, struct, dx, plain(dy), dx, *options)
    return dx


def _packed(size: Ints, out: Ints, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """The windows without the taps that meet nothing: a kernel may be far larger than x."""
    return windows_of(size, out, reached(size, kernel, padding, dilation), stride, padding, dilation)


def _covers(x: Any, size: Ints) -> bool:
    """Is there something to compute, of a type and size that the kernels know?"""
    return x.dtype in dtypes.FLOATS and x.size > 0 and len(size) <= 3 and prod(size) < window_struct.LARGEST
