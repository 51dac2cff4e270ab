"""FilterResponseNorm2d and TLU."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.testing import gradcheck


def test_the_formula() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)) + 2
    layer = nn.FilterResponseNorm2d(3, eps=0.1, dtype=mn.float64)
    with mn.no_grad():
        layer.weight.copy_(mn.tensor([1.0, 2, 3]))
        layer.bias.copy_(mn.tensor([0.5, 0, -1]))
    w, b = (p.detach().numpy().reshape(3, 1, 1) for p in (layer.weight, layer.bias))
    expected = x / np.sqrt((x**2).mean((2, 3), keepdims=True) + 0.1) * w + b
    np.testing.assert_allclose(layer(mn.tensor(x)).detach().numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(layer.eval()(mn.tensor(x)).detach().numpy(), expected, rtol=1e-12)
    layer.reset_parameters()
    assert layer.weight.detach().numpy().tolist() == [1, 1, 1]


def test_one_sample_is_enough_and_the_batch_does_not_matter() -> None:
    x = mn.randn(4, 3, 5, 5)
    layer = nn.FilterResponseNorm2d(3)
    np.testing.assert_array_equal(layer(x).detach().numpy()[1:2], layer(x[1:2]).detach().numpy())


def test_tlu() -> None:
    layer = nn.TLU(3)
    x = mn.randn(4, 3, 5)
    np.testing.assert_array_equal(layer(x).detach().numpy(), np.maximum(x.numpy(), 0))
    with mn.no_grad():
        layer.tau.copy_(mn.tensor([-1.0, 0, 0.5]))
    np.testing.assert_array_equal(
        layer(x).detach().numpy(), np.maximum(x.numpy(), np.array([-1, 0, 0.5], np.float32)[:, None])
    )
    double = nn.TLU(3, dtype=mn.float64)
    given = mn.randn(4, 3, 2, 2, dtype=mn.float64, requires_grad=True)
    assert gradcheck(double, given) < 1e-6
    double.zero_grad()
    double(given).sum().backward()
    np.testing.assert_array_equal(double.tau.grad.numpy(), (given.detach().numpy() < 0).sum((0, 2, 3)))


def test_repr_and_arguments() -> None:
    assert repr(nn.FilterResponseNorm2d(3)) == "FilterResponseNorm2d(3, eps=1e-06)"
    assert repr(nn.TLU(3)) == "TLU(3)"
    for kind in (nn.FilterResponseNorm2d, nn.TLU):
        with pytest.raises(ValueError, match=f"{kind.__name__}: num_features is 0"):
            kind(0)
        with pytest.raises(ValueError, match=rf"{kind.__name__}: x has shape \(2, 4, 5, 5\).*num_features=3"):
            kind(3)(mn.randn(2, 4, 5, 5))
    with pytest.raises(ValueError, match=r"expected \(N, C, H, W\)"):
        nn.FilterResponseNorm2d(3)(mn.randn(2, 3, 5))
