"""Pooling as a loop over the positions (taps) in a window. Tap k of all windows is one strided view of the padded
input.

Max pooling keeps the largest value so far and its index in the plane, counted row by row as in PyTorch's
`return_indices`. Average pooling divides by the number of taps that count; this number is a product with one factor for
each axis. With ceil_mode, each window is used that starts in the input or in the padding before the input. So the last
window may reach beyond the end, and a window may be larger than x. Taps beyond the end never count.

Shapes: x (N, C, *spatial), y (N, C, *output). `padding` is a (low, high) pair for each axis; the other options have one
number for each axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minorm.devices.dtypes import FLOATS, compute_type

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def output_shape(size: Ints, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, ceil_mode: bool) -> Ints:
    """Return the number of windows along every axis."""
    result = []
    for x, k, s, (low, high), d in zip(size, kernel, stride, padding, dilation, strict=True):
        steps = x + low + high - d * (k - 1) - 1
        count = steps // s + 1
        if ceil_mode and steps % s and count * s < x + low:
            count += 1
        result.append(count)
    return tuple(result)


def reached(size: Ints, kernel: Ints, padding: Pairs, dilation: Ints) -> Ints:
    """Return the number of taps along each axis that can reach x or its padding. If a window is far larger than x, its
    other taps reach neither.
    """
    return tuple(
        max(1, min(k, (n + low + high - 1) // d + 1))
        for n, k, (low, high), d in zip(size, kernel, padding, dilation, strict=True)
    )


def has_channels_last(x: Any) -> bool:
    """Return True if the channels of x (N, C, *spatial) are last in memory and x is not also row-major."""
    if x.ndim < 3 or x.flags.c_contiguous:
        return False
    return bool(x.transpose(0, *range(2, x.ndim), 1).flags.c_contiguous)


def max_forward(x: Any, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, ceil_mode: bool) -> tuple[Any, Any]:
    """Return y, and the int32 index of each maximum in its plane. NaN is larger than any number. Of several equal
    maxima, the first is used.
    """
    size = x.shape[2:]
    out = output_shape(size, kernel, stride, padding, dilation, ceil_mode)
    lowest = -np.inf if x.dtype in FLOATS else np.iinfo(x.dtype).min
    y = np.full_like(x, lowest, shape=(*x.shape[:2], *out))
    indices = np.full_like(x, -1, np.int32, shape=y.shape)
    for inside, places, view in _taps(x, kernel, out, stride, padding, dilation):
        part = y[inside]
        better = (indices[inside] < 0) | (view > part) | (view != view)
        y[inside] = np.where(better, view, part)
        indices[inside] = np.where(better, places, indices[inside])
    return y, indices


def max_backward(
    dy: Any,
    indices: Any,
    x_shape: Ints,
    how: Any = None,  # noqa: ARG001  for a GPU
    last: bool | None = None,  # noqa: ARG001  for a GPU
) -> Any:
    """Return dx: each dy is added at the index of its maximum, and all other elements are 0.

    `how` is (kernel, stride, padding, dilation). This backend needs only the indices; a GPU also needs `how`, since
    each element of dx looks through its windows.
    """
    planes, plane = math.prod(x_shape[:2]), math.prod(x_shape[2:])
    dx = np.zeros_like(dy, compute_type(dy.dtype), shape=(planes, plane))
    flat = indices.reshape(planes, math.prod(dy.shape[2:]))
    row, column = np.nonzero(flat >= 0)
    np.add.at(dx, (row, flat[row, column]), dy.reshape(flat.shape)[row, column].astype(dx.dtype))
    return dx.reshape(x_shape).astype(dy.dtype)


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
    """Return the mean over every window. With count_include_pad=True, the divisor also counts the padding."""
    out = output_shape(x.shape[2:], kernel, stride, padding, dilation, ceil_mode)
    y = np.zeros_like(x, compute_type(x.dtype), shape=(*x.shape[:2], *out))
    for inside, _, view in _taps(x, kernel, out, stride, padding, dilation):
        y[inside] += view
    divisors = counts(x.shape[2:], out, kernel, stride, padding, dilation, count_include_pad, divisor, x)
    return (y / divisors).astype(x.dtype)


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
    """Return dx: each dy, divided by its window's divisor, is added to every element of the window.

    Only a GPU uses `last`.
    """
    dtype, out = compute_type(dy.dtype), dy.shape[2:]
    windows = kernel, stride, padding, dilation
    share = dy.astype(dtype) / counts(x_shape[2:], out, *windows, count_include_pad, divisor, dy)
    dx = np.zeros_like(dy, dtype, shape=x_shape)
    for inside, _, view in _taps(dx, kernel, out, stride, padding, dilation):
        view += share[inside]
    return dx.astype(dy.dtype)


def _taps(
    x: Any, kernel: Ints, out: Ints, stride: Ints, padding: Pairs, dilation: Ints
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield three things for each tap: the index of the windows in which the tap is inside x, the positions in the
    plane that the tap reads, and the view of x at these positions.
    """
    size = x.shape[2:]
    place = np.arange(math.prod(size), dtype=np.int32, like=x).reshape(size)
    for tap in itertools.product(*map(range, reached(size, kernel, padding, dilation))):
        inside, met = [], []
        for k, n, o, s, (low, _), d in zip(tap, size, out, stride, padding, dilation, strict=True):
            first = max(0, -((k * d - low) // s))  # the first window whose tap is not before the input
            last = min(o, (n - 1 + low - k * d) // s + 1)
            last = max(first, last)
            start = first * s + k * d - low
            inside.append(slice(first, last))
            met.append(slice(start, start + (last - first - 1) * s + 1 if last > first else start, s))
        yield (..., *inside), place[tuple(met)], x[(..., *met)]


def counts(
    size: Ints,
    out: Ints,
    kernel: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    count_include_pad: bool,
    divisor: int | None,
    like: Any = None,
) -> Any:
    """Return the divisors of the windows' sums, of shape `out`, on the device of `like`."""
    if divisor is not None:
        return divisor
    like = np.empty(0) if like is None else like
    result = np.ones_like(like, np.int64, shape=(1,)).reshape(())
    for n, o, k, s, (low, high), d in zip(size, out, kernel, stride, padding, dilation, strict=True):
        at = np.arange(o, like=like)[:, None] * s + np.arange(k, like=like) * d - low
        counted = (at < n + high) if count_include_pad else (at >= 0) & (at < n)
        result = result[..., None] * counted.sum(axis=1)
    return np.maximum(result, 1)
