"""Softmax over channels, and draws of classes: against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.pytorch.twins.samples import numbers, same_layer  # noqa: E402


def test_softmax2d() -> None:
    same_layer("Softmax2d", numbers(2, 3, 4, 5))
    same_layer("Softmax2d", numbers(3, 4, 5))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gumbel_softmax_is_softmax_of_what_it_draws(dim: int) -> None:
    logits = mn.tensor(np.random.default_rng(0).standard_normal((3, 4, 5)), requires_grad=True)
    mn.manual_seed(3)
    soft = mn.functional.gumbel_softmax(logits, tau=0.7, dim=dim)
    np.testing.assert_allclose(soft.array.sum(dim), 1, rtol=1e-12)
    # p = softmax((x + g) / tau), so tau * log p - x is g, up to a number each row
    noise = 0.7 * np.log(soft.array) - logits.array
    weights = np.random.default_rng(1).standard_normal(soft.shape)
    (soft * mn.tensor(weights)).sum().backward()
    theirs = torch.tensor(logits.array.copy(), requires_grad=True)
    (((theirs + torch.tensor(noise)) / 0.7).softmax(dim) * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(logits.grad.array, theirs.grad.numpy(), rtol=1e-9)

    mn.manual_seed(3)
    logits.grad = None
    hard = mn.functional.gumbel_softmax(logits, tau=0.7, hard=True, dim=dim)
    np.testing.assert_allclose(hard.array, (soft.array == soft.array.max(dim, keepdims=True)).astype(float), atol=1e-12)
    (hard * mn.tensor(weights)).sum().backward()
    np.testing.assert_allclose(logits.grad.array, theirs.grad.numpy(), rtol=1e-9)  # that of the soft one


def test_gumbel_softmax_draws_each_class_as_often_as_softmax_says() -> None:
    mn.manual_seed(0)
    logits = mn.tensor([0.5, -1.0, 2.0, 0.0])
    drawn = mn.functional.gumbel_softmax(logits.expand(20_000, 4), hard=True).mean(0).array
    np.testing.assert_allclose(drawn, logits.softmax(0).array, atol=4 * np.sqrt(0.25 / 20_000))
