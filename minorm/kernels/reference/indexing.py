"""Writes elements by position, and adds gradients back to the positions that were read, in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes

COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def add_at(dy: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros of `shape` with dy added at `index`; a position that occurs twice gets both addends"""
    dx = np.zeros(shape, dy.dtype)
    np.add.at(dx, index, dy)
    return dx


def add_along(dy: Any, index: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Return zeros of `shape` with dy[i, j] added at [index[i, j], j] for axis=0; similarly for other axes"""
    where = list(np.indices(index.shape, sparse=True))
    where[axis] = index
    return add_at(dy, tuple(where), shape)


def put(x: Any, index: Any, values: Any) -> None:
    """x[index] = values, in place; if several values go to one place, the last one in row-major order counts"""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, np.ndarray) and part.ndim > 1 and part.dtype.kind in "iu" for part in parts):
        index, values = tuple(_by_rows(part) for part in parts), _by_rows(values)
    x[index] = values


def _by_rows(value: Any) -> Any:
    """Return an array in row-major order, since NumPy goes through arrays in memory order."""
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) and value.ndim > 1 else value


def bincount(x: Any, weights: Any, minlength: int) -> Any:
    """Count each of 0, 1, 2 ... in x, or add up its weights in float64"""
    return np.bincount(x, weights, minlength)


def scatter(x: Any, index: Any, updates: Any, reduction: str) -> Any:
    """Return a copy of x with `updates` at `index`, or combined with x's elements: "add", "mul", "min" or "max".

    16-bit floats are combined in float32, and the result is rounded once. "none" keeps the last of several updates at
    one place.
    """
    if reduction == "none":
        y = x.copy()
        put(y, index, updates)
        return y
    wide = dtypes.compute_type(x.dtype)
    y = x.astype(wide)
    COMBINE[reduction].at(y, index, updates.astype(wide, copy=False))
    return y.astype(x.dtype, copy=False)
