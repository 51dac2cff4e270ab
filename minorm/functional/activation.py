"""Activations, element by element, and softmax along one axis. Every one keeps the shape and the float type of x.

`inplace` is there so that a definition written for PyTorch runs; the result is always a new tensor.
"""

from __future__ import annotations

from typing import Any

from minorm import trace
from minorm.functional.arguments import floats
from minorm.ops import activation as ops
from minorm.ops.operands import axis_of
from minorm.tensor import Tensor


@trace.operation
def relu(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """max(x, 0); the slope at 0 is 0, NaN stays NaN."""
    floats("relu", x=x)
    return ops.Relu.apply(x)


@trace.operation
def relu6(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """min(max(x, 0), 6)"""
    floats("relu6", x=x)
    return ops.Relu6.apply(x)


@trace.operation
def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """x where x > 0, else negative_slope * x"""
    floats("leaky_relu", x=x)
    return ops.LeakyRelu.apply(x, slope=float(negative_slope))


@trace.operation
def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """x where x > 0, else alpha * (exp(x) - 1)"""
    floats("elu", x=x)
    return ops.Elu.apply(x, alpha=float(alpha))


@trace.operation
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), Phi the normal distribution function: Phi(x) = (1 + erf(x / sqrt 2)) / 2.

    approximate="tanh" takes Phi(x) ~ (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 instead.
    Source: Hendrycks and Gimpel 2016, arXiv:1606.08415.
    """
    floats("gelu", x=x)
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate is {approximate!r}; expected 'none' (exact) or 'tanh'")
    return ops.Gelu.apply(x, approximate=approximate)


@trace.operation
def silu(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """x * sigmoid(x), also called swish"""
    floats("silu", x=x)
    return ops.Silu.apply(x)


@trace.operation
def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), without overflow for any x"""
    floats("sigmoid", x=x)
    return ops.Sigmoid.apply(x)


@trace.operation
def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    floats("tanh", x=x)
    return ops.Tanh.apply(x)


@trace.operation
def hardswish(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """x * min(max(x + 3, 0), 6) / 6"""
    floats("hardswish", x=x)
    return ops.Hardswish.apply(x)


@trace.operation
def hardsigmoid(x: Tensor, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """min(max(x + 3, 0), 6) / 6"""
    floats("hardsigmoid", x=x)
    return ops.Hardsigmoid.apply(x)


@trace.operation
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold"""
    floats("softplus", x=x)
    if not beta > 0:
        raise ValueError(f"softplus: beta is {beta}; expected a number above 0")
    return ops.Softplus.apply(x, beta=float(beta), threshold=float(threshold))


@trace.operation
def softmax(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """y = exp(x) / sum exp(x), the sum along axis `dim`; computed from x - max(x), so nothing overflows.

    x is cast to `dtype` before, if one is given.
    """
    x = x if dtype is None else x.to(dtype)
    floats("softmax", x=x)
    return ops.Softmax.apply(x, axis=_axis("softmax", dim, x))


@trace.operation
def log_softmax(x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """y = x - log sum exp(x), the sum along axis `dim`; computed from x - max(x), so nothing overflows.

    x is cast to `dtype` before, if one is given.
    """
    x = x if dtype is None else x.to(dtype)
    floats("log_softmax", x=x)
    return ops.LogSoftmax.apply(x, axis=_axis("log_softmax", dim, x))


def _axis(operation: str, dim: int, x: Tensor) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TypeError(
            f"{operation}: dim is {dim!r}; expected the int of the axis that sums to one, usually dim=1 or -1"
        )
    return -1 if x.ndim == 0 and dim in (0, -1) else axis_of(operation, dim, x)
