"""The linear operation at every rank."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minorm as mn
import minorm.functional as F
from minorm.testing import gradcheck


@given(
    lead=st.lists(st.integers(0, 3), max_size=3),
    inputs=st.integers(1, 4),
    outputs=st.integers(1, 4),
    bias=st.booleans(),
)
def test_values_and_gradients_at_every_rank(lead, inputs, outputs, bias):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((*lead, inputs)), rng.standard_normal((outputs, inputs))
    b = rng.standard_normal(outputs) if bias else None
    y = F.linear(mn.tensor(x), mn.tensor(w), None if b is None else mn.tensor(b))
    np.testing.assert_allclose(
        y.array, np.einsum("...i,oi->...o", x, w) + (0 if b is None else b), rtol=1e-12, atol=1e-14
    )
    gradcheck(F.linear, x, w, *([b] if bias else []))


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16], ids=str)
def test_half_types_accumulate_in_float32(dtype, rng):
    x, w, b = (mn.tensor(rng.standard_normal(s).astype(dtype), requires_grad=True) for s in [(64, 500), (8, 500), (8,)])
    y = F.linear(x, w, b)
    exact = x.array.astype(np.float64) @ w.array.astype(np.float64).T + b.array.astype(np.float64)
    epsilon = 2.0**-11 if dtype == mn.float16 else 2.0**-8
    np.testing.assert_allclose(y.array.astype(np.float64), exact, rtol=1.01 * epsilon, atol=1e-4)
    y.sum().backward()
    np.testing.assert_array_equal(b.grad.array.astype(np.float64), 64)


def test_transposed_and_strided_inputs(rng):
    x, w = rng.standard_normal((6, 4)).astype(np.float32), rng.standard_normal((3, 6)).astype(np.float32)
    leaf, weight = mn.tensor(x, requires_grad=True), mn.tensor(w, requires_grad=True)
    F.linear(leaf.T, weight).sum().backward()
    np.testing.assert_allclose(leaf.grad.array, np.broadcast_to(w.sum(0)[:, None], (6, 4)), rtol=1e-5)
    np.testing.assert_allclose(weight.grad.array, np.broadcast_to(x.sum(1), (3, 6)), rtol=1e-5)


def test_only_what_is_needed_is_computed(rng):
    x, w = mn.tensor(rng.standard_normal((2, 3))), mn.tensor(rng.standard_normal((4, 3)), requires_grad=True)
    F.linear(x, w).sum().backward()
    assert x.grad is None
    assert w.grad.shape == (4, 3)
