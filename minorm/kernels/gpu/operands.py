"""Arrays as kernels take them: dense, and two of them in one order of memory. Kernels do not see steps of arrays.

Only methods of the arrays are called, so that this needs no CuPy.
"""

from __future__ import annotations

from math import prod
from typing import Any


def plain(x: Any) -> Any:
    """The array itself if its elements lie in C order without gaps, else a copy that does."""
    return x if x.flags.c_contiguous else x.copy(order="C")


def is_dense(x: Any) -> bool:
    """Do the elements lie without gaps, in whatever order of the axes (channels-last is one)?"""
    flags = x.flags
    if flags.c_contiguous or flags.f_contiguous:
        return True
    step = x.itemsize
    for stride, length in sorted(zip(x.strides, x.shape, strict=True)):
        if length != 1:
            if stride != step:
                return False
            step *= length
    return True


def dense(x: Any) -> Any:
    """The array itself if it is dense, else a copy in C order."""
    return x if is_dense(x) else x.copy(order="C")


def arranged(x: Any, like: Any) -> Any:
    """`x` with its elements in the order of memory of `like`, an array of the same shape that is dense."""
    if x.strides == like.strides or (x.flags.c_contiguous and like.flags.c_contiguous):
        return x
    order = memory_order(like)
    back = [order.index(axis) for axis in range(len(order))]
    return plain(x.transpose(order)).transpose(back)


def memory_order(x: Any) -> list[int]:
    """The axes from the longest step to the shortest."""
    return sorted(range(x.ndim), key=lambda axis: (-x.strides[axis], axis))


def outer(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(elements before, along, after) an axis of an array in C order."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
