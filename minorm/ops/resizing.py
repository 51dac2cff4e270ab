"""Resizing along one axis. Each element of the result has a coordinate in the input, and the inputs near this
coordinate have weights.

`coordinates` computes the coordinate x of element i of the result. This element is a weighted sum of the input's
elements j near x, with weights kernel(j - x) that are scaled to add up to one. So resizing multiplies by a matrix
(resized, length).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

REACH = {"linear": 1, "cubic": 2}  # the radius of the kernel


def coordinates(kind: str, n: int, m: int, scale: float, start: float, end: float, dtype: Any = np.float64) -> Any:
    """Return the coordinates of the m elements of the result in an axis of n elements. With "tf_crop_and_resize", only
    the region from `start` to `end` is read, where 0 and 1 are the ends of the axis.
    """
    i = np.arange(m, dtype=dtype)
    if kind == "asymmetric":
        return i / scale
    if kind == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if kind == "align_corners":  # scale * n is the length of the result before rounding
        return i * 0 if m == 1 else i * (n - 1) / (scale * n - 1)
    if kind == "tf_crop_and_resize":
        return i * 0 + (start + end) * (n - 1) / 2 if m == 1 else (start + i * (end - start) / (m - 1)) * (n - 1)
    x = (i + 0.5) / scale - 0.5
    if kind == "pytorch_half_pixel" and m == 1:
        return i * 0
    if kind == "half_pixel_symmetric":
        return x + n / 2 * (1 - m / (scale * n))
    return x


ROUNDINGS: dict[str, Callable[[Any], Any]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def kernel(mode: str, distance: Any, a: float) -> Any:
    """Return the weight at a distance from the coordinate. The kernel is a triangle, or a cubic with slope `a` at 1
    (Keys 1981, 10.1109/TASSP.1981.1163711).
    """
    d = abs(distance)
    if mode == "linear":
        return np.maximum(1 - d, 0)
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def matrix(mode: str, x: Any, n: int, scale: float, a: float, antialias: bool, exclude_outside: bool) -> Any:
    """Return a matrix whose row i has the weights of the n elements for the coordinate x[i]. If the axis shrinks and
    antialias is True, the kernel is wider.
    """
    shrink = min(scale, 1.0) if antialias else 1.0
    span = reach(mode, scale, antialias)
    nearest = np.floor(x).astype(np.intp)[:, None] + np.arange(1 - span, span + 1)
    weights = kernel(mode, (nearest - x[:, None]) * shrink, a)
    if exclude_outside:
        weights = np.where((nearest >= 0) & (nearest < n), weights, 0)
    weights = weights / weights.sum(axis=1, keepdims=True)
    result = np.zeros((len(x), n))
    np.add.at(result, (np.arange(len(x))[:, None], nearest.clip(0, n - 1)), weights)
    return result


def reach(mode: str, scale: float, antialias: bool) -> int:
    """Return how many elements on each side of a coordinate may have a weight."""
    return math.ceil(REACH[mode] / (min(scale, 1.0) if antialias else 1.0)) + 1
