"""batch_renorm against the paper's formula in float64, with gradients by finite differences of that formula."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import minorm as mn
import minorm.functional as F
from minorm.tensor.tensor import Tensor
from minorm.testing import gradcheck


def corrections(x: np.ndarray, mean: Any, var: Any, rmax: float, dmax: float, eps: float = 1e-5) -> tuple[Any, Any]:
    axes = (0, *range(2, x.ndim))
    std, running = np.sqrt(x.var(axes) + eps), np.sqrt(var + eps)
    return np.clip(std / running, 1 / rmax, rmax), np.clip((x.mean(axes) - mean) / running, -dmax, dmax)


def formula(x: Any, mean: Any, var: Any, w: Any, b: Any, rmax: float, dmax: float) -> np.ndarray:
    axes, wide = (0, *range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))
    r, d = (a.reshape(wide) for a in corrections(x, mean, var, rmax, dmax))
    xhat = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    return (xhat * r + d) * w.reshape(wide) + b.reshape(wide)


@settings(max_examples=40)
@given(
    n=st.integers(2, 6), positions=st.lists(st.integers(1, 3), max_size=3), rmax=st.sampled_from([1, 1.5, 3]),
    dmax=st.sampled_from([0, 0.5, 5]), seed=st.integers(0, 99), order=st.booleans(),
)  # fmt: skip
def test_the_formula(n: int, positions: list[int], rmax: float, dmax: float, seed: int, order: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3, *positions)) * 2 + 1
    if order and positions:
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1)).transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
    mean, var, w, b = rng.standard_normal(3), rng.random(3) + 0.1, rng.standard_normal(3), rng.standard_normal(3)
    m, v, count = Tensor(mean.copy()), Tensor(var.copy()), mn.zeros((), dtype=mn.int64)
    y = F.batch_renorm(
        Tensor(x), m, v, Tensor(w), Tensor(b), True, 0.75, rmax=rmax, dmax=dmax, num_batches_tracked=count
    )
    np.testing.assert_allclose(y.numpy(), formula(x, mean, var, w, b, rmax, dmax), rtol=1e-10, atol=1e-10)
    axes = (0, *range(2, x.ndim))
    np.testing.assert_allclose(m.numpy(), 0.75 * mean + 0.25 * x.mean(axes), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(v.numpy(), 0.75 * var + 0.25 * x.var(axes), rtol=1e-10, atol=1e-12)
    assert count.item() == 1


@pytest.mark.parametrize("shape", [(5, 2), (3, 2, 2, 2)])
def test_gradients_with_r_and_d_held(shape: tuple[int, ...]) -> None:
    """r and d are numbers: the gradient is that of batch_norm with the scale w * r and the bias w * d + b."""
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, *shape)) * 1.5
    mean, var = rng.standard_normal(2), rng.random(2) + 0.1
    given = [Tensor(a.copy()).requires_grad_() for a in (x, rng.standard_normal(2), rng.standard_normal(2))]
    y = F.batch_renorm(given[0], Tensor(mean.copy()), Tensor(var.copy()), *given[1:], True, rmax=1.4, dmax=0.7)
    y.backward(Tensor(dy))
    r, d = (Tensor(a) for a in corrections(x, mean, var, 1.4, 0.7))
    same = [Tensor(t.detach().numpy().copy()).requires_grad_() for t in given]
    expected = F.batch_norm(same[0], None, None, same[1] * r, same[1] * d + same[2], True)
    expected.backward(Tensor(dy))
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-10)
    for a, e in zip(given, same, strict=True):
        np.testing.assert_allclose(a.grad.numpy(), e.grad.numpy(), rtol=1e-9, atol=1e-12)

    def held(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, w * r, w * d + b, True)

    assert gradcheck(held, *same) < 1e-6


def test_without_scale_and_bias() -> None:
    rng = np.random.default_rng(0)
    x, mean, var = rng.standard_normal((6, 3)), rng.standard_normal(3), rng.random(3) + 0.1
    for w, b in ((None, None), (rng.standard_normal(3), None), (None, rng.standard_normal(3))):
        tensors = [None if p is None else Tensor(p).requires_grad_() for p in (w, b)]
        y = F.batch_renorm(Tensor(x).requires_grad_(), Tensor(mean.copy()), Tensor(var.copy()), *tensors, True)
        w, b = np.ones(3) if w is None else w, np.zeros(3) if b is None else b
        np.testing.assert_allclose(y.detach().numpy(), formula(x, mean, var, w, b, 3, 5), rtol=1e-10)
        y.sum().backward()
        assert all(p is None or p.grad.shape == (3,) for p in tensors)


def test_closed_clamps_are_batch_norm_and_open_ones_evaluation() -> None:
    x, mean, var = mn.randn(8, 3) * 2 + 1, mn.randn(3), mn.rand(3) + 0.5
    closed = F.batch_renorm(x, mean.clone(), var.clone(), training=True, rmax=1, dmax=0)
    np.testing.assert_allclose(closed.numpy(), F.batch_norm(x, None, None, training=True).numpy(), rtol=1e-6, atol=1e-6)
    wide = F.batch_renorm(x, mean.clone(), var.clone(), training=True, rmax=1e9, dmax=1e9)
    np.testing.assert_allclose(wide.numpy(), F.batch_norm(x, mean, var).numpy(), rtol=1e-4, atol=1e-5)


def test_evaluation_is_batch_norm_to_the_bit() -> None:
    x, mean, var, w = mn.randn(8, 3, 2), mn.randn(3), mn.rand(3), mn.randn(3)
    y = F.batch_renorm(x, mean, var, w)
    assert y.numpy().tobytes() == F.batch_norm(x, mean, var, w).numpy().tobytes()


def test_statistics_of_every_position() -> None:
    rng = np.random.default_rng(0)
    x, mean, var, w = (
        rng.standard_normal((6, 3, 4)),
        rng.standard_normal((3, 4)),
        rng.random((3, 4)),
        rng.random((3, 4)),
    )
    y = F.batch_renorm(Tensor(x), Tensor(mean.copy()), Tensor(var.copy()), Tensor(w), training=True)
    r = np.clip(np.sqrt((x.var(0) + 1e-5) / (var + 1e-5)), 1 / 3, 3)
    d = np.clip((x.mean(0) - mean) / np.sqrt(var + 1e-5), -5, 5)
    np.testing.assert_allclose(y.numpy(), ((x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * r + d) * w, rtol=1e-9)


def test_far_from_zero_float32_keeps_its_digits() -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((64, 3)) + 1e4).astype(np.float32)
    mean, var = (x.mean(0, dtype=np.float64) + 0.1).astype(np.float32), np.full(3, 1.2, np.float32)
    y = F.batch_renorm(Tensor(x), Tensor(mean.copy()), Tensor(var.copy()), training=True)
    wide = [a.astype(np.float64) for a in (x, mean, var)]
    np.testing.assert_allclose(y.numpy(), formula(*wide, np.ones(3), np.zeros(3), 3, 5), rtol=1e-5, atol=2e-6)


def test_types() -> None:
    x = mn.randn(8, 3, 5).half()
    y = F.batch_renorm(x, mn.zeros(3), mn.ones(3), training=True, compute_dtype=mn.float64)
    expected = formula(x.numpy().astype(np.float64), np.zeros(3), np.ones(3), np.ones(3), np.zeros(3), 3, 5)
    np.testing.assert_array_equal(y.numpy(), expected.astype(np.float16))


def test_nothing_in_nothing_out() -> None:
    mean, count = mn.zeros(3), mn.zeros((), dtype=mn.int64)
    x = mn.zeros(0, 3, requires_grad=True)
    y = F.batch_renorm(x, mean, mn.ones(3), training=True, num_batches_tracked=count)
    y.sum().backward()
    assert (y.shape, x.grad.shape, count.item()) == ((0, 3), (0, 3), 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rmax": 0.5}, "rmax=0.5; expected a number of at least 1"),
        ({"dmax": -1}, "dmax=-1; expected a number of at least 0"),
        ({"rmax": float("inf")}, "rmax=inf"),
        ({"momentum": 2}, "momentum=2"),
        ({"eps": -1}, "eps=-1"),
        ({"momentum": None}, "momentum=None averages over all batches and needs num_batches_tracked"),
    ],
)
def test_bad_options(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"batch_renorm: {words}"):
        F.batch_renorm(mn.randn(4, 3), mn.zeros(3), mn.ones(3), training=True, **options)


def test_bad_tensors() -> None:
    with pytest.raises(ValueError, match="batch_renorm: running_mean is None"):
        F.batch_renorm(mn.randn(4, 3), None, mn.ones(3), training=True)
    with pytest.raises(ValueError, match="batch_renorm: one value per channel"):
        F.batch_renorm(mn.randn(1, 3), mn.zeros(3), mn.ones(3), training=True)
    with pytest.raises(TypeError, match="batch_renorm: rmax"):
        F.batch_renorm(mn.randn(4, 3), mn.zeros(3), mn.ones(3), training=True, rmax="3")
