"""Attention and RotaryEmbedding against formulas in float64 and PyTorch, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.testing import gradcheck

RNG = np.random.default_rng(6)
Q, K, V = RNG.normal(size=(2, 4, 3, 6)), RNG.normal(size=(2, 2, 5, 6)), RNG.normal(size=(2, 2, 5, 4))
PAST_K, PAST_V = RNG.normal(size=(2, 2, 2, 6)), RNG.normal(size=(2, 2, 2, 4))
BITS, NUMBERS = RNG.uniform(size=(3, 5)) > 0.3, RNG.normal(size=(2, 1, 3, 5))


def formula(q: Any, k: Any, v: Any, bias: Any, scale: float | None = None, cap: float = 0.0) -> Any:
    """The means, the products, these capped, biased, and the weights."""
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    raw = q @ k.swapaxes(2, 3) * (1 / np.sqrt(q.shape[3]) if scale is None else scale)
    capped = cap * np.tanh(raw / cap) if cap else raw
    biased = np.broadcast_to(capped + bias, raw.shape)
    top = biased.max(-1, keepdims=True)
    e = np.exp(biased - np.where(np.isfinite(top), top, 0))
    weights = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)
    return weights @ v, raw, capped, biased, weights


def seen(allowed: Any) -> Any:
    return np.where(allowed, 0.0, -np.inf)


ROW, COLUMN = np.arange(3)[:, None], np.arange(5)
LENGTHS = np.array([2, 5])
VALID, BEFORE = (a[:, None, None, None] for a in (LENGTHS, LENGTHS - 3))
CASES: dict[str, tuple[int, list[Any], Any, dict[str, Any]]] = {
    "plain": (23, [Q, K, V], 0.0, {}),
    "scaled": (23, [Q, K, V], 0.0, {"scale": 0.3}),
    "capped": (23, [Q, K, V], 0.0, {"softcap": 1.5}),
    "bools": (23, [Q, K, V, BITS], seen(BITS), {}),
    "numbers": (23, [Q, K, V, NUMBERS], NUMBERS, {}),
    "causal": (23, [Q, K, V], seen(ROW >= COLUMN), {"is_causal": 1}),
    "causal and numbers": (24, [Q, K, V, NUMBERS], NUMBERS + seen(ROW >= COLUMN), {"is_causal": 1}),
    "lengths": (24, [Q, K, V, None, None, None, LENGTHS], seen(VALID > COLUMN), {}),
    "causal lengths": (24, [Q, K, V, None, None, None, LENGTHS], seen((VALID > COLUMN) & (ROW + BEFORE >= COLUMN)),
                       {"is_causal": 1}),
    "window": (25, [Q, K, V], seen((COLUMN >= ROW - 1) & (COLUMN <= ROW + 1)),
               {"left_window_size": 1, "right_window_size": 1}),
    "short mask": (24, [Q, K, V, BITS[:, :3]], np.concatenate([seen(BITS[:, :3]), np.full((3, 2), -np.inf)], 1), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_formula(one_node: Any, name: str) -> None:
    since, arrays, bias, attributes = CASES[name]
    held = [i for i, a in enumerate(arrays) if i > 3 and a is not None]
    given = [a for i, a in enumerate(arrays) if a is not None and i not in held]
    want = formula(Q, K, V, bias, attributes.get("scale"), attributes.get("softcap", 0.0))
    for mode in range(4):
        outputs = ["y", "", "", "weights"]
        model = mo.load(one_node("Attention", arrays, since, outputs, held, qk_matmul_output_mode=mode, **attributes))
        y, shown = model(*map(mn.Tensor, given))
        np.testing.assert_allclose(y.array, want[0], atol=1e-12)
        np.testing.assert_allclose(shown.array, want[1 + mode], atol=1e-12)
    alone = mo.load(one_node("Attention", arrays, since, ["y"], held, **attributes))
    gradcheck(alone, *[a if a.dtype == np.float64 else mn.Tensor(a) for a in given])


def test_past_keys_come_first(one_node: Any) -> None:
    arrays = [Q, K, V, None, PAST_K, PAST_V]
    model = mo.load(one_node("Attention", arrays, 23, ["y", "k", "v"], is_causal=1))
    y, keys, values = model(*[mn.Tensor(a) for a in arrays if a is not None])
    k, v = np.concatenate([PAST_K, K], 2), np.concatenate([PAST_V, V], 2)
    np.testing.assert_array_equal(keys.array, k)
    np.testing.assert_array_equal(values.array, v)
    np.testing.assert_allclose(y.array, formula(Q, k, v, seen(np.arange(7) <= ROW + 2))[0], atol=1e-12)


def test_heads_side_by_side(one_node: Any) -> None:
    def packed(x: Any) -> Any:
        return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)

    arrays = [packed(x) for x in (Q, K, V)]
    model = mo.load(one_node("Attention", arrays, 23, q_num_heads=4, kv_num_heads=2))
    np.testing.assert_allclose(model(*map(mn.Tensor, arrays)).array, packed(formula(Q, K, V, 0.0)[0]), atol=1e-12)


def test_who_may_look_at_nothing_gets_0_and_a_gradient(one_node: Any) -> None:
    bits = BITS.copy()
    bits[1] = False
    model = mo.load(one_node("Attention", [Q, K, V, bits], 23, held=(3,)))
    inputs = [mn.tensor(x, requires_grad=True) for x in (Q, K, V)]
    y = model(*inputs)
    assert (y.array[:, :, 1] == 0).all()
    y.sum().backward()
    assert all(np.isfinite(x.grad.array).all() for x in inputs)


def test_against_pytorch_in_16_bits(one_node: Any) -> None:
    torch = pytest.importorskip("torch")
    half = [x.astype(np.float16) for x in (Q, K, V)]
    y = mo.load(one_node("Attention", half, 23))(*map(mn.Tensor, half))
    wide = [torch.tensor(x.astype(np.float64)) for x in half]
    want = torch.nn.functional.scaled_dot_product_attention(*wide, enable_gqa=True).numpy()
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.array.astype(np.float64), want, atol=2**-10)


@pytest.mark.parametrize(
    ("arrays", "attributes", "message"),
    [
        ([Q, K[:, :1], V], {}, "expected one batch size, equal sizes of Q and K"),
        ([Q[0], K[0], V[0]], {}, "q_num_heads is None"),
        ([Q, K, V, None, PAST_K], {}, "expected either past_key with past_value"),
        ([Q, K, V, np.ones((3, 6), bool)], {}, r"attn_mask has shape \(3, 6\)"),
        ([Q, K, V, None, None, None, np.array([1])], {}, "nonpad_kv_seqlen has shape"),
    ],
)
def test_what_does_not_fit_is_an_error(one_node: Any, arrays: Any, attributes: Any, message: str) -> None:
    model = mo.load(one_node("Attention", arrays, 24, **attributes))
    with pytest.raises(ValueError, match=message):
        model(*[mn.Tensor(a) for a in arrays if a is not None])


# RotaryEmbedding

X, ANGLES = RNG.normal(size=(2, 3, 5, 8)), RNG.uniform(0, 6, (9, 3))
POSITIONS = RNG.integers(0, 9, (2, 5))


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_pairs_are_turned_by_their_angles(one_node: Any, interleaved: int, packed: bool) -> None:
    """As complex numbers multiplied with e^(i angle); 6 of 8 numbers are turned."""
    turn = np.exp(1j * ANGLES[POSITIONS])[:, None]
    part = X[..., :6].reshape(2, 3, 5, 3, 2) if interleaved else X[..., :6].reshape(2, 3, 5, 2, 3).swapaxes(3, 4)
    z = (part[..., 0] + 1j * part[..., 1]) * turn
    turned = np.stack([z.real, z.imag], -1)
    want = np.concatenate([(turned if interleaved else turned.swapaxes(3, 4)).reshape(2, 3, 5, 6), X[..., 6:]], -1)
    x = X
    if packed:
        x, want = (a.swapaxes(1, 2).reshape(2, 5, 24) for a in (X, want))
    arrays = [x, np.cos(ANGLES), np.sin(ANGLES), POSITIONS]
    options = {"num_heads": 3} if packed else {}
    model = mo.load(one_node("RotaryEmbedding", arrays, 23, interleaved=interleaved, rotary_embedding_dim=6, **options))
    given = [*map(mn.Tensor, arrays)]
    np.testing.assert_allclose(model(*given).array, want, atol=1e-12)
    gradcheck(model, *arrays[:3], given[3])


def test_a_cache_that_does_not_fit_is_an_error(one_node: Any) -> None:
    arrays = [X, np.cos(ANGLES), np.sin(ANGLES), POSITIONS]
    with pytest.raises(
        ValueError,
        match=r"cos_cache or sin_cache gives numbers of shape \(2, 5, 3\) for the tokens; expected \(2, 5, 4\)",
    ):
        mo.load(one_node("RotaryEmbedding", arrays, 23))(*map(mn.Tensor, arrays))
