"""Sums and means over some axes, and the sum that gives a gradient the shape of an operand that was broadcast.

Floats are added up in float64, and the sum is rounded once.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from minorm.devices import dtypes


def sum_axes(x: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    """Return the sum over `axes` (each >= 0). Integers and booleans are summed by NumPy's rules."""
    if not dtypes.is_float(x.dtype):
        return np.sum(x, axis=axes, keepdims=keepdims)
    return _total(x, axes, keepdims).astype(x.dtype)


def mean_axes(x: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    """Return the mean over `axes`, or NaN if there are no elements."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return (_total(x, axes, keepdims) / prod(x.shape[axis] for axis in axes)).astype(x.dtype)


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """Sum `x` over the axes along which an operand of `shape` was broadcast to `x.shape`."""
    lead = x.ndim - len(shape)
    stretched = tuple(i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1)
    axes = tuple(range(lead)) + stretched
    return sum_axes(x, axes).reshape(shape) if axes else x.reshape(shape)


def _total(x: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if x.dtype in dtypes.HALVES:
        x = x.astype(np.float32)  # NumPy has no sum of bfloat16 in another type
    total = x.sum(axis=axes, keepdims=True, dtype=np.float64)
    return total if keepdims else total.reshape([n for i, n in enumerate(x.shape) if i not in axes])
