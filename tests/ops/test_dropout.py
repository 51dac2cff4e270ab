"""Dropout drops the right share, scales the rest, and uses the same mask for the gradient."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32, mn.float64], ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_and_scale(p, dtype):
    x = mn.tensor(np.ones(20_000, dtype), requires_grad=True)
    y = F.dropout(x, p)
    assert y.dtype == dtype
    kept = y.array != 0
    assert kept.mean() == pytest.approx(1 - p, abs=0.02)
    np.testing.assert_allclose(
        y.array[kept].astype(np.float64), 1 / (1 - p), rtol=1e-2 if dtype == mn.bfloat16 else 1e-3
    )
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.array, y.array)


def test_all_and_nothing():
    x = mn.tensor([1.0, 2.0], requires_grad=True)
    y = F.dropout(x, 1.0)
    np.testing.assert_array_equal(y.array, 0)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.array, 0)
    assert F.dropout(x, 0.0) is x


def test_the_seed_repeats_the_draws():
    x = mn.ones(1000)
    mn.manual_seed(3)
    first = F.dropout(x).array
    second = F.dropout(x).array
    mn.manual_seed(3)
    np.testing.assert_array_equal(first, F.dropout(x).array)
    assert (first != second).any()
