"""The activations of recurrent layers, by the names ONNX gives them: each function beside its slope.

A slope is told both what went in (x) and what came out (y), and takes what is cheaper. alpha and beta are the two
numbers that some of them have; DEFAULTS says which, and what they are where nobody says.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from minorm.graph.expressions import passing
from minorm.kernels.select import backend
from minorm.ops import activation
from minorm.ops.activation import log1p_exp


class Gate(NamedTuple):
    """An activation with its numbers; those that it does not have are 0."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


# The numbers that an activation has: (), (alpha,) or (alpha, beta). They are those of the operators of the same name.
DEFAULTS: dict[str, tuple[float, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "Softsign": (), "Softplus": (),
    "LeakyRelu": (0.01,), "ThresholdedRelu": (1.0,), "Elu": (1.0,),
    "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0), "HardSigmoid": (0.2, 0.5),
}  # fmt: skip


def value(gate: Gate, x: Any) -> Any:
    """The activation of x."""
    name, alpha, beta = gate.name, x.dtype.type(gate.alpha), x.dtype.type(gate.beta)
    if name == "Sigmoid":
        return backend(x).elementwise.sigmoid(x)
    if name == "Tanh":
        return backend(x).elementwise.tanh(x)
    if name == "Relu":
        return np.maximum(x, 0)
    if name == "Softsign":
        return x / (1 + abs(x))
    if name == "Softplus":
        return log1p_exp(-abs(x)) + np.maximum(x, 0)
    if name == "LeakyRelu":
        return np.where(x < 0, alpha * x, x)
    if name == "ThresholdedRelu":
        return np.where(x > alpha, x, x.dtype.type(0))
    if name == "Elu":
        return np.where(x < 0, alpha * backend(x).elementwise.expm1(np.minimum(x, 0)), x)
    if name == "Affine":
        return alpha * x + beta
    if name == "ScaledTanh":
        return alpha * backend(x).elementwise.tanh(beta * x)
    if name == "HardSigmoid":
        return np.clip(alpha * x + beta, x.dtype.type(0), x.dtype.type(1))
    raise ValueError(f"activation is {name!r}; expected one of {', '.join(DEFAULTS)}")


def slope(gate: Gate, x: Any, y: Any) -> Any:
    """The derivative of the activation where it took x to y."""
    name, alpha, beta = gate.name, x.dtype.type(gate.alpha), x.dtype.type(gate.beta)
    one, zero = x.dtype.type(1), x.dtype.type(0)
    if name == "Sigmoid":
        return y * (1 - y)
    if name == "Tanh":
        return 1 - y * y
    if name == "Relu":
        return np.where(x > 0, one, zero)
    if name == "Softsign":
        return 1 / (1 + abs(x)) ** 2
    if name == "Softplus":
        return backend(x).elementwise.sigmoid(x)
    if name == "LeakyRelu":
        return np.where(x < 0, alpha, one)
    if name == "ThresholdedRelu":
        return np.where(x > alpha, one, zero)
    if name == "Elu":
        return np.where(x < 0, y + alpha, one)
    if name == "Affine":
        return np.full_like(x, alpha)
    if name == "ScaledTanh":
        return alpha * beta * (1 - backend(x).elementwise.tanh(beta * x) ** 2)
    return np.where((y > 0) & (y < 1), alpha, zero)  # HardSigmoid


def expression(gate: Gate, x: Any) -> Any:
    """The activation of a Tensor x, recorded."""
    name, alpha, beta = gate
    if name in ("Sigmoid", "Tanh", "Relu"):
        return getattr(activation, name).apply(x)
    if name == "Softsign":
        return x / (1 + x.abs())
    if name == "Softplus":
        return activation.Softplus.apply(x, beta=1.0, threshold=math.inf)
    if name == "LeakyRelu":
        return activation.LeakyRelu.apply(x, slope=alpha)
    if name == "ThresholdedRelu":
        return passing(x, x.array > alpha)
    if name == "Elu":
        return activation.Elu.apply(x, alpha=alpha)
    if name == "Affine":
        return x * alpha + beta
    if name == "ScaledTanh":
        return activation.Tanh.apply(x * beta) * alpha
    return (x * alpha + beta).clip(0.0, 1.0)  # HardSigmoid
