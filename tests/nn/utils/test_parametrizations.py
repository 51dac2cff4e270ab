"""weight_norm and spectral_norm beside PyTorch's: results, gradients, keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.nn.utils import parametrizations

torch = pytest.importorskip("torch")


def compared(mine: Any, other: Any, x: np.ndarray) -> None:
    y, expected = mine(mn.tensor(x)), other(torch.tensor(x))
    np.testing.assert_allclose(y.array, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    theirs = dict(other.named_parameters())
    assert {name for name, _ in mine.named_parameters()} == set(theirs)
    for name, p in mine.named_parameters():
        np.testing.assert_allclose(p.grad.array, theirs[name].grad.numpy(), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim: Any, rng: np.random.Generator) -> None:
    other = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4).double(), dim=dim)
    mine = parametrizations.weight_norm(nn.Linear(3, 4).double(), dim=dim)
    mine.load_state_dict(other.state_dict())
    compared(mine, other, rng.standard_normal((5, 3)))


def test_spectral_norm(rng: np.random.Generator) -> None:
    other = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Conv2d(2, 3, 3).double())
    mine = parametrizations.spectral_norm(nn.Conv2d(2, 3, 3).double())
    mine.load_state_dict(other.state_dict())
    x = rng.standard_normal((2, 2, 5, 5))
    compared(mine, other, x)
    compared(mine.eval(), other.eval(), x)
