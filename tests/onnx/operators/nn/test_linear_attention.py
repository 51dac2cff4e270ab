"""LinearAttention and CausalConvWithState against formulas in float64, whole and by parts, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.testing import gradcheck

RNG = np.random.default_rng(8)
BATCH, STEPS, QUERIES, HEADS, ROWS, COLUMNS = 2, 4, 4, 2, 3, 2
Q, K, V = (RNG.normal(size=(BATCH, STEPS, n)) for n in (QUERIES * ROWS, HEADS * ROWS, HEADS * COLUMNS))
STATE = RNG.normal(size=(BATCH, HEADS, ROWS, COLUMNS))
RATE = RNG.uniform(size=(BATCH, STEPS, HEADS))


def formula(rule: str, decay: Any) -> tuple[Any, Any]:
    y, state = np.zeros((BATCH, STEPS, QUERIES, COLUMNS)), STATE.copy()
    for b in range(BATCH):
        for t in range(STEPS):
            for h in range(HEADS):
                k, v = K[b, t].reshape(HEADS, ROWS)[h], V[b, t].reshape(HEADS, COLUMNS)[h]
                s = state[b, h]
                if "gated" in rule:
                    s = np.exp(decay[b, t].reshape(HEADS, -1)[h])[:, None] * s
                change = RATE[b, t, h] * (v - s.T @ k) if "delta" in rule else v
                state[b, h] = s + np.outer(k, change)
            for q in range(QUERIES):
                y[b, t, q] = state[b, q // 2].T @ Q[b, t].reshape(QUERIES, ROWS)[q] / math.sqrt(ROWS)
    return y.reshape(BATCH, STEPS, -1), state


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("each", [1, ROWS])
def test_it_is_the_recurrence(one_node: Any, rule: str, each: int) -> None:
    decay = -RNG.uniform(size=(BATCH, STEPS, HEADS * each))
    arrays = [Q, K, V, STATE, decay if "gated" in rule else None, RATE if "delta" in rule else None]
    options = {"update_rule": rule, "q_num_heads": QUERIES, "kv_num_heads": HEADS}
    model = mo.load(one_node("LinearAttention", arrays, 27, ["y", "state"], **options))
    given = [a for a in arrays if a is not None]
    for got, want in zip(model(*map(mn.Tensor, given)), formula(rule, decay), strict=True):
        np.testing.assert_allclose(got.array, want, atol=1e-12)
    gradcheck(model, *given)


def test_a_state_carries_on(one_node: Any) -> None:
    """Two halves, one after the other, are the whole."""
    options = {"update_rule": "linear", "q_num_heads": QUERIES, "kv_num_heads": HEADS}
    model = mo.load(one_node("LinearAttention", [Q, K, V, STATE], 27, ["y", "state"], **options))
    whole, last = model(*map(mn.Tensor, (Q, K, V, STATE)))
    first, state = model(*[mn.Tensor(x[:, :2].copy()) for x in (Q, K, V)], mn.Tensor(STATE))
    second, end = model(*[mn.Tensor(x[:, 2:].copy()) for x in (Q, K, V)], state)
    np.testing.assert_allclose(np.concatenate([first.array, second.array], 1), whole.array, atol=1e-12)
    np.testing.assert_allclose(end.array, last.array, atol=1e-12)


def test_what_does_not_fit_is_an_error(one_node: Any) -> None:
    options = {"q_num_heads": QUERIES, "kv_num_heads": HEADS}
    for arrays, more, message in (
        ([Q, K, V], {}, "update_rule is gated_delta; expected decay exactly for the gated rules"),
        ([Q, K, V, STATE[:1]], {"update_rule": "linear"}, "past_state has shape"),
        ([Q, K, V, STATE, RATE[:, :2]], {"update_rule": "gated"}, "decay has shape"),
        ([Q, K, V[:, :, 1:]], {"update_rule": "linear"}, r"expected \(batch, length, 2 \* size\)"),
    ):
        with pytest.raises(ValueError, match=message):
            mo.load(one_node("LinearAttention", arrays, 27, ["y", "s"], **options, **more))(*map(mn.Tensor, arrays))
    with pytest.raises(ValueError, match="update_rule is 'other'"):
        mo.load(one_node("LinearAttention", [Q, K, V], 27, ["y", "s"], update_rule="other", **options))


# CausalConvWithState

X, W, BIAS, PAST = (RNG.normal(size=shape) for shape in ((2, 3, 5), (3, 1, 3), (3,), (2, 3, 2)))


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("past", [False, True])
def test_a_channel_sees_itself_and_its_past(one_node: Any, activation: str, past: bool) -> None:
    whole = np.concatenate([PAST if past else np.zeros_like(PAST), X], 2)
    want = np.stack(
        [np.stack([np.convolve(row, w[0, ::-1], "valid") for row, w in zip(x, W, strict=True)]) for x in whole]
    )
    want = want + BIAS[:, None]
    want = want / (1 + np.exp(-want)) if activation == "silu" else want
    arrays = [X, W, BIAS, *([PAST] if past else [])]
    model = mo.load(one_node("CausalConvWithState", arrays, 27, ["y", "state"], activation=activation))
    y, state = model(*map(mn.Tensor, arrays))
    np.testing.assert_allclose(y.array, want, atol=1e-12)
    np.testing.assert_array_equal(state.array, whole[:, :, 5:])
    gradcheck(model, *arrays)


def test_other_shapes_are_errors(one_node: Any) -> None:
    for arrays, message in (
        ([X, W[:2]], r"weight \(2, 1, 3\)"),
        ([X, W, BIAS, PAST[:, :, :1]], "past_state has shape"),
    ):
        with pytest.raises(ValueError, match=message):
            mo.load(one_node("CausalConvWithState", arrays, 27, ["y", "s"]))(*map(mn.Tensor, arrays))
