"""Copies and fills arrays, with one NumPy call in each function: casts, changes the memory order, or broadcasts into an
array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["assign", "cast", "concatenate", "copy", "fill", "full", "full_like", "in_rows", "pad", "reshaped"]

WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}  # bytes -> a type that NumPy moves as a whole


def assign(to: Any, x: Any) -> None:
    """Set to[...] = x, where x broadcasts and is cast."""
    to[...] = x


def cast(x: Any, dtype: Any, order: str = "K") -> Any:
    """Return x in another type, in x's memory order ("K") or row by row ("C")."""
    return x.astype(dtype, order)


def concatenate(arrays: Sequence[Any], axis: int) -> Any:
    """Join arrays along an axis."""
    first = arrays[0]
    wide = WORDS.get(first.shape[axis] * first.itemsize) if axis % first.ndim == first.ndim - 1 else None
    if wide is None or any(
        x.shape != first.shape or x.dtype != first.dtype or not x.flags.c_contiguous for x in arrays
    ):
        return np.concatenate(arrays, axis)
    joined = np.empty((*first.shape[:-1], len(arrays)), wide)  # each row of few bytes is one word
    for i, x in enumerate(arrays):
        joined[..., i] = x.view(wide)[..., 0]
    return joined.view(first.dtype)


def copy(x: Any, order: str = "K") -> Any:
    """Return a copy of x, in x's memory order ("K") or row by row ("C")."""
    return x.copy(order)


def fill(to: Any, value: float) -> None:
    """Set to[...] = value."""
    to[...] = value


def full(shape: tuple[int, ...], value: float, dtype: Any) -> Any:
    """Return an array of the given shape and type, filled with `value`."""
    return np.full(shape, value, dtype)


def full_like(x: Any, value: float) -> Any:
    """Return an array with x's shape, type and memory order, filled with `value`."""
    return np.full_like(x, value)


def in_rows(x: Any) -> Any:
    """Return x itself if it is row-major without gaps, else a row-major copy."""
    return x if x.flags.c_contiguous else x.copy("C")


def pad(x: Any, widths: Sequence[tuple[int, int]], value: float) -> Any:
    """Return x with new elements at the ends of each axis, all equal to `value`.

    widths    for each axis a pair (before, after): how many elements are added at its two ends
    """
    return np.pad(x, widths, constant_values=x.dtype.type(value))


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """Return the elements of x, row by row, in another shape: a view if strides can give it, else a copy."""
    return x.reshape(shape)
