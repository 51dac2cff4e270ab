"""Two normalizations without a mean: one divides by the energy of neighbouring channels, the other by an Lp norm.

Both normalizations divide x by a norm n of some of x's elements. So backward has two terms: dy / n, and the effect of
each element on n. 16-bit floats compute in float32, and only the result is rounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import device_of, dtypes
from minorm.graph.expressions import LinearMap
from minorm.graph.graph import Function
from minorm.graph.recorded import expressed
from minorm.kernels.order import in_order, in_order_along
from minorm.kernels.select import backend
from minorm.ops.elementwise import Where
from minorm.ops.reduction import maximum_of

LARGE = 1e15  # up to this size, squares, their sums and the powers of these sums fit into float32


def power(a: Any, exponent: float) -> Any:
    """Return a ** exponent for a Python number."""
    return backend(a).elementwise.power(a, a.dtype.type(exponent))


def window_sum(a: Any, before: int, after: int) -> Any:
    """Return, for every channel c, the sum of the channels c - before ... c + after. Axis 1 is the channel axis."""

    def total_along(a: Any, axis: int) -> Any:
        total, channels = np.zeros_like(a), a.shape[axis]
        for offset in range(-min(before, channels), min(after, channels) + 1):
            low, high = max(0, -offset), min(channels, channels - offset)
            of_axis = (slice(None),) * axis
            total[(*of_axis, slice(low, high))] += a[(*of_axis, slice(low + offset, high + offset))]
        return total

    return in_order_along(1, total_along, a)


class LocalResponse(Function):
    """y = x * D^-beta,  D = k + alpha / size * (sum of x^2 over channels c - size // 2 ... c + (size - 1) // 2).

    If a square could leave the range of float32, the Function computes in float64. For x = 1e30, for example, y is then
    small instead of zero. On a GPU the Function always computes in float64, because a check would make the host wait.
    """

    def forward(self, x: Any, *, size: int, alpha: float, beta: float, k: float) -> Any:
        self.dtype, self.size, self.alpha, self.beta, self.k = x.dtype, size, alpha, beta, k
        self.x = x.astype(dtypes.compute_type(x.dtype), copy=False)
        if x.size and (device_of(x) != "cpu" or not abs(self.x).max() < LARGE):
            self.x = x.astype(np.float64)
        number = self.x.dtype.type
        squares = window_sum(in_order(np.square, self.x), size // 2, (size - 1) // 2)
        self.D = in_order(lambda total: number(k) + number(alpha / size) * total, squares)
        return in_order(lambda x, D: (x * power(D, -beta)).astype(self.dtype, copy=False), self.x, self.D)

    def backward(self, dy: Any) -> Any:
        x, D, number = self.x, self.D, self.x.dtype.type
        dy = dy.astype(x.dtype, copy=False)
        share = in_order(lambda dy, D: dy * power(D, -self.beta), dy, D)
        parts = in_order(lambda share, x, D: share * x / D, share, x, D)
        through_D = window_sum(parts, (self.size - 1) // 2, self.size // 2)  # the windows that contain c are mirrored
        factor = number(2 * self.alpha * self.beta / self.size)
        return in_order(
            lambda share, x, through: (share - factor * x * through).astype(self.dtype, copy=False), share, x, through_D
        )

    def gradient(self, dy: Any) -> Any:
        x, size = self.input(0, self.x, dy), self.size
        before, after = size // 2, (size - 1) // 2

        def windows(a: Any) -> Any:
            return window_sum(a, before, after)

        def mirrored(a: Any) -> Any:
            return window_sum(a, after, before)

        D = LinearMap.apply(x * x, of=self, there=windows, back=mirrored) * (self.alpha / size) + self.k
        share = dy.to(x.dtype) * D**-self.beta
        through_D = LinearMap.apply(share * x / D, of=self, there=mirrored, back=windows)
        return (share - x * through_D * (2 * self.alpha * self.beta / size)).to(self.dtype)


class LpNormalize(Function):
    """y = x / max(n, eps), where n = (sum |x|^p)^(1/p) along one axis.

    n is computed from x / max |x|, so that no power overflows. With eps=0 a vector of zeros stays zero, and its
    gradient is 0.
    """

    def forward(self, x: Any, *, p: float, axis: int, eps: float) -> Any:
        self.dtype, self.p, self.axis = x.dtype, p, axis % x.ndim
        wide = x.astype(dtypes.compute_type(x.dtype), copy=False)
        size = in_order(abs, wide)
        largest = maximum_of(size, (self.axis,), 0)
        scale = np.where((largest > 0) & np.isfinite(largest), largest, 1).astype(wide.dtype)
        powers = in_order(lambda size, scale: power(size / scale, p), size, scale)
        total = backend(x).sums.sum_axes(powers, (self.axis,), True)
        norm = scale * power(total, 1 / p)
        self.floored = norm < eps
        self.n = np.maximum(norm, wide.dtype.type(eps))
        if eps == 0:
            self.n = np.where(self.n == 0, wide.dtype.type(np.inf), self.n)
        self.wide_y = in_order(np.divide, wide, self.n)
        return self.wide_y.astype(x.dtype, copy=False)

    def backward(self, dy: Any) -> Any:
        y = self.wide_y
        dy = dy.astype(y.dtype, copy=False)
        slope = in_order(lambda y: np.sign(y) * power(abs(y), self.p - 1), y)  # dn/dx
        total = backend(y).sums.sum_axes(in_order(np.multiply, dy, y), (self.axis,), True)
        inner = np.where(self.floored, y.dtype.type(0), total)
        return in_order(
            lambda dy, slope, inner, n: ((dy - slope * inner) / n).astype(self.dtype, copy=False),
            *(dy, slope, inner, self.n),
        )

    def gradient(self, dy: Any) -> Any:
        kept = np.where(np.isinf(self.n), 0, self.wide_y * self.n)
        x = self.input(0, kept.astype(self.dtype, copy=False), dy)
        return expressed(self.expression, [x], [dy])[0]

    def expression(self, x: Any) -> Any:
        """Compute the forward pass with Tensors. A norm of at least eps is computed from x / max |x|."""
        x = x.to(self.n.dtype)
        size = maximum_of(abs(x.array), (self.axis,), 0)
        scale = x.from_array(np.where((size > 0) & np.isfinite(size), size, 1).astype(x.dtype))
        constant = x.from_array(self.floored | np.isinf(self.n))
        powers = ((x / scale).abs() ** self.p).sum(self.axis, keepdim=True).masked_fill(constant, 1.0)
        norm = Where.apply(constant, x.from_array(self.n), scale * powers ** (1 / self.p))
        return (x / norm).to(self.dtype)
