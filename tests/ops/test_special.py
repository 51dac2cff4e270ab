"""erf against the C library's, the remainder against its definition, both against finite differences."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import minorm as mn
from minorm.ops.special import Erf, Remainder
from minorm.testing import gradcheck


def test_erf_to_the_last_digits(rng):
    x = np.concatenate([rng.normal(0, 3, 5000), rng.normal(0, 1e-8, 100), [0.0, -0.0, 6.1, -9.0, np.inf, -np.inf]])
    exact = np.array([math.erf(value) for value in x])
    np.testing.assert_allclose(Erf.apply(mn.Tensor(x)).array, exact, rtol=1e-15, atol=0)
    assert np.isnan(Erf.apply(mn.tensor([math.nan])).array).all()


@pytest.mark.parametrize(("dtype", "units"), [(mn.float16, 0), (mn.bfloat16, 0), (mn.float32, 2)])
def test_erf_keeps_the_type(rng, dtype, units):
    x = rng.normal(0, 1, (3, 5)).astype(dtype)
    y = Erf.apply(mn.Tensor(x))
    assert y.dtype == dtype
    exact = np.vectorize(math.erf)(x.astype(np.float64))
    rounded = exact.astype(dtype).astype(np.float64)
    error = abs(y.array.astype(np.float64) - (exact if units else rounded))
    assert (error <= units * np.spacing(abs(exact).astype(np.float32))).all()


def test_erf_of_integers_is_theirs():
    y = Erf.apply(mn.tensor([-3, -1, 0, 1, 7]))  # ONNX's takes them
    assert y.array.dtype == np.int64
    assert y.tolist() == [0, 0, 0, 0, 1]


def test_erf_gradient(rng):
    gradcheck(Erf.apply, rng.normal(0, 1.5, (3, 4)))


@pytest.mark.parametrize("truncated", [False, True])
def test_remainder(rng, truncated):
    a, b = rng.uniform(-9, 9, (3, 4)), rng.uniform(1, 3, 4) * rng.choice([-1, 1], 4)
    whole = (np.trunc if truncated else np.floor)(a / b)
    y = Remainder.apply(mn.Tensor(a), mn.Tensor(b), truncated=truncated)
    np.testing.assert_allclose(y.array, a - whole * b, atol=1e-12)
    gradcheck(lambda a, b: Remainder.apply(a, b, truncated=truncated), a, b)


@pytest.mark.parametrize("truncated", [False, True])
def test_remainders_gradient_where_the_quotient_rounds_up(truncated):
    """1 / 0.1 rounds to 10, but 0.1 goes into 1 only 9 times. Against exact fractions."""
    a, b = np.array([1.0, -1.0, 3.0, 0.6, -0.7, 7.0, 5.5]), np.array([0.1, 0.1, 0.1, 0.2, 0.1, 3.5, -2.0])
    quotients = [Fraction(x) / Fraction(y) for x, y in zip(a, b, strict=True)]
    x, y = mn.tensor(a, requires_grad=True), mn.tensor(b, requires_grad=True)
    Remainder.apply(x, y, truncated=truncated).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), 1.0)
    np.testing.assert_array_equal(y.grad.numpy(), [-(math.trunc if truncated else math.floor)(q) for q in quotients])
