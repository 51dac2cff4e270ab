"""erf, which NumPy lacks, the remainder of a division, determinants and Fourier transforms, differentiable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import device_of, dtypes, to_device
from minorm.graph.expressions import summed_to
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


class Determinant(Function):
    """det(x) of the last two axes. Its gradient is the matrix of cofactors: det(U V) U diag(products of the other s) V
    for x = U diag(s) V, which holds where x has no inverse too.
    """

    def forward(self, x: Any) -> Any:
        self.x = x
        return moved(np.asanyarray(np.linalg.det(on_host(x))), x)

    def backward(self, dy: Any) -> Any:
        u, s, v = np.linalg.svd(on_host(self.x))
        sign = np.linalg.det(u) * np.linalg.det(v)
        n = s.shape[-1]
        others = np.where(np.eye(n, dtype=np.bool_), 1, s[..., None, :]).prod(-1)
        cofactors = (u * (others * sign[..., None])[..., None, :]) @ v
        return moved(to_device(dy, "cpu").astype(s.dtype)[..., None, None] * cofactors, self.x)


class Fourier(Function):
    """y[k] = sum over j of x[j] e^(-2 pi i j k / n), complex numbers as pairs on the last axis; inverse: with e^(+...),
    and divided by n.

    As a map of pairs its transposed is that of the other direction, but for the factor n.
    """

    def forward(self, x: Any, *, axis: int, inverse: bool) -> Any:
        self.axis, self.inverse, self.n = axis, inverse, x.shape[axis]
        return self.along(x, inverse)

    def backward(self, dy: Any) -> Any:
        dx = self.along(dy, not self.inverse)
        return (dx / self.n if self.inverse else dx * self.n).astype(dy.dtype)

    def along(self, x: Any, inverse: bool) -> Any:
        """The transform of pairs along the axis, in their type; 16-bit floats in float32."""
        wide = on_host(x)
        z = wide[..., 0] + 1j * wide[..., 1]
        z = np.fft.ifft(z, axis=self.axis) if inverse else np.fft.fft(z, axis=self.axis)
        return moved(np.stack([z.real, z.imag], -1), x)
