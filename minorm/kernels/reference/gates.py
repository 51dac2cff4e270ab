"""The activations of recurrent layers under their ONNX names, and the derivatives of these activations.

`slope` computes a derivative from the input x or from the output y, whichever needs less computation. Some activations
have parameters alpha and beta; DEFAULTS has the default values. `maps` are a backend's elementwise functions. The
kernels have the same formulas in minorm_ext/recurrent/activations.inc.h.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Gate(NamedTuple):
    """An activation and its parameters. A parameter that the activation does not have is 0."""

    name: str
    alpha: float = 0.0
    beta: float = 0.0


# The parameters of each activation: (), (alpha,) or (alpha, beta), as for the ONNX operator of the same name.
DEFAULTS: dict[str, tuple[float, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "Softsign": (), "Softplus": (),
    "LeakyRelu": (0.01,), "ThresholdedRelu": (1.0,), "Elu": (1.0,),
    "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0), "HardSigmoid": (0.2, 0.5),
}  # fmt: skip


def value(gate: Gate, x: Any, maps: Any) -> Any:
    """Return the activation of x."""
    name, alpha, beta = gate.name, x.dtype.type(gate.alpha), x.dtype.type(gate.beta)
    if name == "Sigmoid":
        return maps.sigmoid(x)
    if name == "Tanh":
        return maps.tanh(x)
    if name == "Relu":
        return np.maximum(x, 0)
    if name == "Softsign":
        return x / (1 + abs(x))
    if name == "Softplus":
        return maps.log1p(maps.exp(-abs(x))) + np.maximum(x, 0)
    if name == "LeakyRelu":
        return np.where(x < 0, alpha * x, x)
    if name == "ThresholdedRelu":
        return np.where(x > alpha, x, x.dtype.type(0))
    if name == "Elu":
        return np.where(x < 0, alpha * maps.expm1(np.minimum(x, 0)), x)
    if name == "Affine":
        return alpha * x + beta
    if name == "ScaledTanh":
        return alpha * maps.tanh(beta * x)
    if name == "HardSigmoid":
        return np.clip(alpha * x + beta, x.dtype.type(0), x.dtype.type(1))
    raise ValueError(f"activation is {name!r}; expected one of {', '.join(DEFAULTS)}")


def slope(gate: Gate, x: Any, y: Any, maps: Any) -> Any:
    """Return the derivative of the activation at x; y is the activation's value there."""
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
        return maps.sigmoid(x)
    if name == "LeakyRelu":
        return np.where(x < 0, alpha, one)
    if name == "ThresholdedRelu":
        return np.where(x > alpha, one, zero)
    if name == "Elu":
        return np.where(x < 0, y + alpha, one)
    if name == "Affine":
        return np.full_like(x, alpha)
    if name == "ScaledTanh":
        return alpha * beta * (1 - maps.tanh(beta * x) ** 2)
    return np.where((y > 0) & (y < 1), alpha, zero)  # HardSigmoid
