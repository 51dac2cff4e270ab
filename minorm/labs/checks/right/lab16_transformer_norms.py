"""Lab 16: computes norms over the last axis, blocks, logits and masks in float64; each function stands alone."""

from __future__ import annotations

from typing import Any

import numpy as np


def layer_norm(x: Any, s: Any, b: Any, eps: float = 1e-5) -> Any:
    """Compute (x - mean) / sqrt(var + eps) * s + b over the last axis."""
    c = x - x.mean(axis=-1, keepdims=True)
    return c * ((c * c).mean(axis=-1, keepdims=True) + eps) ** -0.5 * s + b


def rms_norm(x: Any, s: Any, eps: float = 1e-6) -> Any:
    """Compute x / sqrt(mean(x^2) + eps) * s over the last axis, in the type of x."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * s


def attention(x: Any, w: Any) -> Any:
    """Compute one head."""
    a = np.einsum("...ic,...jc->...ij", x @ w["q"], x @ w["k"]) / np.sqrt(w["q"].shape[1])
    e = np.exp(a - a.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ (x @ w["v"]) @ w["o"]


def mlp(x: Any, w: Any) -> Any:
    """Compute two layers with a ReLU."""
    return np.maximum(x @ w["up"], 0) @ w["down"]


def post_norm(x: Any, w: Any) -> Any:
    """Compute a block with norms after the sums."""
    h = layer_norm(x + attention(x, w), w["s1"], w["b1"])
    return layer_norm(h + mlp(h, w), w["s2"], w["b2"])


def pre_norm(x: Any, w: Any) -> Any:
    """Compute a block with norms inside the branches."""
    h = x + attention(layer_norm(x, w["s1"], w["b1"]), w)
    return h + mlp(layer_norm(h, w["s2"], w["b2"]), w)


def heads_of(x: Any, heads: int) -> Any:
    """Reshape (N, T, heads * D) to (N, heads, T, D)."""
    return np.moveaxis(x.reshape(*x.shape[:2], heads, -1), 2, 1)


def qk_logits(q: Any, k: Any, heads: int, s_q: Any, s_k: Any, eps: float = 1e-6) -> Any:
    """Return the products of normalized queries and keys for each head, divided by sqrt(D)."""
    q, k = rms_norm(heads_of(q, heads), s_q, eps), rms_norm(heads_of(k, heads), s_k, eps)
    return np.einsum("nhid,nhjd->nhij", q, k) / np.sqrt(len(s_q))


def logit_bound(s_q: Any, s_k: Any) -> Any:
    """Compute sqrt(D) max |s_q s_k|."""
    return np.sqrt(len(s_q)) * np.abs(s_q * s_k).max()


def scale_then_cast(x: Any, s: Any, eps: float = 1e-6) -> Any:
    """Scale, then cast: one rounding."""
    return rms_norm(x.astype(np.float32), s.astype(np.float32), eps).astype(x.dtype)


def cast_then_scale(x: Any, s: Any, eps: float = 1e-6) -> Any:
    """Cast, then scale: two roundings."""
    return rms_norm(x.astype(np.float32), np.float32(1), eps).astype(x.dtype) * s


def masked_batch_norm(x: Any, mask: Any, eps: float = 1e-5) -> Any:
    """Return xhat of the real tokens alone; 0 elsewhere."""
    tokens, y = x[mask], np.zeros(x.shape)
    y[mask] = (tokens - tokens.mean(axis=0)) / np.sqrt(tokens.var(axis=0) + eps)
    return y


def pooled_layer_norm(x: Any, mask: Any, s: Any, b: Any, eps: float = 1e-5) -> Any:
    """Apply LayerNorm to each sentence's mean over its real tokens."""
    means = [sentence[real].mean(axis=0) for sentence, real in zip(x, mask, strict=True)]
    return layer_norm(np.stack(means), s, b, eps)
