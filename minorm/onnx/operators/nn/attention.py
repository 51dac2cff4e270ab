"""Read Attention and RotaryEmbedding.

    Y = softmax(cap(Q K^T scale) + bias) V, cap(s) = softcap tanh(s / softcap)

The bias is -infinity for a key that a query may not use. This is a key that a mask of bools forbids, that comes later
(is_causal), that is outside a window, or that is padding. For all other keys, the bias is the mask of floats, or 0
without such a mask. A query that may use no key gets 0. Version 24 adds the lengths of padded keys, 25 adds windows.
The scores and the softmax are computed at least in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads
from minorm.onnx.graph.tensors import element_type
from minorm.onnx.operators.precision import widest
from minorm.tensor.combining import cat, pad, stack, where
from minorm.tensor.tensor import Tensor


@reads("Attention", since=23, fixed=(6,))
def read_attention(node: Node) -> Callable[..., Any]:
    stash = None if node["softmax_precision"] is None else element_type(node["softmax_precision"], "softmax_precision")
    cap, given_scale, mode = node["softcap"], node["scale"], node["qk_matmul_output_mode"]
    if mode not in range(4):
        raise ValueError(f"qk_matmul_output_mode is {mode}; expected 0, 1, 2 or 3")

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None = None,
        past_k: Tensor | None = None,
        past_v: Tensor | None = None,
        valid: Tensor | None = None,
    ) -> Any:
        packed, kind = q.ndim == 3, q.dtype
        q, k, v = (_heads(node, x, name) for x, name in ((q, "q"), (k, "kv"), (v, "kv")))
        if (past_k is None) != (past_v is None) or (past_k is not None and valid is not None):
            raise ValueError("expected either past_key with past_value, or nonpad_kv_seqlen, or none of the three")
        before = 0 if past_k is None else past_k.shape[2]
        keys = k if past_k is None else cat([past_k, k], 2)
        values = v if past_v is None else cat([past_v, v], 2)
        _check(q, keys, values)
        shape = (*q.shape[:3], keys.shape[2])
        node.fits(shape, dtypes.float32)
        node.check_work(*shape, q.shape[3] + values.shape[3])
        seen, bias = _bias(node, shape, mask, before, valid)
        wide = widest(q, values, stash=stash or dtypes.float16)
        scale = 1 / math.sqrt(q.shape[3] or 1) if given_scale is None else given_scale
        root = math.sqrt(abs(scale))  # both factors are scaled by this, so that the products do not overflow
        shared_keys, shared = (_shared(x.to(wide), q.shape[1]) for x in (keys, values))
        scores = raw = (q.to(wide) * math.copysign(root, scale)) @ (shared_keys * root).mT
        if cap > 0:
            scores = F.tanh(scores / cap) * cap
        biased = scores if bias is None else scores + bias.to(wide)
        weights = _softmax(biased, seen)
        y = (weights @ shared).to(kind)
        if packed:
            y = y.permute(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)
        if not node.wants(3):
            return y, keys, values
        shown = (raw, scores, biased, weights)[mode]
        if mode == 2 and seen is not None:
            shown = where(seen, shown, -math.inf)
        return y, keys, values, shown.to(kind)

    return attention


def _heads(node: Node, x: Tensor, name: str) -> Tensor:
    """Reshape (batch, length, heads * size) to (batch, heads, length, size); an x of four axes stays unchanged."""
    count = node[f"{name}_num_heads"]
    if x.ndim == 4:
        return x
    if x.ndim != 3 or count is None or count < 1 or x.shape[2] % count:
        raise ValueError(
            f"an input has shape {x.shape}, {name}_num_heads is {count}; expected the shape (batch, heads, length, "
            f"size), or the shape (batch, length, heads * size) and a value for {name}_num_heads"
        )
    return x.reshape(*x.shape[:2], count, x.shape[2] // count).permute(0, 2, 1, 3)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    agree = q.shape[0] == k.shape[0] == v.shape[0] and k.shape[1:3] == v.shape[1:3] and q.shape[3] == k.shape[3]
    if not agree or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"Q is {q.shape}, K {k.shape}, V {v.shape} as (batch, heads, length, size), including the past; expected "
            "one batch size, equal sizes of Q and K, equal lengths and heads of K and V, and for Q a multiple of the "
            "heads of K"
        )


def _shared(x: Tensor, heads: int) -> Tensor:
    """Repeat each head of x for all query heads that use it; the copies of a head are neighbours."""
    if x.shape[1] == heads:
        return x
    return x[:, np.arange(x.shape[1]).repeat(heads // x.shape[1])]


def _bias(
    node: Node, shape: tuple[int, ...], mask: Tensor | None, before: int, valid: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return a mask of the keys that each query may use (None if all), and the numbers to add to the scores."""
    queries, keys = shape[2:]
    seen: Any = None
    bias: Tensor | None = None
    if mask is not None:
        missing = keys - mask.shape[-1] if mask.ndim and (node.since > 23 or mask.shape[-1] != 1) else 0
        if missing < 0 or len(mask.shape) > 4:
            raise ValueError(f"attn_mask has shape {mask.shape}; expected a shape that broadcasts to {shape}")
        if mask.dtype == dtypes.bool:
            seen = np.pad(mask.array, [*[(0, 0)] * (mask.ndim - 1), (0, missing)]) if missing else mask.array
        else:
            bias = pad(mask, [0, missing]) if missing else mask
            seen = bias.array > -math.inf
            if missing:
                seen[..., keys - missing :] = False
    first: Any = before  # the position of the first query among the keys
    if valid is not None:
        if valid.shape != shape[:1]:
            raise ValueError(f"nonpad_kv_seqlen has shape {valid.shape}; expected {shape[:1]}, one for each sample")
        lengths = valid.array.reshape(-1, 1, 1, 1)
        first = lengths - queries
        seen = _both(seen, np.arange(keys) < lengths)
    place, key = np.arange(queries)[:, None] + first, np.arange(keys)
    left, right = node.get("left_window_size", -1), node.get("right_window_size", -1)
    if node["is_causal"]:
        seen = _both(seen, key <= place)
    if left >= 0:
        seen = _both(seen, key >= place - left)
    if right >= 0:
        seen = _both(seen, key <= place + right)
    if seen is None or seen.all():
        return None, bias
    return Tensor(np.asarray(seen)), None if bias is None else where(Tensor(np.asarray(seen)), bias, 0.0)


def _both(seen: Any, allowed: Any) -> Any:
    return allowed if seen is None else seen & allowed


def _softmax(scores: Tensor, seen: Tensor | None) -> Tensor:
    """Compute the softmax over the visible keys; a query without a visible key gets zeros."""
    if seen is None:
        return F.softmax(scores, -1)
    anything = Tensor(seen.array.any(-1, keepdims=True))
    return where(seen, F.softmax(where(seen | ~anything, scores, -math.inf), -1), 0.0)


@reads("RotaryEmbedding", since=23, fixed=(3,))
def read_rotary(node: Node) -> Callable[..., Tensor]:
    """Rotate pairs of numbers by an angle that grows with the token's position; cos and sin of the angle are inputs."""
    heads, size, interleaved = node["num_heads"], node["rotary_embedding_dim"], bool(node["interleaved"])

    def rotate(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None) -> Tensor:
        y = _tokens(x, heads)
        count = size or y.shape[3]
        cos, sin = (_of_tokens(table, positions, y, count // 2) for table in (cos, sin))
        if count % 2 or not 0 <= count <= y.shape[3]:
            raise ValueError(
                f"{count} of {y.shape[3]} numbers would be rotated; expected an even number of at most {y.shape[3]}"
            )
        turned, rest = y[..., :count], y[..., count:]
        if interleaved:
            a, b = turned[..., ::2], turned[..., 1::2]
        else:
            a, b = turned[..., : count // 2], turned[..., count // 2 :]
        parts = [cos * a - sin * b, sin * a + cos * b]
        turned = stack(parts, -1).reshape(turned.shape) if interleaved else cat(parts, -1)
        y = cat([turned, rest], -1) if rest.shape[3] else turned
        return y.reshape(x.shape) if x.ndim == 3 else y.permute(0, 2, 1, 3)

    return rotate


def _tokens(x: Tensor, heads: int | None) -> Tensor:
    """Return x in the form (batch, length, heads, size)."""
    if x.ndim == 4:
        return x.permute(0, 2, 1, 3)
    if x.ndim != 3 or heads is None or heads < 1 or x.shape[2] % heads:
        raise ValueError(
            f"X has shape {x.shape}, num_heads is {heads}; expected the shape (batch, heads, length, size), or the "
            "shape (batch, length, heads * size) and a value for num_heads"
        )
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads)


def _of_tokens(table: Tensor, positions: Tensor | None, y: Tensor, half: int) -> Tensor:
    """Return the row of a table for each token, in the shape (batch, length, 1, half)."""
    if positions is not None and (positions.shape != y.shape[:2] or table.ndim != 2):
        raise ValueError(
            f"position_ids have shape {positions.shape}, and cos_cache or sin_cache has shape {table.shape}; expected "
            f"{y.shape[:2]} and (n, {half})"
        )
    rows = table if positions is None else table[positions]
    if rows.shape != (*y.shape[:2], half):
        raise ValueError(
            f"cos_cache or sin_cache gives numbers of shape {rows.shape} for the tokens; expected "
            f"{(*y.shape[:2], half)}"
        )
    return rows.unsqueeze(2)
