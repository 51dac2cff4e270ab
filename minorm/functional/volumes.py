"""Pooling beyond windows of one size: adaptive maxima, means of volumes, Lp norms, and the way back from a maximum.

All work on (N, C, *lengths); the adaptive ones and the way back also without the batch axis.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm import trace
from minorm.functional.activation import relu
from minorm.functional.arguments import floats
from minorm.functional.pooling import IntOrInts, _adaptive, avg_pool1d, avg_pool2d, avg_pool3d
from minorm.functional.scatter import scatter
from minorm.functional.windows import ints
from minorm.tensor import Tensor

OutputSize = int | Sequence[int | None]


@trace.operation
def adaptive_avg_pool3d(input: Tensor, output_size: OutputSize) -> Tensor:
    """input (N, C, D, H, W): means of output_size parts of each axis. As `adaptive_avg_pool2d`."""
    return batched("adaptive_avg_pool3d", 3, input, lambda x: _adaptive("adaptive_avg_pool3d", 3, x, output_size))


@trace.operation
def adaptive_max_pool1d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """input (N, C, L): the largest element of each of output_size parts of the axis. As `adaptive_max_pool2d`."""
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


@trace.operation
def adaptive_max_pool2d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """input (N, C, H, W): the largest element of each of output_size parts of each axis; None keeps an axis.

    Part i of o runs from floor(i * n / o) to before ceil((i + 1) * n / o). return_indices: also the place h * W + w of
    each maximum, the first of equals.
    """
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


@trace.operation
def adaptive_max_pool3d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """input (N, C, D, H, W): the largest element of each of output_size parts. As `adaptive_max_pool2d`."""
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


@trace.operation
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: int, stride: int | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) over each window, p = norm_type."""
    return _lp("lp_pool1d", 1, avg_pool1d, input, norm_type, kernel_size, stride, ceil_mode)


@trace.operation
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) over each window, p = norm_type."""
    return _lp("lp_pool2d", 2, avg_pool2d, input, norm_type, kernel_size, stride, ceil_mode)


@trace.operation
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: IntOrInts, stride: IntOrInts | None = None, ceil_mode: bool = False
) -> Tensor:
    """(sum of x^p)^(1/p) over each window, p = norm_type."""
    return _lp("lp_pool3d", 3, avg_pool3d, input, norm_type, kernel_size, stride, ceil_mode)


@trace.operation
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros, and the elements of input where max_pool1d(return_indices=True) found them. As `max_unpool2d`."""
    return _unpool("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


@trace.operation
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros, and the elements of input where max_pool2d(return_indices=True) found them.

    The lengths are those that the pooling most likely came from, (n - 1) * stride - 2 * padding + kernel_size, or
    output_size, which may be less than a stride away.
    """
    return _unpool("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


@trace.operation
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: IntOrInts = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Zeros, and the elements of input where max_pool3d(return_indices=True) found them. As `max_unpool2d`."""
    return _unpool("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)


def batched(name: str, rank: int, x: Any, function: Callable[[Tensor], Any]) -> Any:
    """function(x), for an x without a batch axis too."""
    floats(name, input=x)
    if x.ndim not in (rank + 1, rank + 2):
        raise ValueError(f"{name}: input has shape {x.shape}; expected {rank + 2} axes (N, C, ...), or {rank + 1}")
    if x.ndim == rank + 2:
        return function(x)
    result = function(x.unsqueeze(0))
    return tuple(part.squeeze(0) for part in result) if isinstance(result, tuple) else result.squeeze(0)


def _adaptive_max(name: str, rank: int, x: Tensor, output_size: OutputSize, return_indices: bool) -> Any:
    def pool(x: Tensor) -> Any:
        lengths = x.shape[2:]
        wanted = tuple(output_size) if isinstance(output_size, (tuple, list)) else output_size
        if isinstance(wanted, tuple) and len(wanted) == rank:
            wanted = tuple(n if o is None else o for n, o in zip(lengths, wanted, strict=True))
        output = ints(name, "output_size", wanted, rank)
        if 0 in lengths:
            raise ValueError(f"{name}: input has shape {x.shape}; expected at least 1 along every spatial axis")
        places = _parts(lengths, output)
        rows = x.reshape(*x.shape[:2], math.prod(lengths))
        parts = rows[:, :, places.reshape(-1)].reshape(*x.shape[:2], *places.shape)
        values, found = parts.max(-1)
        if not return_indices:
            return values
        with_batch = np.broadcast_to(places, (*x.shape[:2], *places.shape))
        return values, Tensor(with_batch).to(x.device).gather(-1, found.unsqueeze(-1)).squeeze(-1)

    return batched(name, rank, x, pool)


@functools.lru_cache(maxsize=64)
def _parts(lengths: tuple[int, ...], output: tuple[int, ...]) -> Any:
    """(*output, k): the places of each part in the plane; a shorter part repeats its last element."""
    places: Any = np.zeros((1,) * len(lengths) * 2, np.int64)
    for axis, (n, o) in enumerate(zip(lengths, output, strict=True)):
        i = np.arange(o)
        first, end = i * n // o, -(-(i + 1) * n // o)
        steps = np.minimum(first[:, None] + np.arange((end - first).max()), end[:, None] - 1)
        shape = [1] * (2 * len(lengths))
        shape[axis], shape[len(lengths) + axis] = steps.shape
        places = places * n + steps.reshape(shape)
    return places.reshape(*output, -1)


def _lp(name: str, rank: int, average: Any, x: Any, p: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Any:
    kernel = ints(name, "kernel_size", kernel_size, rank)

    def pool(x: Tensor) -> Tensor:
        mean = average(x**p, kernel, stride, 0, ceil_mode)
        size = relu(mean.abs())
        sign = Tensor(np.sign(mean.array))
        return (size * sign * math.prod(kernel)) ** (1.0 / p)

    return batched(name, rank, x, pool)


def _unpool(
    name: str, rank: int, x: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any
) -> Any:
    kernel = ints(name, "kernel_size", kernel_size, rank)
    strides = kernel if stride is None else ints(name, "stride", stride, rank)
    paddings = ints(name, "padding", padding, rank, least=0)
    floats(name, input=x)
    if not isinstance(indices, Tensor) or indices.dtype.kind not in "iu" or indices.shape != x.shape:
        raise ValueError(f"{name}: indices are {getattr(indices, 'dtype', type(indices).__name__)} of shape "
                         f"{getattr(indices, 'shape', '?')}; expected integers of shape {x.shape}")  # fmt: skip
    lengths = tuple(
        (n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[-rank:], strides, paddings, kernel, strict=True)
    )
    if output_size is not None:
        wanted = tuple(output_size)[-rank:]
        if any(abs(w - n) >= s for w, n, s in zip(wanted, lengths, strides, strict=True)):
            raise ValueError(f"{name}: output_size is {tuple(output_size)}; expected less than a stride from {lengths}")
        lengths = wanted

    lead, count = x.shape[:-rank], math.prod(x.shape[-rank:])
    zeros = Tensor(np.zeros_like(x.array, shape=(*lead, math.prod(lengths))))
    found = scatter(zeros, -1, indices.reshape(*lead, count), x.reshape(*lead, count))
    return found.reshape(*lead, *lengths)
