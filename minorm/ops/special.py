"""erf, which NumPy lacks, and the remainder of a division, differentiable."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minorm import dtypes
from minorm.autograd import Function
from minorm.kernels.select import as_array, device_of, to_device
from minorm.ops.elementwise import gradient_of, sum_to

STEP = 1 / 64  # between the points of the table
END = 6.0  # erf(6) is 1 in float64
TERMS = 7
BLOCK = 1 << 14  # elements at a time: the dozen arrays between x and its erf then stay in the cache


@functools.cache
def _table(device: str) -> tuple[Any, Any]:
    """erf and its derivative at 0, STEP, 2 STEP, ..., END."""
    points = np.arange(0, END + STEP, STEP)
    values = np.array([math.erf(p) for p in points])
    return to_device(values, device), to_device(2 / math.sqrt(math.pi) * np.exp(-points * points), device)


def erf(x: Any) -> Any:
    """erf in float64: a table, and Taylor's series from its nearest point p,

    erf(p + h) = erf(p) + erf'(p) * sum_k (-1)^k H_k(p) h^(k + 1) / (k + 1)!,   H_k Hermite's polynomials.
    """
    x = as_array(x).astype(np.float64, copy=False)
    size = np.minimum(abs(x), END)
    place = np.rint(np.nan_to_num(size) / STEP).astype(np.intp)
    values, slopes = _table(device_of(x))
    p, before, hermite = place * STEP, np.zeros_like(size), np.ones_like(size)
    h = size - p
    power, series = h, h
    for k in range(1, TERMS):
        before, hermite = hermite, 2 * p * hermite - 2 * (k - 1) * before
        power = -power * h / (k + 1)
        series = series + hermite * power
    return np.copysign(values[place] + slopes[place] * series, x)


class Erf(Function):
    """2 / sqrt(pi) * the integral of exp(-t^2) from 0 to x."""

    def forward(self, x: Any) -> Any:
        self.x = x
        if not isinstance(x, np.ndarray) or x.size <= BLOCK:
            return erf(x).astype(x.dtype)
        y = np.empty(x.size, x.dtype)
        for i, block in enumerate(np.split(x.reshape(-1), range(BLOCK, x.size, BLOCK))):
            y[i * BLOCK :][: block.size] = erf(block)
        return y.reshape(x.shape)

    def backward(self, dy: Any) -> Any:
        x = self.x.astype(dtypes.compute_type(dy.dtype), copy=False)
        return (dy * np.exp(-x * x) * x.dtype.type(2 / math.sqrt(math.pi))).astype(dy.dtype, copy=False)


class Remainder(Function):
    """a - q * b with q = a / b rounded down (then it has b's sign), or towards 0 with `truncated` (a's sign)."""

    def forward(self, a: Any, b: Any, *, truncated: bool) -> Any:
        self.a, self.b, self.truncated = a, b, truncated
        return (np.fmod if truncated else np.remainder)(a, b)

    def backward(self, dy: Any) -> Any:
        a, b = self.a, self.b
        da = sum_to(dy, a.shape) if self.needs[0] else None
        if not self.needs[1]:
            return da, None
        whole = np.trunc if self.truncated else np.floor
        return da, gradient_of(b.shape, lambda g, a, b: -g * whole(a / b), dy, a, b)
