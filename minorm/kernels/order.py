"""Gives results the memory order of the arguments. NumPy's elementwise functions keep this order, but CuPy's do not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = Any


def in_order(formula: Callable[..., Array], *arrays: Array) -> Array:
    """Return formula(*arrays), in the memory order of the first array that is not in C order. `formula` is elementwise.

    CuPy returns results in C order, whatever the order of the arguments. So the formula gets views whose axes are
    sorted from the longest step to the shortest, and the result is transposed back.
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
    """Return formula(*arrays, axis) for arrays of one shape, in the memory order that `in_order` chooses."""
    if type(arrays[0]) is np.ndarray:
        return formula(*arrays, axis)
    order = _order(arrays)
    if order is None:
        return formula(*arrays, axis)
    result = formula(*[a.transpose(order) for a in arrays], order.index(axis % len(order)))
    return result.transpose([order.index(i) for i in range(len(order))])


def _order(arrays: Sequence[Array]) -> list[int] | None:
    """Return the axes of the result, sorted from the longest step to the shortest, or None for C order."""
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
    """Return the axes, sorted from the longest step to the shortest."""
    return sorted(range(x.ndim), key=lambda axis: (-x.strides[axis], axis))


def is_in_rows(x: Any) -> bool:
    """Return True if x is in C order without gaps.

    CuPy's x.flags makes an object with all flags. This takes several times as long as CuPy's own attribute, which NumPy
    lacks.
    """
    found = getattr(x, "_c_contiguous", None)
    return x.flags.c_contiguous if found is None else found


def is_dense(x: Any) -> bool:
    """Return True if the elements are in memory without gaps, in any order of the axes, such as channels-last."""
    return is_in_rows(x) or _has_no_gaps(x.shape, x.strides, x.itemsize)


@functools.lru_cache(maxsize=4096)
def _has_no_gaps(shape: tuple[int, ...], strides: tuple[int, ...], step: int) -> bool:
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length != 1:
            if stride != step:
                return False
            step *= length
    return True
