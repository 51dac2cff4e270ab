"""Brings arrays into the kernels' form: dense, and two arrays in one memory order. Kernels do not see strides."""

from __future__ import annotations

from math import prod
from typing import Any

from minorm.kernels.gpu import copying
from minorm.kernels.order import is_dense, memory_order

__all__ = ["arranged", "dense", "is_dense", "memory_order", "outer", "plain"]

plain = copying.in_rows  # x itself or a copy in C order
arranged = copying.in_order_of  # x itself or a copy in the memory order of another array of x's shape


def dense(x: Any) -> Any:
    """Return the array itself if it is dense, else a copy in its memory order."""
    return x if is_dense(x) else copying.copy(x)


def outer(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """Return (elements before, along, after) an axis of an array in C order."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
