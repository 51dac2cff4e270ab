"""Which order of memory a result has: NumPy's elementwise functions keep that of their arguments, CuPy's do not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any


def in_order(formula: Callable[..., Array], *arrays: Array) -> Array:
    """formula(*arrays), an elementwise one, in the order of memory of the first argument that is not in C order.

    CuPy gives results in C order, in whatever order the arguments lie. So it gets views of them whose axes lie from the
    longest step to the shortest, and the result is turned back.
    """
    if type(arrays[0]) is np.ndarray:
        return formula(*arrays)
    order = _order(arrays)
    if order is None:
        return formula(*arrays)
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    result = formula(*[a if a.ndim == 0 else np.broadcast_to(a, shape).transpose(order) for a in arrays])
    return result.transpose([order.index(axis) for axis in range(len(order))])


def in_order_along(axis: int, formula: Callable[..., Array], *arrays: Array) -> Array:
    """formula(*arrays, axis), of arrays of one shape, along an axis of theirs; in the order of memory as `in_order`."""
    if type(arrays[0]) is np.ndarray:
        return formula(*arrays, axis)
    order = _order(arrays)
    if order is None:
        return formula(*arrays, axis)
    result = formula(*[a.transpose(order) for a in arrays], order.index(axis % len(order)))
    return result.transpose([order.index(i) for i in range(len(order))])


def _order(arrays: Sequence[Array]) -> list[int] | None:
    """The axes of the result from the longest step to the shortest; None where C order will do."""
    if all(a.flags.c_contiguous for a in arrays):
        return None
    shape = np.broadcast_shapes(*[a.shape for a in arrays])
    for a in arrays:
        if a.shape == shape and not a.flags.c_contiguous:
            order = memory_order(a)
            if order != list(range(a.ndim)) and a.transpose(order).flags.c_contiguous:
                return order
    return None


def memory_order(x: Array) -> list[int]:
    """The axes from the longest step to the shortest."""
    return sorted(range(x.ndim), key=lambda axis: (-x.strides[axis], axis))


def is_dense(x: Any) -> bool:
    """Do the elements lie without gaps, in whatever order of the axes (channels-last is one)?"""
    return x.flags.c_contiguous or _has_no_gaps(x.shape, x.strides, x.itemsize)


@functools.lru_cache(maxsize=4096)
def _has_no_gaps(shape: tuple[int, ...], strides: tuple[int, ...], step: int) -> bool:
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length != 1:
            if stride != step:
                return False
            step *= length
    return True
