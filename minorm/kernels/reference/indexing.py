"""The gradient of reading elements by position: add each back to where it was read, in the order of the positions."""

from __future__ import annotations

from typing import Any

import numpy as np


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
