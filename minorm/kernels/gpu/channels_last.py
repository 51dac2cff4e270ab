"""Memory orders of images (N, C, *spatial) and weights: C order, or channels last, the order that tensor cores read."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import cupy

from minorm.kernels.gpu import copying, launch, memory

Ints = tuple[int, ...]


@functools.lru_cache(maxsize=4096)
def lies(shape: Ints, strides: Ints, itemsize: int, last: bool) -> bool:
    """Return True if an array without gaps is in C order, or with last=True, if its channels are last in memory.

    Both can be true of the same array.
    """
    wanted = strides_of(shape, itemsize, last)
    return all(n == 1 or a == b for n, a, b in zip(shape, strides, wanted, strict=True))


def only_last(shape: Ints, strides: Ints, itemsize: int) -> bool:
    """Return True if the channels are last in memory and the array is not also in C order."""
    return lies(shape, strides, itemsize, True) and not lies(shape, strides, itemsize, False)


@functools.lru_cache(maxsize=4096)
def strides_of(shape: Ints, itemsize: int, last: bool) -> Ints:
    """Return the strides, in bytes, of a dense array in C order. With last=True, the channels are last in memory."""
    order = [0, *range(2, len(shape)), 1] if last else list(range(len(shape)))
    steps, step = [0] * len(shape), itemsize
    for axis in reversed(order):
        steps[axis] = step
        step *= shape[axis]
    return tuple(steps)


def empty(shape: Ints, dtype: Any, strides: Ints | None) -> Any:
    """Allocate an array with the given strides, or in C order if `strides` is None.

    The array is not a view, so autograd can keep it as a gradient without a copy.
    """
    if strides is None:
        return memory.empty(shape, dtype)
    return cupy.ndarray(shape, dtype, cupy.cuda.alloc(prod(shape) * dtype.itemsize), strides)


def in_order(x: Any, last: bool) -> Any:
    """Return x itself if it has the wanted memory order and starts at a multiple of 16 bytes, else a copy.

    The wanted order is C order, or with last=True, an order in which the channels are last.
    """
    if lies(x.shape, x.strides, x.itemsize, last) and launch.is_aligned(x):
        return x
    if not last:
        return _copy(x)
    axes = x.ndim
    return _copy(x.transpose(0, *range(2, axes), 1)).transpose(0, axes - 1, *range(1, axes - 1))


def laid(x: Any, last: bool) -> Any:
    """Return x itself if it is in C order, or with last=True, if its channels are last, else a copy in this order.

    The copy is not a view, so it can be a parameter's memory.
    """
    if lies(x.shape, x.strides, x.itemsize, last):
        return x
    out = empty(x.shape, x.dtype, strides_of(x.shape, x.itemsize, last))
    copying.assign(out, x)
    return out


def cast(x: Any, dtype: Any) -> Any:
    """Return a copy in another type, with the channels last."""
    if lies(x.shape, x.strides, x.itemsize, True):
        return copying.cast(x, dtype)
    out = empty(x.shape, dtype, strides_of(x.shape, dtype.itemsize, True))
    copying.assign(out, x)
    return out


def _copy(x: Any) -> Any:
    """Return a copy in C order."""
    return copying.copy(x, "C")
