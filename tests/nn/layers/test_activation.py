"""Activation layers beside PyTorch's."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm import nn

CASES = [
    ("ReLU", {}),
    ("ReLU6", {}),
    ("LeakyReLU", {"negative_slope": 0.2}),
    ("ELU", {"alpha": 0.7}),
    ("GELU", {}),
    ("GELU", {"approximate": "tanh"}),
    ("SiLU", {}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("Hardswish", {}),
    ("Softplus", {"beta": 2.0, "threshold": 3.0}),
    ("Softmax", {"dim": 1}),
    ("LogSoftmax", {"dim": -1}),
]


@pytest.mark.parametrize(("layer", "options"), CASES)
def test_twins(twins, rng, layer, options):
    torch = pytest.importorskip("torch")
    twins(getattr(nn, layer)(**options), getattr(torch.nn, layer)(**options), rng.standard_normal((3, 4, 5)) * 3)


def test_hardsigmoid(twins, rng):  # PyTorch multiplies by a float32 1/6, also in float64
    torch = pytest.importorskip("torch")
    twins(nn.Hardsigmoid(), torch.nn.Hardsigmoid(), rng.standard_normal((3, 4)) * 3, rtol=1e-7)


@pytest.mark.parametrize("layer", ["ReLU", "ReLU6", "LeakyReLU", "ELU", "SiLU", "Hardswish", "Hardsigmoid"])
def test_inplace_is_accepted_and_changes_nothing(layer):
    x = mn.tensor([-4.0, -1.0, 2.0])
    getattr(nn, layer)(inplace=True)(x)
    assert x.tolist() == [-4.0, -1.0, 2.0]


def test_softmax_needs_dim():
    with pytest.raises(TypeError, match="dim"):
        nn.Softmax()


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "elu", "silu", "hardswish", "hardsigmoid", "dropout"])
def test_inplace_of_a_function_makes_a_new_tensor(name):
    x = mn.tensor([-4.0, -1.0, 2.0])
    mn.manual_seed(0)
    expected = getattr(nn.functional, name)(x)
    mn.manual_seed(0)
    assert getattr(nn.functional, name)(x, inplace=True).tolist() == expected.tolist()
    assert x.tolist() == [-4.0, -1.0, 2.0]
