"""Sums over some axes, and the sum that turns a gradient into that of a broadcast operand."""

from __future__ import annotations

from typing import Any

from minorm import dtypes


def sum_axes(x: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
    """The sum over `axes` (each >= 0)"""
    return x.sum(axis=axes, keepdims=keepdims, dtype=dtypes.compute_type(x.dtype)).astype(x.dtype, copy=False)


def sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    """`x` summed over the axes along which an operand of `shape` was broadcast to `x.shape`"""
    lead = x.ndim - len(shape)
    stretched = tuple(i + lead for i, n in enumerate(shape) if n == 1 and x.shape[i + lead] != 1)
    axes = tuple(range(lead)) + stretched
    return sum_axes(x, axes).reshape(shape) if axes else x.reshape(shape)
