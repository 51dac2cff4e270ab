"""Distances and similarities: against PyTorch's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.twins.samples import numbers, same_function, same_layer  # noqa: E402


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cosine_similarity(dim: int) -> None:
    same_layer("CosineSimilarity", numbers(4, 3, 5), numbers(4, 3, 5, seed=1), dim=dim)
    same_layer("CosineSimilarity", numbers(4, 3, 5), numbers(1, 5, seed=1), dim=dim, eps=0.1)
    zeros = torch.zeros(4, 3, 5, dtype=torch.float64, requires_grad=True)
    same_layer("CosineSimilarity", zeros, numbers(4, 3, 5), dim=dim)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5, float("inf")])
@pytest.mark.parametrize("keepdim", [False, True])
def test_pairwise_distance(p: float, keepdim: bool) -> None:
    for shapes in (((4, 3), (4, 3)), ((4, 3), (1, 3)), ((3,), (3,)), ((2, 4, 3), (4, 3))):
        a, b = (numbers(*shape, seed=i) for i, shape in enumerate(shapes))
        same_layer("PairwiseDistance", a, b, p=p, keepdim=keepdim)
        same_function("pairwise_distance", a, b, p=p, keepdim=keepdim, eps=1e-3)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, float("inf")])
def test_pdist(p: float) -> None:
    for rows in (1, 2, 6):
        same_function("pdist", numbers(rows, 3), p=p)
