"""Attention: each query takes a mean of the values, weighted by how well each value's key matches the query."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm import devices
from minorm.devices import constant_of, dtypes
from minorm.functional.activation import softmax
from minorm.functional.arguments import floats
from minorm.functional.dropout import dropout
from minorm.graph import trace
from minorm.ops.matmul import MatMul
from minorm.support.documented import documented
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor


@documented(
    {},
    query="(*, L, E), floats",
    key="(*, S, E), of query's type",
    value="(*, S, V), of query's type",
    attn_mask="broadcasts to (*, L, S): bools (True: the query may see the key), or numbers to add; None allows all",
    dropout_p="the probability that a weight becomes 0; it applies whenever it is above 0, as in PyTorch",
    is_causal="True lets query i see only keys 0 to i; not together with attn_mask",
    scale="the factor of the products; None is 1 / sqrt(E)",
    enable_gqa="True lets each head of key and value (axis -3) serve several heads of query",
)
@trace.operation
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """y = softmax(scale * query @ key^T + mask) @ value: for each query, a weighted mean of the values.

    y is (*, L, V) and has query's type. If a query may look at no key, its y is 0. For 16-bit floats the computation is
    in float32.

    Example:
        >>> q, k = mn.tensor([[100.0, 0.0]]), mn.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> F.scaled_dot_product_attention(q, k, value=mn.tensor([[5.0], [7.0]]))  # the query looks at the first key
        tensor([[5.]])
        >>> F.scaled_dot_product_attention(q * 0, k, value=mn.tensor([[5.0], [7.0]]))
        tensor([[6.]])

    Its ONNX operator is Attention (opset 23); Vaswani et al. 2017, arXiv:1706.03762.
    """
    name = "scaled_dot_product_attention"
    floats(name, (), query=query, key=key, value=value)
    if attn_mask is not None and is_causal:
        raise ValueError(f"{name}: got both attn_mask and is_causal; expected one of them")
    if enable_gqa:
        key, value = (_shared(x, query) for x in (key, value))
    return attend(query, key, value, attn_mask, is_causal, scale, dropout_p)[0]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Return (y, weights), the result of an attention and its weights. For 16-bit floats the computation is in float32,
    and only the results are rounded.

    The scores are not rounded to 16 bits, because their rounding errors would cause large errors of the weights.
    """
    kind, cast = query.dtype, trace.state.cast
    if cast is not None:  # the type in which autocast computes a product
        kind = cast(MatMul, (query,))[0].dtype
    wide = dtypes.compute_type(kind)
    if wide != kind:
        query, key, value = (x.to(wide) for x in (query, key, value))
        with trace.no_casts():
            y, weights = attend(query, key, value, mask, is_causal, scale, dropout_p)
        return y.to(kind), weights.to(kind)
    weights = attention_weights(query, key, mask, is_causal, scale)
    if dropout_p > 0:
        weights = dropout(weights, dropout_p)
    return weights @ value, weights


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """Return softmax(scale * query @ key^T + mask), of shape (*, L, S)."""
    factor = math.sqrt(1.0 / math.sqrt(query.shape[-1]) if scale is None else abs(scale))
    factor, sign = (factor, 1.0) if scale is None or scale >= 0 else (factor, -1.0)
    scores = (query * (factor * sign)) @ (key * factor).mT
    if is_causal:
        rows, columns = scores.shape[-2:]
        mask = Tensor(constant_of(np.tri(rows, columns, dtype=bool), query.array))
    if mask is None:
        return softmax(scores, -1)
    if mask.dtype != dtypes.bool:
        return softmax(scores + mask.to(scores.dtype), -1)
    seen = mask.array.any(-1, keepdims=True)
    if is_causal or (devices.is_host(seen) and bool(seen.all())):  # not checked on a GPU, where the host would wait
        return softmax(where(mask, scores, -math.inf), -1)
    return where(mask, softmax(where(mask | Tensor(~seen), scores, -math.inf), -1), 0.0)


def _shared(x: Tensor, query: Tensor) -> Tensor:
    """Repeat each head of x (axis -3) until x has as many heads as the query."""
    heads = np.arange(x.shape[-3]).repeat(query.shape[-3] // x.shape[-3])
    return x[(..., constant_of(heads, x.array), slice(None), slice(None))]


def joined_masks(*masks: Any) -> Any:
    """Join masks into one mask that is added to the scores; return None if all masks are None. A mask holds either
    bools (True where the query must not look) or numbers.
    """
    total = None
    for mask, dtype in masks:
        if mask is None:
            continue
        added = (
            where(mask, -math.inf, Tensor(devices.scalar(0, dtype, mask.array)))
            if mask.dtype == dtypes.bool
            else mask.to(dtype)
        )
        total = added if total is None else total + added
    return total
