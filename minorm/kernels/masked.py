"""Adds a mask to a backend that lacks it. This module replaces masked elements (where the mask is False), calls the
backend's function, corrects the results, and sets them to 0 at the masked elements.

A row has N elements. The mask is True for n of these, which are the elements that count, and r = N / n. All other
elements are replaced by f, which is the row's first element that counts, in x's type. The kernel computes the moments
k, d and v of the filled row. Then the moments of the elements that count are

    delta = r * ((k - f) + d)        mean = f + delta        var = max(0, r * v - (1 - 1 / r) * delta^2)

Since f is close to the data, no digits cancel, however far the data is from 0. If delta^2 > 4 * var, f was an outlier,
and the row is filled again with f + delta. If there is no mean (RMSNorm), f = 0 and var = r * v. In backward, dy is set
to 0 where the mask is False, so masked elements add nothing to the sums. The kernel divides the sums by N, so the sums
are multiplied by r first; the effect is a division by n.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes, namespace
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference.norm import counts, four, kept, like
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

Array = Any


class MaskedBackend:
    """Adds `mask` to the functions of a backend that lacks it; see kernels/protocol.py."""

    def __init__(self, norm: Any) -> None:
        self.norm = norm

    def moments(self, nest: Nest, x: Array, centered: bool, *, mask: Array, **dtype: Any) -> tuple[Array, Array, Array]:
        """Return k, d and var of the elements where the mask is True: the mean is k + d, and var is the variance."""
        return self._moments(nest, x, centered, mask, counts(nest, mask), dtype)[1:]

    def apply(
        self, nest: Nest, x: Array, stats: Statistics, s: Array | None, b: Array | None, *, mask: Array, **dtype: Any
    ) -> Array:
        """Return y = xhat * s + b, where xhat is the normalized x, and 0 where the mask is False."""
        y = self.norm.apply(nest, _fill(nest, x, mask, stats.k), stats, s, b, **dtype)
        return _fill(nest, y, mask, 0)

    def grad_sums(
        self, nest: Nest, dy: Array, x: Array, stats: Statistics, s: Array | None, *, mask: Array, **dtype: Any
    ) -> tuple[Array, Array]:
        """Return sum_g and sum_gx: for each row, the sums of g = dy * s and of g * xhat."""
        dy, x = _fill(nest, dy, mask, 0), _fill(nest, x, mask, stats.k)
        return self.norm.grad_sums(nest, dy, x, stats, s, **dtype)

    def grad_params(
        self, nest: Nest, dy: Array, x: Array, stats: Statistics, *, mask: Array, **dtype: Any
    ) -> tuple[Array, Array]:
        """Return ds and db, the gradients of the scale s and the bias b."""
        dy, x = _fill(nest, dy, mask, 0), _fill(nest, x, mask, stats.k)
        return self.norm.grad_params(nest, dy, x, stats, **dtype)

    def grad_input(
        self,
        nest: Nest,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        sum_g: Array | None,
        sum_gx: Array | None,
        *,
        mask: Array,
        **dtype: Any,
    ) -> Array:
        """Return dx = rstd * (g - sum_g / n - xhat * sum_gx / n), where g = dy * s.

        n is the number of elements in the row where the mask is True.
        """
        dy, x = _fill(nest, dy, mask, 0), _fill(nest, x, mask, stats.k)
        return self._grad_input(nest, dy, x, stats, s, sum_g, sum_gx, mask, dtype)

    def forward(
        self,
        nest: Nest,
        x: Array,
        s: Array | None,
        b: Array | None,
        equation: Equation,
        *,
        mask: Array,
        **dtype: Any,
    ) -> tuple[Array, Statistics]:
        """Return y, the normalized x, and the statistics of the elements where the mask is True."""
        n = counts(nest, mask)
        x, k, d, var = self._moments(nest, x, equation.centered, mask, n, dtype)
        with np.errstate(divide="ignore"):
            rstd = equation.rstd(var, n)
        stats = Statistics.of(k, d, var, rstd, namespace(x), n)
        return _fill(nest, self.norm.apply(nest, x, stats, s, b, **dtype), mask, 0), stats

    def backward(
        self,
        nest: Nest,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        equation: Equation,
        needs: tuple[bool, bool] = (True, True),
        *,
        mask: Array,
        **dtype: Any,
    ) -> tuple[Array | None, Array | None, Array | None]:
        """Return dx, ds and db, the gradients of x, of the scale s and of the bias b."""
        dx = ds = db = None
        dy, x = _fill(nest, dy, mask, 0), _fill(nest, x, mask, stats.k)
        if needs[0]:
            sum_g, sum_gx = self.norm.grad_sums(nest, dy, x, stats, s, **dtype)
            sum_g, sum_gx = sum_g if equation.centered else None, sum_gx * equation.slope(stats.var)
            dx = self._grad_input(nest, dy, x, stats, s, sum_g, sum_gx, mask, dtype)
        if needs[1]:
            ds, db = self.norm.grad_params(nest, dy, x, stats, **dtype)
        return dx, ds, db

    def _moments(
        self, nest: Nest, x: Array, centered: bool, mask: Array, n: Array, dtype: dict[str, Any]
    ) -> tuple[Array, Array, Array, Array]:
        """Return the filled x, and k, d and var of the elements that count.

        For a row without elements that count, all four results are 0.
        """
        xp, r = namespace(x), nest.columns / namespace(x).maximum(n, 1)
        if not centered:
            filled = _fill(nest, x, mask, 0)
            k, d, v = self.norm.moments(nest, filled, False, **dtype)
            return filled, k, d, r * v
        fill = xp.where(n > 0, _first_counted(nest, x, mask), 0.0)
        for last in (False, True):
            filled = _fill(nest, x, mask, fill)
            k, d, v = self.norm.moments(nest, filled, True, **dtype)
            delta = r * ((k - fill) + d)
            var = xp.maximum(0.0, r * v - (1 - 1 / r) * delta**2)
            far = delta**2 > 4 * var
            if last or not far.any():
                break
            fill = xp.where(far, (fill + delta).astype(x.dtype).astype(np.float64), fill)
        return filled, fill, delta, var

    def _grad_input(
        self,
        nest: Nest,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        sum_g: Array | None,
        sum_gx: Array | None,
        mask: Array,
        dtype: dict[str, Any],
    ) -> Array:
        """Return dx for filled x and dy. `sum_g` and `sum_gx` are not yet divided by the number of elements."""
        if sum_g is not None or sum_gx is not None:
            r = nest.columns / namespace(x).maximum(stats.count, 1)
            sum_g, sum_gx = (None if of is None else of * r for of in (sum_g, sum_gx))
        return _fill(nest, self.norm.grad_input(nest, dy, x, stats, s, sum_g, sum_gx, **dtype), mask, 0)


def _first_counted(nest: Nest, x: Array, mask: Array) -> Array:
    """Return each row's first element that counts, in float64. If no element counts, return the row's first element."""
    xp = namespace(x)
    x4, m4 = four(nest, x), four(nest, mask)
    outer, inner, _, columns = m4.shape
    place = m4.reshape(outer, inner, -1).argmax(axis=2)
    rows = xp.arange(outer)[:, None], xp.arange(inner)[None, :]
    return x4[(*rows, place // columns, place % columns)].astype(np.float64).reshape(-1)


def _fill(nest: Nest, x: Array, mask: Array, value: Any) -> Array:
    """Return x with `value` where the mask is False. `value` is 0, or a vector with one number for each row."""
    if not isinstance(value, int):
        most = float(dtypes.largest(x.dtype))  # a running mean may be beyond float16's range
        value = kept(nest, value.clip(-most, most).astype(x.dtype))
    else:
        value = x.dtype.type(value)
    return like(nest, namespace(x).where(four(nest, mask), four(nest, x), value), x)
