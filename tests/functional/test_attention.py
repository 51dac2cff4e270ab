"""scaled_dot_product_attention of 16-bit floats: computed in float32, and rounded once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn

ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def inputs(kind: Any) -> list[mn.Tensor]:
    rng = np.random.default_rng(0)
    return [mn.tensor(rng.standard_normal((1, 4, 64, 32)) * scale).to(kind) for scale in (3, 3, 1)]


@pytest.mark.parametrize("kind", ROUNDING)
@pytest.mark.parametrize("how", ["plain", "causal", "mask of bools", "mask of numbers"])
def test_16_bit_floats(kind: str, how: str) -> None:
    """Against float64 on the same numbers; rounded scores were off by 0.1."""
    q, k, v = inputs(getattr(mn, kind))
    a, b, c = (x.double().numpy() for x in (q, k, v))
    scores = a @ b.swapaxes(-1, -2) / math.sqrt(32)
    rng = np.random.default_rng(1)
    options: dict[str, Any] = {}
    if how == "causal":
        options, scores = {"is_causal": True}, np.where(np.tri(64, dtype=bool), scores, -np.inf)
    elif how == "mask of bools":
        mask = rng.random((64, 64)) < 0.7
        options, scores = {"attn_mask": mn.tensor(mask)}, np.where(mask, scores, -np.inf)
    elif how == "mask of numbers":
        added = mn.tensor(rng.standard_normal((64, 64))).to(q.dtype)
        options, scores = {"attn_mask": added}, scores + added.double().numpy()
    found = F.scaled_dot_product_attention(q, k, v, **options)
    expected = softmax(scores) @ c
    assert found.dtype == q.dtype
    np.testing.assert_allclose(found.double().numpy(), expected, rtol=ROUNDING[kind] * 1.01, atol=2e-6)


@pytest.mark.parametrize("kind", ROUNDING)
@pytest.mark.parametrize("given", ["float32", "16 bits"])
def test_under_autocast(kind: str, given: str) -> None:
    """Products are of 16 bits there; the scores are not rounded to them."""
    dtype = getattr(mn, kind)
    q, k, v = inputs(dtype)
    a, b, c = (x.double().numpy() for x in (q, k, v))
    if given == "float32":
        q, k, v = (x.float() for x in (q, k, v))
    with mn.autocast("cpu", dtype):
        found = F.scaled_dot_product_attention(q, k, v)
        assert found.dtype == (q @ k.mT).dtype == dtype
    expected = softmax(a @ b.swapaxes(-1, -2) / math.sqrt(32)) @ c
    np.testing.assert_allclose(found.double().numpy(), expected, rtol=ROUNDING[kind] * 1.01, atol=2e-6)


def test_gradients_of_16_bits() -> None:
    """Near to those of float32 on the same numbers."""
    given = inputs(mn.bfloat16)
    found = []
    for wide in (False, True):
        q, k, v = (x.float() if wide else x.clone() for x in given)
        for x in (q, k, v):
            x.requires_grad_(True)
        y = F.scaled_dot_product_attention(q, k, v)
        (y.float() * v.detach().float()).sum().backward()
        found.append([x.grad.float().numpy() for x in (q, k, v)])
        assert q.grad.dtype == q.dtype
    for narrow, exact in zip(*found, strict=True):
        np.testing.assert_allclose(narrow, exact, atol=0.02 * abs(exact).max())


def test_a_layer_with_and_without_its_weights() -> None:
    mn.manual_seed(0)
    layer = nn.MultiheadAttention(16, 2).to(mn.bfloat16)
    x = mn.randn(6, 3, 16, dtype=mn.bfloat16) * 4
    with_weights, weights = layer(x, x, x)
    without, _ = layer(x, x, x, need_weights=False)
    np.testing.assert_array_equal(with_weights.float().detach().numpy(), without.float().detach().numpy())
    assert weights.dtype == mn.bfloat16
