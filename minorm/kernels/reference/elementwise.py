"""The formulas of arithmetic and activations, element by element, with each gradient directly below its function.

A gradient takes `dy`, and then an array of the forward pass. If the formula can be computed from the output y, this
array is y, which the next operation keeps anyway as its input. Otherwise the array is the input x. At a kink, the
gradient is the same as in PyTorch. 16-bit floats compute in float32, and the result is rounded once at the end.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.reference.softmax import (
    check_target,
    cross_entropy,
    cross_entropy_grad,
    log_softmax,
    log_softmax_grad,
    reduce_losses,
    softmax,
    softmax_grad,
)
from minorm.kernels.reference.sums import sum_axes, sum_to
from minorm.kernels.reference.widening import widened

__all__ = [
    "accumulate", "add", "check_target", "cross_entropy", "cross_entropy_grad", "div", "elu", "elu_grad", "erf",
    "erf_grad", "exp", "expm1", "gelu", "gelu_grad", "hardswish", "hardswish_grad", "leaky_relu", "leaky_relu_grad",
    "log", "log1p", "log_softmax", "log_softmax_grad", "mul", "neg", "over", "power", "reduce_losses", "relu", "relu6",
    "relu6_grad", "relu_grad", "scale", "sigmoid", "sigmoid_grad", "silu", "silu_grad", "softmax", "softmax_grad",
    "sub", "sum_axes", "sum_to", "tanh", "tanh_grad",
]  # fmt: skip


# Arithmetic on operands that may broadcast.


def add(a: Any, b: Any) -> Any:
    """a + b"""
    return a + b


def sub(a: Any, b: Any) -> Any:
    """a - b"""
    return a - b


def neg(x: Any) -> Any:
    """-x"""
    return -x


def mul(a: Any, b: Any) -> Any:
    """a * b"""
    return a * b


def div(a: Any, b: Any) -> Any:
    """a / b"""
    return a / b


def copy(x: Any) -> Any:
    """Return a copy of x"""
    return x.copy()


def scale(x: Any, factor: float) -> Any:
    """x * factor, for a Python number"""
    return x * x.dtype.type(factor)


def over(x: Any, number: float) -> Any:
    """x / number, for a Python number"""
    return (x / dtypes.compute_type(x.dtype).type(number)).astype(x.dtype, copy=False)


def accumulate(total: Any, x: Any) -> None:
    """total += x, in place"""
    total += x


# Functions of one number, and powers.


@widened
def exp(x: Any) -> Any:
    """e^x"""
    return np.exp(x)


@widened
def expm1(x: Any) -> Any:
    """e^x - 1, without cancellation near 0"""
    return np.expm1(x)


@widened
def log(x: Any) -> Any:
    """The natural logarithm, which is -inf at 0 and NaN below"""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(x)


@widened
def log1p(x: Any) -> Any:
    """log(1 + x), without cancellation near 0"""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log1p(x)


@widened
def power(a: Any, b: Any) -> Any:
    """a^b, on operands that may broadcast"""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return a**b


# Activations made of comparisons and products.


@widened
def relu(x: Any) -> Any:
    """max(x, 0); NaN stays NaN"""
    return np.maximum(x, x.dtype.type(0))


@widened
def relu_grad(dy: Any, y: Any) -> Any:
    """dy where y > 0 (or NaN), else 0"""
    return np.where(y <= 0, dy.dtype.type(0), dy)


@widened
def relu6(x: Any) -> Any:
    """min(max(x, 0), 6)"""
    return np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6))


@widened
def relu6_grad(dy: Any, y: Any) -> Any:
    """dy where 0 < y < 6 (or NaN), else 0"""
    return np.where((y <= 0) | (y >= 6), dy.dtype.type(0), dy)


@widened
def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    """x where x > 0, else slope * x"""
    return np.where(x > 0, x, x * x.dtype.type(slope))


@widened
def leaky_relu_grad(dy: Any, x: Any, slope: float = 0.01) -> Any:
    """dy where x > 0, else slope * dy"""
    return np.where(x > 0, dy, dy * dy.dtype.type(slope))


@widened
def hardswish(x: Any) -> Any:
    """x * min(max(x + 3, 0), 6) / 6"""
    three, six = x.dtype.type(3), x.dtype.type(6)
    return x * np.minimum(np.maximum(x + three, x.dtype.type(0)), six) / six


@widened
def hardswish_grad(dy: Any, x: Any) -> Any:
    """dy * (0 for x <= -3, x/3 + 1/2 for -3 < x < 3, else 1, also for NaN)"""
    three, half = x.dtype.type(3), x.dtype.type(0.5)
    return np.where(x <= -3, x.dtype.type(0), np.where(x < 3, dy * (x / three + half), dy))


# Activations with an exponential.


@widened
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), written so that exp never overflows"""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, x.dtype.type(1), small) / (1 + small)


@widened
def sigmoid_grad(dy: Any, y: Any) -> Any:
    """dy * y * (1 - y)"""
    return dy * y * (1 - y)


@widened
def tanh(x: Any) -> Any:
    """tanh(x)"""
    return np.tanh(x)


@widened
def tanh_grad(dy: Any, y: Any) -> Any:
    """dy * (1 - y^2)"""
    return dy * (1 - y * y)


@widened
def silu(x: Any) -> Any:
    """x * sigmoid(x)"""
    return x * sigmoid(x)


@widened
def silu_grad(dy: Any, x: Any) -> Any:
    """dy * s * (1 + x * (1 - s)) with s = sigmoid(x)"""
    s = sigmoid(x)
    return dy * (s * (1 + x * (1 - s)))


@widened
def elu(x: Any, alpha: float = 1.0) -> Any:
    """x where x > 0, else alpha * (exp(x) - 1)"""
    return np.where(x > 0, x, x.dtype.type(alpha) * np.expm1(np.minimum(x, x.dtype.type(0))))


@widened
def elu_grad(dy: Any, x: Any, alpha: float = 1.0) -> Any:
    """dy * alpha * exp(x) where x <= 0, else dy, also for NaN"""
    return np.where(x <= 0, dy * (x.dtype.type(alpha) * np.exp(np.minimum(x, x.dtype.type(0)))), dy)


@widened
def gelu(x: Any, approximate: str = "none") -> Any:
    """x * Phi(x), where Phi is the normal distribution function, (1 + erf(x/sqrt 2)) / 2, or its
    approximation by tanh
    """
    return (x * _normal(x, approximate)[0]).astype(x.dtype)


@widened
def gelu_grad(dy: Any, x: Any, approximate: str = "none") -> Any:
    """dy * (Phi(x) + x * Phi'(x))"""
    phi, slope = _normal(x, approximate)
    return (dy * (phi + x * slope)).astype(x.dtype)


def _normal(x: Any, approximate: str) -> tuple[Any, Any]:
    """Return Phi(x) and its derivative, in float64. NumPy has no erf; this code is simple rather than fast."""
    x = x.astype(np.float64)
    if approximate == "tanh":
        c, cubic = math.sqrt(2 / math.pi), 0.044715
        t = np.tanh(c * (x + cubic * x**3))
        return (1 + t) / 2, (1 - t * t) / 2 * c * (1 + 3 * cubic * x * x)
    erfc = np.frompyfunc(math.erfc, 1, 1)
    return erfc(-x / math.sqrt(2)).astype(np.float64) / 2, np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@widened
def erf(x: Any) -> Any:
    """2 / sqrt(pi) * the integral of exp(-t^2) from 0 to x"""
    return np.frompyfunc(math.erf, 1, 1)(x).astype(x.dtype)


@widened
def erf_grad(dy: Any, x: Any) -> Any:
    """dy * 2 / sqrt(pi) * exp(-x^2)"""
    x = x.astype(np.float64)
    return (dy * (2 / math.sqrt(math.pi) * np.exp(-x * x))).astype(dy.dtype)
