"""erf against the C library's, the remainder against its definition, both against finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import minorm as mn
from minorm.ops.special import Erf, Remainder
from minorm.testing import gradcheck


def test_erf_to_the_last_digits(rng):
    x = np.concatenate([rng.normal(0, 3, 5000), rng.normal(0, 1e-8, 100), [0.0, -0.0, 6.1, -9.0, np.inf, -np.inf]])
    exact = np.array([math.erf(value) for value in x])
    np.testing.assert_allclose(Erf.apply(mn.Tensor(x)).data, exact, rtol=1e-15, atol=0)
    assert np.isnan(Erf.apply(mn.tensor([math.nan])).data).all()


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32])
def test_erf_keeps_the_type(rng, dtype):
    x = rng.normal(0, 1, (3, 5)).astype(dtype)
    y = Erf.apply(mn.Tensor(x))
    assert y.dtype == dtype
    exact = np.vectorize(math.erf)(x.astype(np.float64)).astype(dtype)
    np.testing.assert_array_equal(y.data, exact)


@pytest.mark.parametrize("n", [1 << 14, (1 << 14) + 1, 50_000])
def test_erf_of_many_is_that_of_each_block(rng, n):
    x = rng.normal(0, 2, (n, 2)).astype(np.float32)[:, 1]
    y = Erf.apply(mn.Tensor(x)).data
    for part in (slice(0, 100), slice((1 << 14) - 50, (1 << 14) + 50), slice(-100, None)):
        np.testing.assert_array_equal(y[part], Erf.apply(mn.Tensor(x[part].copy())).data)


def test_erf_gradient(rng):
    gradcheck(Erf.apply, rng.normal(0, 1.5, (3, 4)))


@pytest.mark.parametrize("truncated", [False, True])
def test_remainder(rng, truncated):
    a, b = rng.uniform(-9, 9, (3, 4)), rng.uniform(1, 3, 4) * rng.choice([-1, 1], 4)
    whole = (np.trunc if truncated else np.floor)(a / b)
    y = Remainder.apply(mn.Tensor(a), mn.Tensor(b), truncated=truncated)
    np.testing.assert_allclose(y.data, a - whole * b, atol=1e-12)
    gradcheck(lambda a, b: Remainder.apply(a, b, truncated=truncated), a, b)
