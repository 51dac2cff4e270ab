"""Local response normalization as Caffe's networks have it: against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.pytorch.twins.samples import numbers, ours  # noqa: E402

CASES = [(3, 1e-4, 0.75, 1.0), (5, 0.5, 0.5, 2.0), (1, 0.1, 1.0, 1.0)]


def compared(theirs: Any, layer: Any, x: Any) -> None:
    mine, leaf = ours(x), x.detach().clone().requires_grad_()
    found, expected = layer(mine), theirs(leaf)
    np.testing.assert_allclose(found.array, expected.detach().numpy(), rtol=1e-12)
    weights = np.random.default_rng(1).standard_normal(expected.shape)
    (found * mn.tensor(weights)).sum().backward()
    (expected * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(mine.grad.array, leaf.grad.numpy(), rtol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_across_channels(case: Any) -> None:
    """The formula of the docstring, which is PyTorch's LocalResponseNorm."""
    compared(torch.nn.LocalResponseNorm(*case), mn.nn.CrossMapLRN2d(*case), numbers(2, 6, 3, 4))
    assert repr(mn.nn.CrossMapLRN2d(*case)) == repr(torch.nn.CrossMapLRN2d(*case))


@pytest.mark.parametrize("case", CASES)
def test_pytorchs_window_never_lets_the_first_channel_go(case: Any) -> None:
    """PyTorch's port of Torch's code counts from 0 where Torch counted from 1; a first channel of 0 hides it."""
    x = numbers(2, 6, 3, 4, grad=False)
    x[:, 0] = 0
    theirs, layer = torch.nn.CrossMapLRN2d(*case), mn.nn.CrossMapLRN2d(*case)
    np.testing.assert_allclose(layer(ours(x)).array, theirs(x).numpy(), rtol=1e-12)
    x[:, 0] = 1
    assert not np.allclose(layer(ours(x)).array, theirs(x).numpy(), rtol=1e-6)
