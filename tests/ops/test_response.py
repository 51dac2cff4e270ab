"""LRN and Lp normalization: float64 formulas, PyTorch, finite differences, magnitudes that overflow a square."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm.testing import gradcheck

SIZES = [1, 2, 3, 4, 5, 9, 20]


def lrn(x, size, alpha, beta, k):
    """The definition, one element at a time."""
    y = np.empty_like(x)
    for c in range(x.shape[1]):
        window = x[:, max(0, c - size // 2) : c + (size - 1) // 2 + 1]
        y[:, c] = x[:, c] / (k + alpha / size * (window**2).sum(1)) ** beta
    return y


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [(2, 7), (3, 7, 2, 3), (2, 1, 4)])
def test_lrn_is_its_formula_and_its_gradient_too(size, shape, rng) -> None:
    x = rng.standard_normal(shape)
    got = F.local_response_norm(mn.tensor(x), size, 0.5, 0.75, 2.0)
    np.testing.assert_allclose(got.data, lrn(x, size, 0.5, 0.75, 2.0), rtol=1e-13)
    gradcheck(lambda t: F.local_response_norm(t, size, 0.5, 0.6, 1.5), x)


@pytest.mark.parametrize("size", SIZES)
def test_lrn_is_torchs(size, rng) -> None:
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((3, 8, 4, 4)).astype(np.float32)
    ours, theirs = mn.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    a = F.local_response_norm(ours, size, alpha=0.1)
    b = torch.nn.functional.local_response_norm(theirs, size, alpha=0.1)
    a.sum().backward()
    b.sum().backward()
    np.testing.assert_allclose(a.data, b.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours.grad.data, theirs.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_lp_is_its_formula_torchs_and_differentiable(p, dim, rng) -> None:
    x = rng.standard_normal((3, 4, 5))
    expected = x / (np.abs(x) ** p).sum(dim, keepdims=True) ** (1 / p)
    np.testing.assert_allclose(F.normalize(mn.tensor(x), p, dim).data, expected, rtol=1e-13)
    gradcheck(lambda t: F.normalize(t, p, dim), x)
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.normalize(torch.tensor(x), p, dim).numpy()
    np.testing.assert_allclose(F.normalize(mn.tensor(x), p, dim).data, theirs, rtol=1e-13)


def test_lp_of_zeros_is_zero_and_below_eps_divides_by_eps() -> None:
    x = mn.tensor([[0.0, 0.0], [1e-3, 0.0]], dtype=mn.float64, requires_grad=True)
    y = F.normalize(x, 2.0, 1, eps=0.1)
    np.testing.assert_allclose(y.data, [[0, 0], [0.01, 0]], rtol=1e-12)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.data, np.full((2, 2), 10.0))


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_lp_of_any_magnitude_has_norm_one(p, size, rng) -> None:
    x = (rng.standard_normal((4, 9)) * size).astype(np.float32)
    y = F.normalize(mn.tensor(x), p, 1, eps=0.0).data.astype(np.float64)
    np.testing.assert_allclose((np.abs(y) ** p).sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16])
@pytest.mark.parametrize("f", [F.normalize, lambda t: F.local_response_norm(t, 3)], ids=["lp", "lrn"])
def test_16_bit_floats_are_rounded_once(dtype, f, rng) -> None:
    x = mn.tensor(rng.standard_normal((4, 6, 3)).astype(np.float32)).to(dtype)
    np.testing.assert_array_equal(f(x).data, f(x.float()).to(dtype).data)
    half, whole = x.detach().requires_grad_(), x.float().requires_grad_()
    f(half).backward(np.ones(x.shape, dtype))
    f(whole).backward(np.ones(x.shape, np.float32))
    np.testing.assert_array_equal(half.grad.data, whole.grad.to(dtype).data)


def test_errors() -> None:
    x = mn.ones(2, 3)
    with pytest.raises(ValueError, match=r"local_response_norm: size=0; expected an integer of at least 1"):
        F.local_response_norm(x, 0)
    with pytest.raises(ValueError, match=r"local_response_norm: x.shape is \(3,\); expected \(N, C, \*\)"):
        F.local_response_norm(mn.ones(3), 3)
    with pytest.raises(ValueError, match=r"normalize: p=0.5; expected 1 <= p < infinity"):
        F.normalize(x, 0.5)
    with pytest.raises(IndexError, match=r"normalize: dim=2 is out of range for shape \(2, 3\)"):
        F.normalize(x, dim=2)
    with pytest.raises(TypeError, match="normalize: x is int64; expected a float type"):
        F.normalize(mn.tensor([[1]]))


def test_empty_input_passes_through() -> None:
    assert F.normalize(mn.zeros(0, 3)).shape == (0, 3)
    assert F.local_response_norm(mn.zeros(0, 3), 5).shape == (0, 3)
