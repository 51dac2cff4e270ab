"""ghost_batch_norm: one call is as many calls of batch_norm as there are groups."""

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


def state(shape: tuple[int, ...], dtype: Any) -> tuple[Tensor, Tensor, Tensor]:
    return mn.zeros(*shape, dtype=dtype), mn.ones(*shape, dtype=dtype), mn.zeros((), dtype=mn.int64)


@settings(max_examples=40)
@given(
    groups=st.integers(1, 4),
    size=st.integers(2, 4),
    rest=st.integers(0, 3),
    positions=st.lists(st.integers(1, 3), max_size=3),
    momentum=st.sampled_from([0.9, 0.0, None]),
    unbiased=st.booleans(),
    affine=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_is_batch_norm_of_one_group_after_the_other(
    groups: int, size: int, rest: int, positions: list[int], momentum: Any, unbiased: bool, affine: bool, seed: int
) -> None:
    rest = 0 if rest >= size or rest * int(np.prod(positions)) == 1 else rest
    n = groups * size + rest
    rng = np.random.default_rng(seed)
    x, dy = rng.standard_normal((2, n, 3, *positions))
    weight, bias = (Tensor(a).requires_grad_() for a in rng.standard_normal((2, 3))) if affine else (None, None)
    one, many = Tensor(x).requires_grad_(), Tensor(x).requires_grad_()
    mean, var, batches = state((3,), mn.float64)
    options = {"training": True, "momentum": momentum, "unbiased_running_var": unbiased}
    y = F.ghost_batch_norm(one, mean, var, size, weight, bias, num_batches_tracked=batches, **options)
    y.backward(Tensor(dy))
    grads = [p.grad.numpy().copy() for p in (weight, bias)] if affine else []
    mean2, var2, batches2 = state((3,), mn.float64)
    if affine:
        weight.grad = bias.grad = None
    parts = [
        F.batch_norm(part, mean2, var2, weight, bias, num_batches_tracked=batches2, **options)
        for part in many.split(size)
    ]
    mn.cat(parts).backward(Tensor(dy))
    for a, b in ((y, mn.cat(parts)), (one.grad, many.grad), (mean, mean2), (var, var2)):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12, atol=1e-12)
    for found, p in zip(grads, (weight, bias), strict=False):
        np.testing.assert_allclose(found, p.grad.numpy(), rtol=1e-12, atol=1e-12)
    assert batches.item() == batches2.item() == groups + (rest > 0)


def test_the_formula() -> None:
    x = np.random.default_rng(0).standard_normal((7, 3, 2, 2))
    mean, var, _ = state((3,), mn.float64)
    y = F.ghost_batch_norm(Tensor(x), mean, var, 3, training=True, momentum=0.75)
    expected, running = [], np.zeros(3)
    for part in (x[:3], x[3:6], x[6:]):
        m, v = part.mean((0, 2, 3), keepdims=True), part.var((0, 2, 3), keepdims=True)
        expected.append((part - m) / np.sqrt(v + 1e-5))
        running = 0.75 * running + 0.25 * m.ravel()
    np.testing.assert_allclose(y.numpy(), np.concatenate(expected), rtol=1e-12)
    np.testing.assert_allclose(mean.numpy(), running, rtol=1e-12)


def test_a_group_as_large_as_the_batch_is_batch_norm_to_the_bit() -> None:
    x = mn.randn(6, 3, 4)
    for size in (6, 9):
        y = F.ghost_batch_norm(x, None, None, size, training=True)
        assert y.numpy().tobytes() == F.batch_norm(x, None, None, training=True).numpy().tobytes()
    mean, var = mn.randn(3), mn.rand(3)
    y = F.ghost_batch_norm(x, mean, var, 2)
    assert y.numpy().tobytes() == F.batch_norm(x, mean, var).numpy().tobytes()


def test_statistics_of_every_position() -> None:
    x = np.random.default_rng(0).standard_normal((6, 3, 4))
    weight, bias = np.random.default_rng(1).standard_normal((2, 3, 4))
    y = F.ghost_batch_norm(Tensor(x), None, None, 3, Tensor(weight), Tensor(bias), training=True).numpy()
    for part, found in ((x[:3], y[:3]), (x[3:], y[3:])):
        expected = (part - part.mean(0)) / np.sqrt(part.var(0) + 1e-5) * weight + bias
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_gradients() -> None:
    x, w, b = (mn.randn(*s, dtype=mn.float64, requires_grad=True) for s in ((5, 2, 3), (2,), (2,)))
    assert gradcheck(lambda x, w, b: F.ghost_batch_norm(x, None, None, 2, w, b, training=True), x, w, b) < 1e-6


def test_types() -> None:
    x = mn.randn(8, 3, 5).half() + 100
    y = F.ghost_batch_norm(x, None, None, 4, training=True, compute_dtype=mn.float64)
    wide = x.numpy().astype(np.float64).reshape(2, 4, 3, 5)
    expected = (wide - wide.mean((1, 3), keepdims=True)) / np.sqrt(wide.var((1, 3), keepdims=True) + 1e-5)
    assert y.dtype == mn.float16
    np.testing.assert_array_equal(y.numpy(), expected.reshape(8, 3, 5).astype(np.float16))


def test_bad_input_changes_nothing() -> None:
    mean, var, batches = state((3,), mn.float32)
    options = {"training": True, "num_batches_tracked": batches}
    for x, size, words in (
        (mn.randn(4, 3), 0, "virtual_batch_size=0; expected at least 1"),
        (mn.randn(4, 3), 1, "virtual_batch_size=1 leaves one value per channel"),
        (mn.randn(5, 3), 2, "virtual_batch_size=2 leaves one value per channel"),
        (mn.randn(4, 2), 2, "expected running_mean.shape|running_mean has shape"),
    ):
        with pytest.raises(ValueError, match=words):
            F.ghost_batch_norm(x, mean, var, size, **options)
    with pytest.raises(TypeError, match="virtual_batch_size"):
        F.ghost_batch_norm(mn.randn(4, 3), mean, var, 2.5, **options)
    assert (mean.numpy().any(), batches.item()) == (False, 0)
