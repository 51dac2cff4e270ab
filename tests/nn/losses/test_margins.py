"""Triplet losses: against PyTorch's. tests/pytorch/test_samples.py has the other losses with margins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.pytorch.twins.samples import compare, leaves, numbers, ours, same_function, same_layer  # noqa: E402

THREE = tuple(numbers(5, 4, seed=i) for i in range(3))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_triplet(reduction: str, swap: bool, p: float) -> None:
    for margin in (1.0, 0.2):
        settings: dict[str, Any] = {"margin": margin, "p": p, "swap": swap, "reduction": reduction}
        same_layer("TripletMarginLoss", *THREE, **settings)
        same_function("triplet_margin_loss", *THREE, **settings)
    same_layer("TripletMarginLoss", *(numbers(4, seed=i) for i in range(3)), reduction=reduction, swap=swap)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_triplet_of_any_distance(reduction: str, swap: bool, own: bool) -> None:
    results, given = [], []
    for library in (mn, torch):
        arguments: Any = leaves(list(THREE)) if library is torch else ours(leaves(list(THREE)))
        distance = (lambda a, b: (a - b).abs().sum(-1)) if own else None
        loss = library.nn.TripletMarginWithDistanceLoss(
            distance_function=distance, margin=0.7, swap=swap, reduction=reduction
        )
        results.append(loss(*arguments))
        given.append(arguments)
    compare(*results, (given[0], given[1]), "TripletMarginWithDistanceLoss")


def test_cosine_embedding_of_float16_does_not_overflow() -> None:
    rng = np.random.default_rng(0)
    x, y = (mn.tensor(rng.standard_normal((4, 300)) * 300).half() for _ in range(2))
    a, b = x.double().numpy(), y.double().numpy()
    expected = 1 - (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))
    found = mn.functional.cosine_embedding_loss(x, y, mn.ones(4), reduction="none")
    assert found.dtype == mn.float16
    np.testing.assert_allclose(found.double().numpy(), expected, atol=2**-10)
