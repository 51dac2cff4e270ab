"""Random tensors: distributions, generators, errors. Draws are fixed by the seed, so nothing here is chance."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.functional import random as F

MANY = 40_000


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32, mn.float64], ids=str)
def test_normal_and_uniform(dtype: Any) -> None:
    normal = F.drawn("normal", (MANY,), 2.0, 3.0, dtype)
    uniform = F.drawn_like(normal, "uniform", -1.0, 3.0)
    assert (normal.dtype, uniform.dtype, uniform.shape) == (dtype, dtype, (MANY,))
    a, b = normal.array.astype(np.float64), uniform.array.astype(np.float64)
    assert (a.mean(), a.std()) == (pytest.approx(2, abs=0.06), pytest.approx(3, rel=0.02))
    assert (b.mean(), b.std()) == (pytest.approx(1, abs=0.03), pytest.approx(4 / 12**0.5, rel=0.02))
    assert b.min() >= -1
    assert b.max() <= 3
    assert np.abs(np.quantile((a - 2) / 3, [0.1587, 0.5, 0.8413]) - [-1, 0, 1]).max() < 0.03


def test_bernoulli() -> None:
    p = mn.tensor(np.array([0, 0.1, 0.5, 0.9, 1], np.float32).repeat(MANY).reshape(5, MANY))
    ones = F.bernoulli(p)
    assert ones.dtype == np.float32
    assert set(np.unique(ones.array)) == {0, 1}
    np.testing.assert_allclose(ones.array.mean(1), [0, 0.1, 0.5, 0.9, 1], atol=0.01)
    assert F.bernoulli(p, mn.bool).dtype == bool
    assert F.bernoulli(mn.tensor(0.5), mn.int64).dtype == np.int64


def test_multinomial() -> None:
    shares = np.array([[0.1, 0.2, 0.7], [0, 0.5, 0.5]])
    with np.errstate(divide="ignore"):
        drawn = F.multinomial(mn.tensor(np.log(shares) + 1000), MANY)
    assert (drawn.dtype, drawn.shape) == (np.int32, (2, MANY))
    counts = np.stack([np.bincount(row, minlength=3) for row in drawn.array]) / MANY
    np.testing.assert_allclose(counts, shares, atol=0.01)
    assert counts[1, 0] == 0
    assert F.multinomial(mn.zeros(0, 3), 2).shape == (0, 2)


def test_the_seed_and_a_generator_repeat_the_draws() -> None:
    def all_of_them(generator: Any = None) -> list[Any]:
        like = mn.zeros(3)
        return [
            F.drawn("normal", (3,), 0.0, 1.0, mn.float32, generator).array,
            F.drawn_like(like, "uniform", 0.0, 1.0, generator=generator).array,
            F.bernoulli(like + 0.5, generator=generator).array,
            F.multinomial(mn.zeros(2, 50), 3, generator=generator).array,
        ]

    mn.manual_seed(5)
    first, other = all_of_them(), all_of_them()
    mn.manual_seed(5)
    for a, b in zip(first, all_of_them(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(first, other, strict=True))
    for a, b in zip(all_of_them(np.random.default_rng(2)), all_of_them(np.random.default_rng(2)), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.drawn("normal", (2,), 0.0, 1.0, mn.int32), TypeError, "normal: dtype is int32; expected"),
        (lambda: F.bernoulli(mn.tensor([0.5, 1.5])), ValueError, "bernoulli: x holds numbers outside of 0 to 1"),
        (lambda: F.bernoulli(mn.tensor([np.nan])), ValueError, "bernoulli: x holds numbers outside of 0 to 1"),
        (lambda: F.bernoulli(mn.tensor([1])), TypeError, "bernoulli: p is int64; expected a float type"),
        (lambda: F.multinomial(mn.ones(3), 1), ValueError, "multinomial: x has shape (3,); expected (rows, "),
        (lambda: F.multinomial(mn.ones(3, 0), 1), ValueError, "multinomial: x has shape (3, 0); expected (rows, "),
        (lambda: F.multinomial(mn.tensor([[np.inf]]), 1), ValueError, "multinomial: a row of x has no finite maximum"),
    ],
)  # fmt: skip
def test_mistakes(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call()
