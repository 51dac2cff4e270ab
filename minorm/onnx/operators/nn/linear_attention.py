"""Read LinearAttention and CausalConvWithState, layers that carry a state from one token to the next."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.memory_budget import TURN
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads
from minorm.onnx.operators.precision import widest
from minorm.tensor.combining import cat, stack
from minorm.tensor.tensor import Tensor

RULES = ("linear", "gated", "delta", "gated_delta")


@reads("LinearAttention", since=27)
def read_linear_attention(node: Node) -> Callable[..., tuple[Tensor, Tensor]]:
    """Compute for each head and token S <- e^g S; S <- S + k (v - S^T k beta)^T, or S + k v^T; o = scale S^T q."""
    rule, queries, heads = node["update_rule"], node["q_num_heads"], node["kv_num_heads"]
    if rule not in RULES or heads < 1 or queries < 1 or queries % heads:
        raise ValueError(
            f"update_rule is {rule!r}, q_num_heads {queries}, kv_num_heads {heads}; expected one of "
            f"{', '.join(RULES)}, and a q_num_heads that is a multiple of kv_num_heads"
        )

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        state: Tensor | None = None,
        decay: Tensor | None = None,
        beta: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        if ("gated" in rule) != (decay is not None) or ("delta" in rule) != (beta is not None):
            raise ValueError(
                f"update_rule is {rule}; expected decay exactly for the gated rules, and beta exactly for the delta "
                "rules"
            )
        kind = q.dtype
        kept = kind if state is None else state.dtype
        wide = widest(q, state, stash=dtypes.float32)
        q, k, v = (_split(x.to(wide), n) for x, n in ((q, queries), (k, heads), (v, heads)))
        (batch, steps), (rows, columns) = q.shape[:2], (k.shape[3], v.shape[3])
        if k.shape[:2] != q.shape[:2] or v.shape[:2] != q.shape[:2] or q.shape[3] != rows:
            raise ValueError(
                f"query, key and value are {q.shape}, {k.shape}, {v.shape} as (batch, length, heads, size); expected "
                "one batch size, one length, and equal sizes of queries and keys"
            )
        if state is not None and state.shape != (batch, heads, rows, columns):
            raise ValueError(f"past_state has shape {state.shape}; expected {(batch, heads, rows, columns)}")
        node.fits((batch, heads, rows, columns), wide)
        node.check_work(steps, max(TURN, 4 * batch * heads * rows * columns))
        s = k.new_zeros((batch, heads, rows, columns)) if state is None else state.to(wide)
        gates = None if decay is None else _numbers("decay", decay.to(wide), k, heads).exp().unsqueeze(-1)
        rates = None if beta is None else _numbers("beta", beta.to(wide), k, 1 if beta.shape[-1] == 1 else heads)
        scale = node["scale"] or 1 / math.sqrt(rows or 1)
        results = []
        for t in range(steps):
            s = s if gates is None else s * gates[:, t]
            key, value = k[:, t].unsqueeze(-1), v[:, t].unsqueeze(-2)
            if rates is not None:
                value = (value - key.mT @ s) * rates[:, t].unsqueeze(-1)
            s = s + key * value
            by_head = q[:, t].reshape(batch, heads, queries // heads, rows)
            results.append((by_head @ s * scale).reshape(batch, queries * columns))
        y = stack(results, 1) if results else q.new_zeros((batch, 0, queries * columns))
        return y.to(kind), s.to(kept)

    return attention


def _split(x: Tensor, heads: int) -> Tensor:
    """Split (batch, length, heads * size) into (batch, length, heads, size)."""
    if x.ndim != 3 or x.shape[2] % heads:
        raise ValueError(f"an input has shape {x.shape}; expected (batch, length, {heads} * size)")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads)


def _numbers(name: str, x: Tensor, keys: Tensor, heads: int) -> Tensor:
    """Split input `name` into the shape (batch, length, heads, 1), with one number for each head.

    The input `decay` may also have a number for each row of a state.
    """
    sizes = (1, keys.shape[3]) if name == "decay" else (1,)
    if x.ndim != 3 or x.shape[:2] != keys.shape[:2] or x.shape[2] not in [heads * n for n in sizes]:
        raise ValueError(f"{name} has shape {x.shape}; expected {(*keys.shape[:2], heads)}, a number for each head")
    return _split(x, heads)


@reads("CausalConvWithState", since=27)
def read_causal_conv(node: Node) -> Callable[..., tuple[Tensor, Tensor]]:
    """Convolve each channel with its own kernel over present and past tokens; the last tokens are the next state."""
    activation = node["activation"]
    if activation not in ("none", "silu", "swish"):
        raise ValueError(f"activation is {activation!r}; expected none, silu or swish")

    def conv(x: Tensor, w: Tensor, bias: Tensor | None = None, past: Tensor | None = None) -> tuple[Tensor, Any]:
        if x.ndim != 3 or w.ndim != 3 or w.shape[:2] != (x.shape[1], 1) or w.shape[2] < 1:
            raise ValueError(f"input has shape {x.shape}, weight {w.shape}; expected (N, C, length) and (C, 1, k)")
        behind = w.shape[2] - 1
        if past is not None and past.shape != (*x.shape[:2], behind):
            raise ValueError(f"past_state has shape {past.shape}; expected {(*x.shape[:2], behind)}")
        node.fits((*x.shape[:2], x.shape[2] + behind), x.dtype)
        node.check_work(x.numel(), w.shape[2])
        whole = cat([x.new_zeros((*x.shape[:2], behind)) if past is None else past, x], 2)
        y = F.conv1d(whole, w, bias, groups=x.shape[1])
        return y if activation == "none" else F.silu(y), whole[:, :, whole.shape[2] - behind :]

    return conv
