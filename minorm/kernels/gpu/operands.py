"""Brings arrays into the form that kernels read. Kernels do not get strides, so arrays must be dense, and two arrays
must have the same memory order.
"""

from __future__ import annotations

from math import prod
from typing import Any

from minorm.kernels.gpu import copying
from minorm.kernels.order import is_dense, memory_order

__all__ = ["arranged", "dense", "is_dense", "memory_order", "outer", "plain"]

plain = copying.in_rows  # x itself or a copy in C order
arranged = copying.in_order_of  # x itself or a copy in the memory order of another array of x's shape


def dense(x: Any) -> Any:
    """Return the array itself if it is dense, else a dense copy in its memory order."""
    return x if is_dense(x) else copying.copy(x)


def outer(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Return the products of the lengths before, along and after an axis."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
