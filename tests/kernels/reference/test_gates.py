"""The activations of recurrent layers: values against PyTorch's or a formula, slopes against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minorm.kernels.cpu import elementwise
from minorm.kernels.reference import gates
from minorm.kernels.reference.gates import DEFAULTS, Gate

X = np.array([-3.2, -1.1, -0.31, 0.0, 0.27, 0.9, 2.4])
FORMULAS: dict[str, Callable[..., Any]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softsign": lambda x: x / (1 + abs(x)),
    "Softplus": lambda x: np.log(1 + np.exp(x)),
    "LeakyRelu": lambda x, a: np.where(x > 0, x, a * x),
    "ThresholdedRelu": lambda x, a: np.where(x > a, x, 0),
    "Elu": lambda x, a: np.where(x > 0, x, a * (np.exp(x) - 1)),
    "Affine": lambda x, a, b: a * x + b,
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.minimum(np.maximum(a * x + b, 0), 1),
}


def value(gate: Gate, x: Any) -> Any:
    return gates.value(gate, x, elementwise)


def slope(gate: Gate, x: Any, y: Any) -> Any:
    return gates.slope(gate, x, y, elementwise)


@pytest.mark.parametrize("name", DEFAULTS)
def test_values_and_slopes(name: str) -> None:
    for numbers in (DEFAULTS[name], (0.3, 0.45)[: len(DEFAULTS[name])]):
        gate = Gate(name, *numbers)
        np.testing.assert_allclose(value(gate, X), FORMULAS[name](X, *numbers), rtol=1e-13, atol=1e-13)
        x = X[X != 0]  # some have a kink there
        h = 1e-6
        differences = (FORMULAS[name](x + h, *numbers) - FORMULAS[name](x - h, *numbers)) / (2 * h)
        np.testing.assert_allclose(slope(gate, x, value(gate, x)), differences, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", DEFAULTS)
def test_float32_stays_float32(name: str) -> None:
    gate, x = Gate(name, *DEFAULTS[name]), X.astype(np.float32)
    y = value(gate, x)
    assert (y.dtype, slope(gate, x, y).dtype) == (np.float32, np.float32)


def test_large_numbers_do_not_overflow() -> None:
    x = np.array([-1e4, 1e4], np.float32)
    with np.errstate(all="raise", under="ignore"):
        for name in DEFAULTS:
            assert np.isfinite(value(Gate(name, *DEFAULTS[name]), x)).all()


def test_an_unknown_name() -> None:
    with pytest.raises(ValueError, match="activation is 'Sine'; expected one of Relu, Tanh, Sigmoid"):
        value(Gate("Sine"), X)
