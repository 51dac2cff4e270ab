"""Writes elements by position, and adds gradients back to the positions that were read, in a fixed order."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes

COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def add_at(dy: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros of `shape` with dy added at `index`. If a position occurs twice, both values are added."""
    dx = np.zeros(shape, dy.dtype)
    np.add.at(dx, index, dy)
    return dx


def add_along(dy: Any, index: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Return zeros of `shape` with dy[i, j] added at [index[i, j], j] if axis is 0; other axes work in the same way."""
    where = list(np.indices(index.shape, sparse=True))
    where[axis] = index
    return add_at(dy, tuple(where), shape)


def put(x: Any, index: Any, values: Any) -> None:
    """Set x[index] = values, in place. The last of several values for one position, in row-major order, is written."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(isinstance(part, np.ndarray) and part.ndim > 1 and part.dtype.kind in "iu" for part in parts):
        index, values = tuple(_by_rows(part) for part in parts), _by_rows(values)
    x[index] = values


def _by_rows(value: Any) -> Any:
    """Return an array in row-major order, since NumPy goes through arrays in memory order."""
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) and value.ndim > 1 else value


def bincount(x: Any, weights: Any, minlength: int) -> Any:
    """Count how often each number 0, 1, 2 ... occurs in x.

    With `weights`, add up the weights of each number instead, in float64.
    """
    return np.bincount(x, weights, minlength)


def scatter(x: Any, index: Any, updates: Any, reduction: str) -> Any:
    """Return a copy of x with `updates` written at `index`. With "add", "mul", "min" or "max", the updates are combined
    with the elements of x.

    16-bit floats are combined in float32, and the result is rounded once. With "none", the last of several updates at
    one position is kept.
    """
    if reduction == "none":
        y = x.copy()
        put(y, index, updates)
        return y
    wide = dtypes.compute_type(x.dtype)
    y = x.astype(wide)
    COMBINE[reduction].at(y, index, updates.astype(wide, copy=False))
    return y.astype(x.dtype, copy=False)
