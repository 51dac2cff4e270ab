"""Special differentiable functions: erf and its inverse, remainders, determinants and Fourier transforms."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from minorm.devices import device_of, dtypes, to_device
from minorm.graph.expressions import LinearMap, summed_to
from minorm.graph.graph import Function
from minorm.kernels.order import in_order
from minorm.kernels.select import backend
from minorm.ops.elementary import in_wide
from minorm.ops.elementwise import gradient_of, sum_to
from minorm.ops.stepwise import expect_divisor


class Erf(Function):
    """2 / sqrt(pi) * the integral of exp(-t^2) from 0 to x."""

    def forward(self, x: Any) -> Any:
        self.x = x
        if dtypes.is_float(x.dtype):
            return backend(x).elementwise.erf(x)
        return backend(x).elementwise.erf(x.astype(np.float64)).astype(x.dtype)  # ONNX Erf takes integers too

    def backward(self, dy: Any) -> Any:
        return backend(dy).elementwise.erf_grad(dy, self.x)

    def gradient(self, dy: Any) -> Any:
        x = self.input(0, self.x, dy)
        return dy * (2 / math.sqrt(math.pi)) * (-x * x).exp()


# Wichura 1988, Applied Statistics 37, algorithm AS 241, for the quantile of the normal distribution. These are
# quotients of polynomials, (numerator, denominator), with the constant term first: near the middle, in the tails, and
# far out in the tails.
MIDDLE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
     3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
FAR = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
     1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


class ErfInv(Function):
    """The number y whose erf is x. y is infinite where x is -1 or 1, and NaN where |x| > 1. y sqrt(2) is a quantile of
    the normal distribution.
    """

    def forward(self, x: Any) -> Any:
        self.y = in_wide(self.value, x)
        return self.y

    @staticmethod
    def value(x: Any) -> Any:
        number = x.dtype.type
        half = x / number(2)
        middle = half * quotient(MIDDLE, number(0.180625) - half * half)
        tail = np.sqrt(-np.log((number(1) - np.abs(x)) / number(2)))
        near, far = quotient(TAIL, tail - number(1.6)), quotient(FAR, tail - number(5))
        beyond = np.where(np.isinf(tail), tail, np.where(tail <= 5, near, far))
        quantile = np.where(np.abs(half) <= number(0.425), middle, np.where(x < 0, -beyond, beyond))
        return quantile * number(math.sqrt(0.5))

    def backward(self, dy: Any) -> Any:
        return in_wide(lambda dy, y: dy * dy.dtype.type(math.sqrt(math.pi) / 2) * np.exp(y * y), dy, self.y)

    def gradient(self, dy: Any) -> Any:
        wide = dtypes.compute_type(dy.dtype)
        y = self.output(self.y, dy).to(wide)
        return (dy.to(wide) * (math.sqrt(math.pi) / 2) * (y * y).exp()).to(dy.dtype)


def quotient(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: Any) -> Any:
    """Return the value of the first polynomial at x, divided by the value of the second."""
    above, below = (functools.reduce(lambda y, c: y * x + x.dtype.type(c), p[::-1]) for p in polynomials)
    return above / below


class Remainder(Function):
    """a - q * b, where q is a / b rounded down. So the result has b's sign. With truncated=True, q is rounded towards
    0, and the result has a's sign.
    """

    def forward(self, a: Any, b: Any, *, truncated: bool) -> Any:
        expect_divisor("fmod" if truncated else "remainder", b)
        self.a, self.b, self.truncated = a, b, truncated
        return in_order(np.fmod if truncated else np.remainder, a, b)

    def backward(self, dy: Any) -> Any:
        a, b = self.a, self.b
        da = sum_to(dy, a.shape) if self.needs[0] else None
        if not self.needs[1]:
            return da, None
        whole = _quotient_to_zero if self.truncated else np.floor_divide
        return da, gradient_of(b.shape, lambda g, a, b: -g * whole(a, b), dy, a, b)

    def gradient(self, dy: Any) -> Any:
        a, b = self.a, self.b
        da = summed_to(dy, a.shape) if self.needs[0] else None
        if not self.needs[1]:
            return da, None
        whole = _quotient_to_zero if self.truncated else np.floor_divide
        return da, summed_to(-dy * dy.from_array(whole(a, b)), b.shape)


def _quotient_to_zero(a: Any, b: Any) -> Any:
    """Return a / b rounded towards 0. This is exact even if the float a / b would be rounded up to a whole number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b == 0, np.trunc(a / b), np.rint((a - np.fmod(a, b)) / b)).astype(a.dtype, copy=False)


def on_host(x: Any) -> Any:
    """Return x on the host, in the compute type. Functions that have no GPU kernel need this."""
    return to_device(x, "cpu").astype(dtypes.compute_type(x.dtype), copy=False)


def moved(y: Any, x: Any) -> Any:
    """Return y on the device of x, in x's type."""
    return to_device(y.astype(x.dtype, copy=False), device_of(x))


def _rotated(x: Any) -> tuple[Any, Any, Any, Any]:
    """Return u, s, v and det(u) det(v) on the host, where x = u diag(s) v. The last is 1 or -1."""
    u, s, v = np.linalg.svd(on_host(x))
    return u, s, v, np.linalg.det(u) * np.linalg.det(v)


class Determinant(Function):
    """det(x) of the last two axes. Its gradient is the matrix of cofactors."""

    def forward(self, x: Any) -> Any:
        self.x = x
        return moved(np.asanyarray(np.linalg.det(on_host(x))), x)

    def backward(self, dy: Any) -> Any:
        return dy[..., None, None] * cofactors(self.x)

    def gradient(self, dy: Any) -> Any:
        return dy.reshape((*dy.shape, 1, 1)) * Cofactors.apply(self.input(0, self.x, dy))


def cofactors(x: Any) -> Any:
    """Return the cofactors of x = u diag(s) v: det(u v) u diag(p) v, where p[i] is the product of all s but s[i].

    x need not have an inverse.
    """
    u, s, v, sign = _rotated(x)
    others = np.where(np.eye(s.shape[-1], dtype=np.bool_), 1, s[..., None, :]).prod(-1)
    return moved((u * (others * sign[..., None])[..., None, :]) @ v, x)


class Cofactors(Function):
    """The gradient of det(x) as a Function.

    x = u diag(s) v as in `cofactors`, w = u^T dy v^T, and p[i, j], for i != j, is the product of all s but s[i] and
    s[j]. The terms of second order of det(diag(s) + e) are p[i, j] (e[i, i] e[j, j] - e[i, j] e[j, i]), so

        u^T dx v^T = det(u v) (diag(p @ diagonal of w) - p * w^T)
    """

    def forward(self, x: Any) -> Any:
        self.x = x
        return cofactors(x)

    def backward(self, dy: Any) -> Any:
        u, s, v, sign = _rotated(self.x)
        n = s.shape[-1]
        one = np.eye(n, dtype=np.bool_)
        p = np.where(one[:, None] | one[None, :], 1, s[..., None, None, :]).prod(-1) * ~one
        w = u.swapaxes(-1, -2) @ on_host(dy) @ v.swapaxes(-1, -2)
        diagonal = (p @ np.diagonal(w, axis1=-2, axis2=-1)[..., None])[..., 0]
        turned = one * diagonal[..., None] - p * w.swapaxes(-1, -2)
        return moved(sign[..., None, None] * (u @ turned @ v), self.x)


class Fourier(Function):
    """y[k] = sum over j of x[j] e^(-2 pi i j k / n), with complex numbers as pairs on the last axis. With inverse=True,
    the exponent is positive, and the sum is divided by n.

    As a linear map of pairs, the transform has a transpose: the transform in the other direction, up to the factor n.
    """

    def forward(self, x: Any, *, axis: int, inverse: bool) -> Any:
        self.axis, self.inverse = axis, inverse
        return fourier(x, axis, inverse)

    def backward(self, dy: Any) -> Any:
        return transposed_fourier(dy, self.axis, self.inverse)

    def gradient(self, dy: Any) -> Any:
        there = functools.partial(transposed_fourier, axis=self.axis, inverse=self.inverse)
        return LinearMap.apply(dy, there=there, back=functools.partial(fourier, axis=self.axis, inverse=self.inverse))


def fourier(x: Any, axis: int, inverse: bool) -> Any:
    """Return the Fourier transform of pairs along the axis, in x's type. 16-bit floats compute in float32."""
    wide = on_host(x)
    z = wide[..., 0] + 1j * wide[..., 1]
    z = np.fft.ifft(z, axis=axis) if inverse else np.fft.fft(z, axis=axis)
    return moved(np.stack([z.real, z.imag], -1), x)


def transposed_fourier(dy: Any, axis: int, inverse: bool) -> Any:
    """Apply the transpose of `fourier`, as a linear map of pairs. This transpose computes the gradient of `fourier`."""
    n, dx = dy.shape[axis], fourier(dy, axis, not inverse)
    return (dx / n if inverse else dx * n).astype(dy.dtype)
