"""A diagonal is a view: writing into it changes the matrix, and gradients go both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("shape", "take"),
    [
        ((3, 3), lambda x: x.diagonal()),
        ((3, 4), lambda x: x.diagonal(1)),
        ((4, 3), lambda x: x.diagonal(-2)),
        ((3, 3), lambda x: x.diagonal(5)),
        ((2, 3, 4), lambda x: x.diagonal(0, 1, 2)),
        ((2, 3, 4), lambda x: x.diagonal(offset=1, dim1=-1, dim2=0)),
        ((3, 4), lambda x: x.T.diagonal()),
        ((4, 6), lambda x: x[1:, ::2].diagonal()),
        ((2, 8), lambda x: x.reshape(4, 4)[:3].diagonal()[1:]),
    ],
)
def test_it_is_pytorchs(shape: tuple[int, ...], take: Any) -> None:
    array = np.random.default_rng(0).standard_normal(shape)
    found = []
    for library in (mn, torch):
        x, w = library.tensor(array), library.tensor(array.ravel()[:4], requires_grad=True)
        take(x).fill_(5.0)
        filled = x.clone()
        y = library.tensor(array, requires_grad=True)
        z = y * 1.0
        part = take(z)
        if part.numel():
            part.copy_(w[: part.shape[-1]])
            part.mul_(2.0)
        ((z * z).sum() + (take(z) ** 3).sum() + 0 * w.sum()).backward()
        found.append([filled, z.detach(), y.grad, w.grad])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-12)


def test_its_gradient_and_what_is_no_view() -> None:
    x = mn.tensor(np.random.default_rng(0).standard_normal((3, 4)), requires_grad=True)
    assert gradcheck(lambda x: x.diagonal(1) * x.diagonal(-1).sum(), x)
    matrix = mn.zeros(2, 2)
    matrix.diag().fill_(1.0)  # a copy, as PyTorch's is
    assert matrix.sum().item() == 0
    assert matrix.expand(3, 2, 2).diagonal(0, 1, 2).shape == (3, 2)
