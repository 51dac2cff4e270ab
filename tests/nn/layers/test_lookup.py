"""Layers of tables: against PyTorch's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.pytorch.twins.samples import numbers, same_function, same_layer  # noqa: E402

PLACES = torch.tensor([1, 0, 3, 3, 5, 1, 2])
ENDS = {False: torch.tensor([0, 2, 2, 5]), True: torch.tensor([0, 2, 2, 5, 7])}


@pytest.mark.parametrize(
    ("mode", "last", "padding"), list(itertools.product(["sum", "mean", "max"], [False, True], [None, 3, -5]))
)
def test_bags(mode: str, last: bool, padding: int | None) -> None:
    settings: dict[str, Any] = {"mode": mode, "include_last_offset": last, "padding_idx": padding}
    same_layer("EmbeddingBag", PLACES, ENDS[last], given=(6, 4), **settings)
    same_function("embedding_bag", PLACES, numbers(6, 4), ENDS[last], **settings)
    if not last:
        same_layer("EmbeddingBag", PLACES[:6].reshape(3, 2), given=(6, 4), **settings)
        same_function("embedding_bag", PLACES[:6].reshape(2, 3), numbers(6, 4), **settings)


@pytest.mark.parametrize("padding", [None, 3])
def test_weighted_bags(padding: int | None) -> None:
    weights = numbers(7, seed=3)
    settings: dict[str, Any] = {"mode": "sum", "padding_idx": padding}
    same_function(
        "embedding_bag", PLACES, numbers(6, 4), ENDS[False], per_sample_weights=weights, **settings
    )  # fmt: skip
    same_layer("EmbeddingBag", PLACES, ENDS[False], weights, given=(6, 4), **settings)
    rows = PLACES[:6].reshape(3, 2)
    same_layer("EmbeddingBag", rows, None, numbers(3, 2, seed=4), given=(6, 4), **settings)


@pytest.mark.parametrize("settings", [{}, {"padding_idx": 3}, {"padding_idx": -3}, {"scale_grad_by_freq": True}])
def test_rows(settings: dict[str, Any]) -> None:
    for places in (PLACES, PLACES[:6].reshape(2, 3), PLACES[0], PLACES[:0]):
        same_function("embedding", places, numbers(6, 4), **settings)
        same_layer("Embedding", places, given=(6, 4), **settings)


@pytest.mark.parametrize("norm", [1.0, 2.0])
def test_rows_are_shortened(norm: float) -> None:
    table = numbers(6, 4, grad=False)
    mine = mn.tensor(table.numpy())
    expected = torch.nn.functional.embedding(PLACES, table, max_norm=0.7, norm_type=norm)
    found = mn.functional.embedding(mn.tensor(PLACES.numpy()), mine, max_norm=0.7, norm_type=norm)
    np.testing.assert_allclose(found.array, expected.numpy(), rtol=1e-9)
    np.testing.assert_allclose(mine.array, table.numpy(), rtol=1e-9)  # the table itself is changed


@pytest.mark.parametrize("name", ["Embedding", "EmbeddingBag"])
def test_from_pretrained(name: str) -> None:
    table = numbers(6, 4, grad=False)
    layer = getattr(mn.nn, name).from_pretrained(mn.tensor(table.numpy()), padding_idx=2, scale_grad_by_freq=True)
    theirs = getattr(torch.nn, name).from_pretrained(table, padding_idx=2, scale_grad_by_freq=True)
    assert repr(layer) == repr(theirs)
    assert [p.requires_grad for p in layer.parameters()] == [p.requires_grad for p in theirs.parameters()] == [False]
    places = [[1, 2], [0, 0]]
    np.testing.assert_allclose(layer(mn.tensor(places)).array, theirs(torch.tensor(places)).numpy(), rtol=1e-12)


@pytest.mark.parametrize("classes", [-1, 4, 9])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 2)])
def test_one_hot(shape: tuple[int, ...], classes: int) -> None:
    labels = torch.tensor(np.random.default_rng(0).integers(0, 4, shape))
    if labels.numel() == 0 and classes == -1:
        with pytest.raises(ValueError, match="one_hot"):
            mn.functional.one_hot(mn.tensor(labels.numpy()))
        return
    same_function("one_hot", labels, classes)


@pytest.mark.parametrize("bias", [True, False])
def test_bilinear(bias: bool) -> None:
    for lead in ((5,), (2, 3), ()):
        same_layer("Bilinear", numbers(*lead, 3), numbers(*lead, 4, seed=1), given=(3, 4, 2), bias=bias)
