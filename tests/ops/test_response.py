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
    np.testing.assert_allclose(got.array, lrn(x, size, 0.5, 0.75, 2.0), rtol=1e-13)
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
    np.testing.assert_allclose(a.array, b.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(ours.grad.array, theirs.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_lp_is_its_formula_torchs_and_differentiable(p, dim, rng) -> None:
    x = rng.standard_normal((3, 4, 5))
    expected = x / (np.abs(x) ** p).sum(dim, keepdims=True) ** (1 / p)
    np.testing.assert_allclose(F.normalize(mn.tensor(x), p, dim).array, expected, rtol=1e-13)
    gradcheck(lambda t: F.normalize(t, p, dim), x)
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.normalize(torch.tensor(x), p, dim).numpy()
    np.testing.assert_allclose(F.normalize(mn.tensor(x), p, dim).array, theirs, rtol=1e-13)


def test_lp_of_zeros_is_zero_and_below_eps_divides_by_eps() -> None:
    x = mn.tensor([[0.0, 0.0], [1e-3, 0.0]], dtype=mn.float64, requires_grad=True)
    y = F.normalize(x, 2.0, 1, eps=0.1)
    np.testing.assert_allclose(y.array, [[0, 0], [0.01, 0]], rtol=1e-12)
    y.sum().backward()
    np.testing.assert_allclose(x.grad.array, np.full((2, 2), 10.0))


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_lp_of_any_magnitude_has_norm_one(p, size, rng) -> None:
    x = (rng.standard_normal((4, 9)) * size).astype(np.float32)
    y = F.normalize(mn.tensor(x), p, 1, eps=0.0).array.astype(np.float64)
    np.testing.assert_allclose((np.abs(y) ** p).sum(1), 1, rtol=1e-6)


@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("offset", [0, 1e4, 1e7])
@pytest.mark.parametrize(("shape", "dim"), [((100_000, 8), 0), ((8, 100_000), 1), ((4, 30_000, 6), 1)])
def test_lp_of_long_vectors_keeps_float32s_digits(shape, dim, offset, p, rng) -> None:
    """A sum of 100,000 float32 powers, one after the other, would be wrong by 1e-5."""
    x = (rng.standard_normal(shape) + offset).astype(np.float32)
    x.reshape(-1)[0] = 1e3
    dy = rng.standard_normal(shape).astype(np.float32)
    tensor = mn.tensor(x, requires_grad=True)
    y = F.normalize(tensor, p, dim)
    y.backward(dy)
    wide = x.astype(np.float64)
    norm = (np.abs(wide) ** p).sum(dim, keepdims=True) ** (1 / p)
    exact = wide / norm
    slope = np.sign(exact) * np.abs(exact) ** (p - 1)
    dx = (dy - slope * (dy * exact).sum(dim, keepdims=True)) / norm
    np.testing.assert_allclose(y.array, exact, rtol=1e-6)
    assert np.linalg.norm(tensor.grad.array - dx) < 1e-6 * np.linalg.norm(dx)


@pytest.mark.parametrize("size", [4, 5])
@pytest.mark.parametrize("magnitude", [1e-40, 1e-20, 1.0, 1e14, 1e20, 1e30])
def test_lrn_of_any_magnitude(magnitude, size, rng) -> None:
    x = (rng.standard_normal((3, 9, 4, 5)) * magnitude).astype(np.float32)
    x[0, 0, 0, 0] = 1e6
    tensor = mn.tensor(x, requires_grad=True)
    y = F.local_response_norm(tensor, size)
    np.testing.assert_allclose(y.array, lrn(x.astype(np.float64), size, 1e-4, 0.75, 1.0), rtol=2e-6, atol=2**-149)
    y.sum().backward()
    wide = mn.tensor(x.astype(np.float64), requires_grad=True)
    F.local_response_norm(wide, size).sum().backward()  # held against finite differences above
    largest = np.abs(wide.grad.array).max()
    np.testing.assert_allclose(tensor.grad.array, wide.grad.array, rtol=1e-5, atol=1e-6 * largest + 2**-149)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_reach_their_own_vector_or_window_alone(bad, rng) -> None:
    x = rng.standard_normal((4, 9, 3)).astype(np.float32)
    clean = [F.normalize(mn.tensor(x)).array, F.local_response_norm(mn.tensor(x), 3).array]
    x[1, 4, 2] = bad
    with np.errstate(invalid="ignore"):
        y, z = F.normalize(mn.tensor(x)).array, F.local_response_norm(mn.tensor(x), 3).array
    assert np.isnan(y[1, 4, 2])
    assert np.isnan(z[1, 4, 2])
    y[1, :, 2], z[1, 3:6, 2] = clean[0][1, :, 2], clean[1][1, 3:6, 2]
    np.testing.assert_array_equal(y, clean[0])
    np.testing.assert_allclose(z, clean[1], rtol=1e-6)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16])
@pytest.mark.parametrize("f", [F.normalize, lambda t: F.local_response_norm(t, 3)], ids=["lp", "lrn"])
def test_16_bit_floats_are_rounded_once(dtype, f, rng) -> None:
    x = mn.tensor(rng.standard_normal((4, 6, 3)).astype(np.float32)).to(dtype)
    np.testing.assert_array_equal(f(x).array, f(x.float()).to(dtype).array)
    half, whole = x.detach().requires_grad_(), x.float().requires_grad_()
    f(half).backward(np.ones(x.shape, dtype))
    f(whole).backward(np.ones(x.shape, np.float32))
    np.testing.assert_array_equal(half.grad.array, whole.grad.to(dtype).array)


def test_errors() -> None:
    x = mn.ones(2, 3)
    with pytest.raises(ValueError, match=r"local_response_norm: size=0; expected an integer of at least 1"):
        F.local_response_norm(x, 0)
    with pytest.raises(ValueError, match=r"local_response_norm: x.shape is \(3,\); expected \(N, C, \*\)"):
        F.local_response_norm(mn.ones(3), 3)
    with pytest.raises(ValueError, match=r"normalize: p=0.5; expected 1 <= p < infinity"):
        F.normalize(x, 0.5)
    with pytest.raises(ValueError, match=r"normalize: eps=-1.0; expected a number of at least 0"):
        F.normalize(x, eps=-1.0)
    with pytest.raises(TypeError, match=r"normalize: dim is \(0, 1\); expected an int"):
        F.normalize(x, 2.0, (0, 1))
    with pytest.raises(TypeError, match=r"local_response_norm: size is 1.5; expected an int"):
        F.local_response_norm(x, 1.5)
    with pytest.raises(TypeError, match=r"local_response_norm: alpha is array"):
        F.local_response_norm(x, 3, np.ones(2))
    with pytest.raises(IndexError, match=r"normalize: dim=2 is out of range for shape \(2, 3\)"):
        F.normalize(x, dim=2)
    with pytest.raises(TypeError, match="normalize: x is int64; expected a float type"):
        F.normalize(mn.tensor([[1]]))


def test_empty_input_passes_through() -> None:
    assert F.normalize(mn.zeros(0, 3)).shape == (0, 3)
    assert F.local_response_norm(mn.zeros(0, 3), 5).shape == (0, 3)
