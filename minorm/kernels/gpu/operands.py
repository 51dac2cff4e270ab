"""Arrays as kernels take them: dense, and two of them in one order of memory. Kernels do not see steps of arrays."""

from __future__ import annotations

from math import prod
from typing import Any

from minorm.kernels.gpu import copying
from minorm.kernels.order import is_dense, memory_order

__all__ = ["arranged", "dense", "is_dense", "memory_order", "outer", "plain"]

plain = copying.in_rows  # x itself, or a copy of it, in C order
arranged = copying.in_order_of  # x itself, or a copy of it, in the order of memory of an array of its shape


def dense(x: Any) -> Any:
    """The array itself if it is dense, else a copy, in its order of memory."""
    return x if is_dense(x) else copying.copy(x)


def outer(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(elements before, along, after) an axis of an array in C order."""
    axis %= len(shape)
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
