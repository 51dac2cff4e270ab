"""The second derivative of the normalization equation, for each row. This is the backward pass of `NormalizeGradient`.

docs/maths.md derives the formulas and explains the letters: g = dy * s, xhat = (x - mean) * rstd, and v, vs and vb are
the gradients of dx, ds and db. Over a row, A = mean(g), B = mean(g * xhat), V = mean(v), P = mean(v * xhat) and
C = mean((v - V) * (g - A)); A and V are absent if not centered. dv is computed from v by the same formula as dx from g:

    dv       rstd * (v - V - xhat * P * slope)
    for dy   s * dv + vs * xhat + vb
    for s    sum(dy * dv)
    for x    - rstd^2 * slope * ((v - V) * B + (g - A) * P + xhat * (C - slope * (slope + 2) * P * B))
             + rstd * (h - mean(h) - xhat * mean(h * xhat) * slope)        h = dy * vs

Arrays are views with four loop axes, as in kernels/reference/norm.py. Sums are computed in float64. The backend's
kernels compute the sums over a row and the sums of products with xhat. The numbers of a row are float64 until they are
combined with an element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.kernels.reference import norm as loops
from minorm.normalization.call import NormCall
from minorm.normalization.layout import same_order

Array = Any


class SecondDerivative:
    """The sums for one call. `of_dx`, `of_ds` and `of_db` return gradients for dy, x and s. None means 0.

    x, dy, scale, stats and masked are the same as for the first derivative. `call` is the NormCall for x's memory
    order.
    """

    def __init__(
        self, call: NormCall, x: Array, dy: Array, scale: Array | None, stats: Any, masked: dict[str, Array]
    ) -> None:
        self.call, self.x, self.stats, self.masked = call, x, stats, masked
        self.layout, self.nest = call.layout, call.layout.nest
        self.flat_x = self.layout.data(x)
        self.flat_scale = self.layout.parameter(scale)
        self.scale = scale
        count = self.nest.columns if not masked else stats.count
        self.count = np.maximum(count, 1)
        self.rstd, self.slope = stats.rstd, call.equation.slope(stats.var)
        self.s = None if scale is None else self._of_elements(self.flat_scale)
        self.dy, self.flat_dy = self._loops(dy)
        k, d, rstd = (self._row(number) for number in (stats.k, stats.d, stats.rstd))
        self.xhat = ((self._loops(x)[0] - k) - d) * rstd

    def of_dx(self, v: Array) -> tuple[Array, Array, Array | None]:
        """Return the gradients for dy, x and s that come from v, the gradient of dx."""
        v4, flat = self._loops(v)
        g = self.dy if self.s is None else self.dy * self.s
        A, B = self._means(self.flat_dy, self.flat_scale)
        V, P = self._means(flat, None)
        v4, g = self._minus(v4, V), self._minus(g, A)
        C = (v4 * g).sum(axis=loops.REDUCED, dtype=np.float64).reshape(-1) / self.count
        K = C - self.slope * (self.slope + 2) * P * B
        factor = -(self.rstd**2) * self.slope
        dv = self._row(self.rstd) * (v4 - self.xhat * self._row(P * self.slope))
        of_x = v4 * self._row(factor * B) + g * self._row(factor * P) + self.xhat * self._row(factor * K)
        of_s = None if self.s is None else loops.parameter_sums(self.nest, self._counted(self.dy * dv))
        return dv if self.s is None else dv * self.s, of_x, of_s

    def of_ds(self, vs: Array) -> tuple[Array, Array]:
        """Return the gradients for dy and x that come from vs, the gradient of ds."""
        flat = self.layout.parameter(vs)
        h = self.dy * self._of_elements(flat)
        mean_h, mean_hx = self._means(self.flat_dy, flat)
        of_x = self._row(self.rstd) * (self._minus(h, mean_h) - self.xhat * self._row(mean_hx * self.slope))
        return self.xhat * self._of_elements(flat), of_x

    def of_db(self, vb: Array) -> Array:
        """Return the gradient for dy that comes from vb, the gradient of db."""
        return self._of_elements(self.layout.parameter(vb)) + np.zeros_like(self.xhat)

    def elements(self, total: Array) -> Array:
        """Return `total`, which has four loop axes, in the shape and memory order of x."""
        return self.layout.result(loops.like(self.nest, self._counted(total), self.flat_x), self.x)

    def parameter(self, total: Array) -> Array:
        """Return `total`, the sums for the elements of s, in the shape of s."""
        return self.layout.parameter_gradient(total, self.scale)

    def _loops(self, a: Array) -> tuple[Array, Array]:
        """Return `a` in two forms: with four loop axes, in the compute type and 0 where the mask is False; and in the
        kernels' form.
        """
        flat = self.layout.data(same_order(a, self.x))
        return self._counted(loops.four(self.nest, flat).astype(self.call.dtype, copy=False)), flat

    def _counted(self, a: Array) -> Array:
        if not self.masked:
            return a
        return np.where(loops.four(self.nest, self.masked["mask"]), a, a.dtype.type(0))

    def _means(self, dy: Array, s: Array | None) -> tuple[Array, Array]:
        """Return mean(g) and mean(g * xhat) of each row. The backend computes the sums."""
        sum_g, sum_gx = self.call.norm.grad_sums(dy, self.flat_x, self.stats, s, **self.masked)
        return sum_g / self.count, sum_gx / self.count

    def _minus(self, a: Array, mean: Array) -> Array:
        return self._counted(a - self._row(mean)) if self.call.equation.centered else a

    def _row(self, numbers: Array) -> Array:
        """Return `numbers`, which has one number for each row, in a shape that broadcasts to the elements."""
        return loops.kept(self.nest, numbers.astype(self.call.dtype, copy=False))

    def _of_elements(self, flat: Array) -> Array:
        return loops.parameters(self.nest, flat).astype(self.call.dtype, copy=False)
