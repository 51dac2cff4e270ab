"""Writing elements by position; and the gradient of reading them: add each back to where it was read, in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import dtypes

COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def add_at(dy: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with dy added at `index`; a position that comes twice gets both"""
    dx = np.zeros(shape, dy.dtype)
    np.add.at(dx, index, dy)
    return dx


def add_along(dy: Any, index: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with dy[i, j] added at [index[i, j], j] for axis 0, and so on"""
    where = list(np.indices(index.shape, sparse=True))
    where[axis] = index
    return add_at(dy, tuple(where), shape)


def scatter(x: Any, index: Any, updates: Any, reduction: str) -> Any:
    """A copy of x with `updates` put at `index`, or combined with what is there: "add", "mul", "min" or "max".

    16-bit floats are combined in float32 and rounded once. "none" keeps the last of several at one place.
    """
    if reduction == "none":
        y = x.copy()
        y[index] = updates
        return y
    wide = dtypes.compute_type(x.dtype)
    y = x.astype(wide)
    COMBINE[reduction].at(y, index, updates.astype(wide, copy=False))
    return y.astype(x.dtype, copy=False)
