"""erf, which NumPy lacks, the remainder of a division, determinants and Fourier transforms, differentiable."""

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
from minorm.ops.elementwise import gradient_of, sum_to
from minorm.ops.stepwise import expect_divisor


class Erf(Function):
    """2 / sqrt(pi) * the integral of exp(-t^2) from 0 to x."""

    def forward(self, x: Any) -> Any:
        self.x = x
        if dtypes.is_float(x.dtype):
            return backend(x).elementwise.erf(x)
        return backend(x).elementwise.erf(x.astype(np.float64)).astype(x.dtype)  # ONNX's takes integers too

    def backward(self, dy: Any) -> Any:
        return backend(dy).elementwise.erf_grad(dy, self.x)

    def gradient(self, dy: Any) -> Any:
        x = self.input(0, self.x, dy)
        return dy * (2 / math.sqrt(math.pi)) * (-x * x).exp()


class Remainder(Function):
    """a - q * b with q = a / b rounded down (then it has b's sign), or towards 0 with `truncated` (a's sign)."""

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
    """a / b rounded towards 0, without the last digit in which a / b itself may round up to a whole number."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(b == 0, np.trunc(a / b), np.rint((a - np.fmod(a, b)) / b)).astype(a.dtype, copy=False)


def on_host(x: Any) -> Any:
    """x in the type that it is computed in, on the host: what follows has no kernel on a GPU."""
    return to_device(x, "cpu").astype(dtypes.compute_type(x.dtype), copy=False)


def moved(y: Any, x: Any) -> Any:
    """y on the device of x, and in its type."""
    return to_device(y.astype(x.dtype, copy=False), device_of(x))


def _rotated(x: Any) -> tuple[Any, Any, Any, Any]:
    """x = u diag(s) v, and det(u) det(v), which is 1 or -1; on the host."""
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
    """det(u v) u diag(products of the other s) v for x = u diag(s) v, which holds where x has no inverse too."""
    u, s, v, sign = _rotated(x)
    others = np.where(np.eye(s.shape[-1], dtype=np.bool_), 1, s[..., None, :]).prod(-1)
    return moved((u * (others * sign[..., None])[..., None, :]) @ v, x)


class Cofactors(Function):
    """The gradient of det(x) as a Function.

    With u and v as above, w = u^T dy v^T, and p[i, j] the product of all s but s[i] and s[j], for i != j:
    det(diag(s) + e) has the terms p[i, j] (e[i, i] e[j, j] - e[i, j] e[j, i]) of second order, so

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
    """y[k] = sum over j of x[j] e^(-2 pi i j k / n), complex numbers as pairs on the last axis; inverse: with e^(+...),
    and divided by n.

    As a map of pairs its transposed is that of the other direction, but for the factor n.
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
    """The transform of pairs along the axis, in their type; 16-bit floats in float32."""
    wide = on_host(x)
    z = wide[..., 0] + 1j * wide[..., 1]
    z = np.fft.ifft(z, axis=axis) if inverse else np.fft.fft(z, axis=axis)
    return moved(np.stack([z.real, z.imag], -1), x)


def transposed_fourier(dy: Any, axis: int, inverse: bool) -> Any:
    """The transpose of `fourier` as a map of pairs, which is its gradient."""
    n, dx = dy.shape[axis], fourier(dy, axis, not inverse)
    return (dx / n if inverse else dx * n).astype(dy.dtype)
