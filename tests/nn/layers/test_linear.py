"""Linear and the layers that only reshape, beside PyTorch's."""

from __future__ import annotations

import re

import pytest

import minorm as mn
from minorm import nn


def fails(error, message):
    return pytest.raises(error, match=re.escape(message))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("lead", [(), (5,), (2, 3)])
def test_linear(twins, rng, bias, lead):
    torch = pytest.importorskip("torch")
    twins(nn.Linear(4, 3, bias), torch.nn.Linear(4, 3, bias), rng.standard_normal((*lead, 4)))


def test_reshaping_layers(twins, rng):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((2, 3, 4, 5))
    twins(nn.Flatten(), torch.nn.Flatten(), x)
    twins(nn.Flatten(0, 2), torch.nn.Flatten(0, 2), x)
    twins(nn.Identity(1, a=2), torch.nn.Identity(1, a=2), x)
    twins(nn.Unflatten(2, (2, 2)), torch.nn.Unflatten(2, (2, 2)), x)
    assert nn.Unflatten(-1, (5, -1))(mn.ones(2, 10)).shape == (2, 5, 2)


def test_sizes_and_types():
    assert nn.Linear(2, 3, dtype=mn.float64).bias.dtype == mn.float64
    assert nn.Linear(2, 3, device="cpu").bias.device == "cpu"
    assert nn.Linear(2, 3, bias=False).bias is None
    with fails(ValueError, "Linear: out_features is 0; expected at least 1"):
        nn.Linear(2, 0)
    with fails(TypeError, "Linear: in_features is 2.0; expected an int"):
        nn.Linear(2.0, 1)
    with fails(IndexError, "Unflatten: dim=3 is out of range for shape (2, 4)"):
        nn.Unflatten(3, (2, 2))(mn.ones(2, 4))
    with fails(ValueError, "linear: x has 3 features in its last axis, weight takes 4"):
        nn.Linear(4, 1)(mn.ones(2, 3))
