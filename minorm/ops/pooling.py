"""Pooling: every window of the input becomes one number, its maximum or its average."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from minorm import dtypes
from minorm.autograd import Function
from minorm.kernels.select import backend, contiguous, device_of, to_device

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


class MaxPool(Function):
    """The largest element of every window; with return_indices also its place in the plane, int64."""

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
        self.shape, self.how = x.shape, (kernel, stride, padding, dilation)
        y, self.indices = backend(x).pool.max_forward(x, kernel, stride, padding, dilation, ceil_mode)
        return (y, self.indices.astype(np.int64)) if return_indices else y

    def backward(self, dy: Any, _: Any = None) -> Any:
        return backend(dy).pool.max_backward(dy, self.indices, self.shape, self.how)


class AvgPool(Function):
    """The mean of every window, or its sum over `divisor`."""

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
        self.shape = x.shape
        self.windows, self.divide = (kernel, stride, padding, dilation), (count_include_pad, divisor)
        return backend(x).pool.avg_forward(x, *self.windows, ceil_mode, *self.divide)

    def backward(self, dy: Any) -> Any:
        return backend(dy).pool.avg_backward(dy, self.shape, *self.windows, *self.divide)


class AdaptiveAvgPool(Function):
    """y = A_0 x A_1^T: along every axis, row i of A averages from floor(i * n / o) to before ceil((i + 1) * n / o)."""

    def forward(self, x: Any, *, output: Ints) -> Any:
        self.shape, self.output = x.shape, output
        compute = dtypes.compute_type(x.dtype)
        y = x.astype(compute, copy=False)
        for axis, (n, o) in enumerate(zip(x.shape[2:], output, strict=True), start=2):
            y = _along(y, _averages(n, o, compute, device_of(x)), axis)
        return contiguous(y.astype(x.dtype, copy=False))

    def backward(self, dy: Any) -> Any:
        compute = dtypes.compute_type(dy.dtype)
        dx = dy.astype(compute, copy=False)
        for axis, (n, o) in enumerate(zip(self.shape[2:], self.output, strict=True), start=2):
            dx = _along(dx, _averages(n, o, compute, device_of(dy)).T, axis)
        return contiguous(dx.astype(dy.dtype, copy=False))


@functools.lru_cache(maxsize=64)
def _averages(n: int, o: int, dtype: Any, device: str) -> Any:
    """The matrix (o, n) whose row i holds 1 / length over its part of the axis."""
    i, place = np.arange(o)[:, None], np.arange(n)
    inside = (place >= i * n // o) & (place < -(-(i + 1) * n // o))
    return to_device((inside / inside.sum(axis=1, keepdims=True)).astype(dtype), device)


def _along(x: Any, matrix: Any, axis: int) -> Any:
    """`matrix` applied to one axis."""
    lead, n, rest = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    matmul = backend(x).matmul.matmul
    if prod(rest) == 1:
        y = matmul(x.reshape(prod(lead), n), matrix.T)
    else:
        y = matmul(matrix, x.reshape(prod(lead), n, prod(rest)))
    return y.reshape(*lead, len(matrix), *rest)
