"""Pooling: every window of the input becomes one number, the window's maximum or average."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minorm.devices import constant_of, dtypes
from minorm.graph.expressions import LinearMap
from minorm.graph.graph import Function
from minorm.kernels.reference.pool import (  # noqa: F401  the lengths of results, for checks elsewhere
    has_channels_last,
    output_shape,
    reached,
)
from minorm.kernels.select import backend, contiguous

ALL = slice(None)
Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


class MaxPool(Function):
    """The largest element of every window.

    With return_indices=True, the result also has the int64 index of each of these elements in its plane.
    """

    fresh = (0,)

    def forward(
        self,
        x: Any,
        *,
        kernel: Ints,
        stride: Ints,
        padding: Pairs,
        dilation: Ints,
        ceil_mode: bool,
        return_indices: bool,
    ) -> Any:
        self.shape, self.how, self.last = x.shape, (kernel, stride, padding, dilation), has_channels_last(x)
        y, self.indices = backend(x).pool.max_forward(x, kernel, stride, padding, dilation, ceil_mode)
        return (y, self.indices.astype(np.int64)) if return_indices else y

    def backward(self, dy: Any, _: Any = None) -> Any:
        return backend(dy).pool.max_backward(dy, self.indices, self.shape, self.how, self.last)

    def gradient(self, dy: Any, _: Any = None) -> Any:
        return LinearMap.apply(dy, of=self, there=self.backward, back=self.read)

    def read(self, dx: Any) -> Any:
        """Return the elements of dx at the indices of the maxima."""
        places = self.indices.astype(np.int64).reshape(*self.shape[:2], -1)
        return np.take_along_axis(dx.reshape(*self.shape[:2], -1), places, -1).reshape(self.indices.shape)


class AvgPool(Function):
    """The mean of every window. If `divisor` is given, the sum of a window is divided by `divisor` instead."""

    def forward(
        self,
        x: Any,
        *,
        kernel: Ints,
        stride: Ints,
        padding: Pairs,
        dilation: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None,
    ) -> Any:
        self.shape, self.last = x.shape, has_channels_last(x)
        self.windows, self.divide = (kernel, stride, padding, dilation), (count_include_pad, divisor)
        self.ceil_mode = ceil_mode
        return backend(x).pool.avg_forward(x, *self.windows, ceil_mode, *self.divide)

    def backward(self, dy: Any) -> Any:
        return backend(dy).pool.avg_backward(dy, self.shape, *self.windows, *self.divide, self.last)

    def gradient(self, dy: Any) -> Any:
        def averaged(dx: Any) -> Any:
            return backend(dx).pool.avg_forward(dx, *self.windows, self.ceil_mode, *self.divide)

        return LinearMap.apply(dy, of=self, there=self.backward, back=averaged)


class AdaptiveAvgPool(Function):
    """Along every axis, y[i] is the mean of x from floor(i * n / o) to ceil((i + 1) * n / o) - 1.

    y could also be the product A_0 x A_1^T with matrices of averages, but a product multiplies elements outside a part
    by 0, and 0 * NaN is NaN. So elements are added up: the first elements of all parts, then the second elements, and
    so on.
    """

    def forward(self, x: Any, *, output: Ints) -> Any:
        self.shape = x.shape
        return _averaged(x, x.shape[2:], output, _forward)

    def backward(self, dy: Any) -> Any:
        return _averaged(dy, self.shape[2:], dy.shape[2:], _backward)

    def gradient(self, dy: Any) -> Any:
        output = dy.shape[2:]
        return LinearMap.apply(
            dy, of=self, there=self.backward, back=lambda dx: _averaged(dx, self.shape[2:], output, _forward)
        )


def _averaged(x: Any, sizes: Ints, output: Ints, step: Any) -> Any:
    """Apply `step` along each axis, one after the other."""
    y = x.astype(dtypes.compute_type(x.dtype), copy=False)
    for axis, (n, o) in enumerate(zip(sizes, output, strict=True), start=2):
        y = step(y, n, o, axis)
    return contiguous(y.astype(x.dtype, copy=False))


def _forward(x: Any, n: int, o: int, axis: int) -> Any:
    return _sums_of_parts(x, o, axis) / _lengths(n, o, x, axis)


def _backward(dy: Any, n: int, o: int, axis: int) -> Any:
    """Return dx. Element j of x is in the parts from floor(j * o / n) to ceil((j + 1) * o / n) - 1. So dx is also a sum
    over parts: the o elements of dy are divided into n parts.
    """
    return _sums_of_parts(dy / _lengths(n, o, dy, axis), n, axis)


def _sums_of_parts(x: Any, o: int, axis: int) -> Any:
    """Return the sums of the o parts of an axis. Each part is added up from its first element to its last."""
    y: Any = None
    for parts, places in _steps(x.shape[axis], o):
        step = x.take(constant_of(places, x), axis)
        if y is None:
            y = step
        else:
            y[(*(slice(None),) * axis, parts if parts is ALL else constant_of(parts, x))] += step
    return y


def _lengths(n: int, o: int, like: Any, axis: int) -> Any:
    """Return the lengths of the parts along `axis`, in the type and on the device of `like`."""
    first, end = _bounds(n, o)
    shape = [-1 if i == axis else 1 for i in range(like.ndim)]
    return constant_of((end - first).astype(like.dtype), like).reshape(shape)


def _bounds(n: int, o: int) -> tuple[Any, Any]:
    """Return, for each part, the index of its first element and the index after its last element."""
    i = np.arange(o)
    return i * n // o, -(-(i + 1) * n // o)


@functools.lru_cache(maxsize=64)
def _steps(n: int, o: int) -> list[tuple[Any, Any]]:
    """Return, for k = 0, 1, ..., the parts that have an element number k, and the indices of these elements.

    If all parts have an element number k, they are given as a slice.
    """
    first, end = _bounds(n, o)
    steps = []
    for k in range((end - first).max()):
        parts = np.flatnonzero(first + k < end)
        steps.append((ALL if len(parts) == o else parts, first[parts] + k))
    return steps
