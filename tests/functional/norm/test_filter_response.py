"""filter_response_norm against the formula in float64."""

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


def formula(x: np.ndarray, w: Any = 1.0, b: Any = 0.0, eps: float = 1e-6) -> np.ndarray:
    wide = (-1, *(1,) * (x.ndim - 2))
    w, b = (np.asarray(p, np.float64).reshape(wide) for p in (w, b))
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(tuple(range(2, x.ndim)), keepdims=True) + eps) * w + b


@settings(max_examples=40)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    positions=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    dtype=st.sampled_from([np.float32, np.float64]),
    given_=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 99),
    last=st.booleans(),
)
def test_the_formula(shape: Any, positions: Any, dtype: Any, given_: Any, seed: int, last: bool) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((*shape, *positions)) * 3 + 1).astype(dtype)
    if last:
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1)).transpose(0, x.ndim - 1, *range(1, x.ndim - 1))
    w, b = (rng.standard_normal(shape[1]).astype(dtype) for _ in range(2))
    tensors = [Tensor(p) if there else None for p, there in zip((w, b), given_, strict=True)]
    y = F.filter_response_norm(Tensor(x), *tensors)
    expected = formula(x, w if given_[0] else 1.0, b if given_[1] else 0.0)
    tolerance = 2e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(y.numpy(), expected, rtol=tolerance, atol=tolerance)
    assert y.dtype == dtype


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 2, 3), (2, 3, 1, 1)])
def test_gradients(shape: tuple[int, ...]) -> None:
    x, w, b = (mn.randn(*s, dtype=mn.float64, requires_grad=True) for s in (shape, (3,), (3,)))
    assert gradcheck(lambda x, w, b: F.filter_response_norm(x, w, b, eps=0.1), x, w, b) < 1e-6
    assert gradcheck(lambda x, b: F.filter_response_norm(x, None, b, eps=0.1), x, b) < 1e-6


def test_types() -> None:
    x, w = mn.randn(2, 3, 5).half(), mn.randn(3)
    y = F.filter_response_norm(x, w, compute_dtype=mn.float64)
    np.testing.assert_array_equal(y.numpy(), formula(x.numpy(), w.numpy()).astype(np.float16))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"filter_response_norm: x has shape \(2, 3\); expected \(N, C, \*positions\)"):
        F.filter_response_norm(mn.randn(2, 3))
    with pytest.raises(ValueError, match="filter_response_norm: weight has shape"):
        F.filter_response_norm(mn.randn(2, 3, 4), mn.ones(4))
    with pytest.raises(ValueError, match="filter_response_norm: eps=-1"):
        F.filter_response_norm(mn.randn(2, 3, 4), eps=-1)
    with pytest.raises(TypeError, match="filter_response_norm: x"):
        F.filter_response_norm(mn.ones(2, 3, 4, dtype=mn.int64))
