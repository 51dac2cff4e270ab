"""Distances and similarities: against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from tests.pytorch.twins.samples import numbers, same_function, same_layer  # noqa: E402


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


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_equal_vectors_have_a_gradient_of_0(p: float) -> None:
    """No direction leads away from a vector to itself; PyTorch's values for all other pairs."""
    a, b = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 3.0]]), np.array([[0.0, 0.0], [1.0, 5.0], [1.0, 2.0]])
    found = []
    for library in (torch, mn):
        x, y = (library.tensor(v) for v in (a, b))
        x.requires_grad_(True)
        library.cdist(x, y[:1] if p == float("inf") else y, p=p)[: 1 if p == float("inf") else 3].sum().backward()
        found.append(np.array(x.grad.tolist()))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-12)
    assert (found[1][0] == 0).all() or p != float("inf")


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_distances_of_16_bits_are_rounded_once(kind: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (mn.tensor(rng.standard_normal((n, 40)) + 30, dtype=getattr(mn, kind)) for n in (5, 6))
    a, b = x.double().numpy(), y.double().numpy()
    rounding = 2.0**-11 if kind == "float16" else 2.0**-8
    expected = np.sqrt(((a[:, None] - b) ** 2).sum(-1))
    np.testing.assert_allclose(mn.cdist(x, y).double().numpy(), expected, rtol=rounding * 1.01)
    np.testing.assert_allclose(mn.functional.pdist(x).double().numpy()[0], np.sqrt(((a[0] - a[1]) ** 2).sum()),
                               rtol=rounding * 1.01)  # fmt: skip
