"""Optimizer steps by their formulas, one parameter after the other. Parameters and their state are changed in place.

Lists have one entry for each parameter. All arrays of a parameter have the same shape and type. 16-bit floats compute
in float32, and the new parameter and the new state are each rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import dtypes


def sgd(
    parameters: list[Any],
    gradients: list[Any],
    buffers: list[Any],
    *,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> None:
    """g = +-gradient + weight_decay * p;  m = momentum * m + (1 - dampening) * g;  p -= lr * m

    `buffers` holds m. With nesterov, p -= lr * (g + momentum * m). With momentum = 0, p -= lr * g, and `buffers` is not
    read.
    """
    for i, (p, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        value = _wide(p)
        g = _slope(value, gradient, weight_decay, maximize)
        if momentum:
            m = momentum * _wide(buffers[i]) + (1 - dampening) * g
            buffers[i][...] = m
            g = g + momentum * m if nesterov else m
        p[...] = value - lr * g


def adam(
    parameters: list[Any],
    gradients: list[Any],
    means: list[Any],
    squares: list[Any],
    peaks: list[Any],
    steps: list[int],
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    maximize: bool = False,
) -> None:
    """m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;  p -= lr * m' / (sqrt(v') + eps)

    m' = m / (1 - beta1^step) and v' = v / (1 - beta2^step), because m and v start at 0 and are too small at first.
    `step` counts from 1. g = +-gradient + weight_decay * p. With decoupled=True (AdamW), g = +-gradient, and p is first
    multiplied by 1 - lr * weight_decay. With amsgrad, `peaks` is not empty and holds the largest v so far, and v' is
    computed from this v.
    """
    for i, (p, gradient, step) in enumerate(zip(parameters, gradients, steps, strict=True)):
        value = _wide(p)
        g = _slope(value, gradient, 0.0 if decoupled else weight_decay, maximize)
        if decoupled:
            value = value * (1 - lr * weight_decay)
        m = _wide(means[i])
        m = m + (1 - beta1) * (g - m)
        v = beta2 * _wide(squares[i]) + (1 - beta2) * g * g
        means[i][...], squares[i][...] = m, v
        if peaks:
            v = np.maximum(_wide(peaks[i]), v)
            peaks[i][...] = v
        size = np.sqrt(v) / math.sqrt(1 - beta2**step) + eps
        p[...] = value - lr / (1 - beta1**step) * m / size


def scale(arrays: list[Any], factor: float) -> None:
    """Set x *= factor for every array."""
    for x in arrays:
        x[...] = _wide(x) * factor


def square_sum(array: Any) -> float:
    """Return the sum of squares, in float64."""
    wide = array.astype(np.float64)
    return float((wide * wide).sum())


def _wide(x: Any) -> Any:
    return x.astype(dtypes.compute_type(x.dtype), copy=False)


def _slope(p: Any, gradient: Any, weight_decay: float, maximize: bool) -> Any:
    g = -_wide(gradient) if maximize else _wide(gradient)
    return g + weight_decay * p if weight_decay else g
