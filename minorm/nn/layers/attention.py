"""MultiheadAttention: runs several attentions side by side. Each of them uses a part of the features."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from minorm import devices
from minorm.functional.argument_texts import PLACE
from minorm.functional.attention import attend, joined_masks, scaled_dot_product_attention
from minorm.functional.linear import linear
from minorm.functional.padding import pad
from minorm.nn import init
from minorm.nn.attributes import MadeBy
from minorm.nn.layers.linear import Linear
from minorm.nn.module import Module
from minorm.nn.parameter import check_sizes, uninitialized
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor.combining import cat
from minorm.tensor.tensor import Tensor


@documented(
    PLACE,
    embed_dim="the number of features of query and y",
    num_heads="h, the number of heads, each with embed_dim / h of the features",
    dropout="the probability that a weight becomes 0, in training; 0 to 1",
    bias="False leaves out the biases of all projections",
    add_bias_kv="True appends a learned key, bias_k, to key, and a learned value, bias_v, to value",
    add_zero_attn="True appends a key and a value of zeros",
    kdim="the number of features of key; None is embed_dim",
    vdim="the number of features of value; None is embed_dim",
    batch_first="True takes and returns (batch, length, features), False (length, batch, features)",
)
class MultiheadAttention(Module):
    """y = concat(head_1 ... head_h) @ out_proj, where head_i = softmax(Q K^T / sqrt(d)) V.

    For head_i, Q is part i of the projected query; K and V are part i of the projected key and value. layer(query, key,
    value) returns (y, weights). The weights measure how well each key matches an element of query, and y is the mean of
    the values with these weights.

        query    (L, N, embed_dim), key (S, N, kdim), value (S, N, vdim); with batch_first=True N is axis 0; without a
                 batch, no shape has N
        y        has query's shape
        weights  (N, L, S), the mean over the heads, or (N, heads, L, S) with average_attn_weights=False; None if
                 need_weights=False

    key_padding_mask is (N, S), and attn_mask is (L, S) or (N * heads, L, S). A mask holds either bools (True where a
    query must not look) or numbers that are added to Q K^T / sqrt(d). With is_causal=True the caller must pass a causal
    mask as attn_mask.

    The parameters are in_proj_weight (3 * embed_dim, embed_dim), in_proj_bias (3 * embed_dim), and the weight and bias
    of out_proj, a Linear. If kdim or vdim differs from embed_dim, q_proj_weight, k_proj_weight and v_proj_weight
    replace in_proj_weight. Weights start with draws of xavier_uniform_, and biases start as 0. Raises ValueError if
    num_heads does not divide embed_dim.

    Example:
        >>> layer = nn.MultiheadAttention(8, num_heads=2, batch_first=True)
        >>> x = mn.randn(4, 5, 8)
        >>> y, weights = layer(x, x, x)
        >>> y.shape, weights.shape
        ((4, 5, 8), (4, 5, 5))

    Written to ONNX as MatMul (opset 13) and Softmax (opset 13); Vaswani et al. 2017, arXiv:1706.03762.
    """

    _made_by: ClassVar[MadeBy] = {
        "embed_dim": lambda layer: layer.out_proj.weight.shape[0],
        "kdim": lambda layer: layer._width(layer.k_proj_weight),
        "vdim": lambda layer: layer._width(layer.v_proj_weight),
    }

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check_sizes("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        same = set(widths.values()) == {embed_dim}
        for name, width in widths.items():
            own = None if same else uninitialized((embed_dim, width), dtype, device)
            self.register_parameter(f"{name}_proj_weight", own)
        joint = uninitialized((3 * embed_dim, embed_dim), dtype, device) if same else None
        self.register_parameter("in_proj_weight", joint)
        self.register_parameter("in_proj_bias", uninitialized((3 * embed_dim,), dtype, device) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        for name in ("bias_k", "bias_v"):
            extra = uninitialized((1, 1, embed_dim), dtype, device) if add_bias_kv else None
            self.register_parameter(name, extra)
        self.reset_parameters()

    def _as_setting(self, name: str, value: Any) -> Any:
        if name == "num_heads" and self.embed_dim % value:
            raise ValueError(
                f"MultiheadAttention: embed_dim is {self.embed_dim}, num_heads is {value}; expected num_heads to "
                "divide embed_dim"
            )
        return value

    def _width(self, weight: Tensor | None) -> int:
        """Return the number of input features of the projection with this weight. If weight is None, the projection is
        a part of in_proj_weight, and the number is embed_dim.
        """
        return self.embed_dim if weight is None else weight.shape[1]

    @property
    def head_dim(self) -> int:
        """The number of features of each head."""
        return self.embed_dim // self.num_heads

    def reset_parameters(self) -> None:
        """Draw the projections again (xavier_uniform_), and set the biases to 0."""
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            if getattr(self, name) is not None:
                init.xavier_uniform_(getattr(self, name))
        self.out_proj.reset_parameters()
        for bias in (self.in_proj_bias, self.out_proj.bias):
            if bias is not None:
                init.zeros_(bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return (y, weights). y has query's shape. weights is (N, L, S) or (N, heads, L, S), or None if
        need_weights=False.

        key_padding_mask is (N, S), and attn_mask is (L, S) or (N * heads, L, S). A mask holds either bools (True where
        a query must not look) or numbers that are added to Q K^T / sqrt(d). With is_causal=True the caller must pass a
        causal mask as attn_mask.
        """
        for name, x in (("query", query), ("key", key), ("value", value)):
            if not isinstance(x, Tensor):
                raise not_a_tensor("MultiheadAttention", name, x)
            if x.ndim not in (2, 3) or x.ndim != query.ndim:
                raise ValueError(
                    f"MultiheadAttention: {name} has shape {x.shape}, query {query.shape}; expected the same number "
                    "of axes, 3 or 2"
                )
        if is_causal and attn_mask is None:
            raise ValueError(
                "MultiheadAttention: is_causal is True and attn_mask is None; expected a causal mask as attn_mask"
            )
        single = query.ndim == 2
        if single:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        y, weights = self._attend(query, key, value, key_padding_mask, need_weights, attn_mask)
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if single:
            return y.squeeze(0), None if weights is None else weights.squeeze(0)
        return y if self.batch_first else y.transpose(0, 1), weights

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None, need: bool, mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return y and the weights for query (N, L, E), key (N, S, K) and value (N, S, V)."""
        batch, length = query.shape[:2]
        q, k, v = (self._projected(i, x) for i, x in enumerate((query, key, value)))
        extra = 0
        if self.bias_k is not None:
            k, v = (cat([x, b.expand(batch, 1, self.embed_dim)], 1) for x, b in ((k, self.bias_k), (v, self.bias_v)))
            extra += 1
        if self.add_zero_attn:
            k, v = (pad(x, (0, 0, 0, 1)) for x in (k, v))
            extra += 1
        q, k, v = (x.reshape(batch, x.shape[1], self.num_heads, self.head_dim).transpose(1, 2) for x in (q, k, v))
        key_mask, mask = (_widened(m, extra) for m in (key_mask, mask))
        if mask is not None and mask.ndim == 3:
            mask = mask.reshape(batch, self.num_heads, *mask.shape[1:])
        if key_mask is not None:
            key_mask = key_mask.reshape(batch, 1, 1, -1)
        added = joined_masks((mask, q.dtype), (key_mask, q.dtype))
        p = self.dropout if self.training and not self.frozen else 0.0
        weights = None
        if need:
            heads, weights = attend(q, k, v, added, dropout_p=p)
        else:
            heads = scaled_dot_product_attention(q, k, v, added, p)
        return self.out_proj(heads.transpose(1, 2).reshape(batch, length, self.embed_dim)), weights

    def _projected(self, i: int, x: Tensor) -> Tensor:
        rows = slice(i * self.embed_dim, (i + 1) * self.embed_dim)
        weight = getattr(self, f"{'qkv'[i]}_proj_weight") if self.in_proj_weight is None else self.in_proj_weight[rows]
        return linear(x, weight, None if self.in_proj_bias is None else self.in_proj_bias[rows])


def _widened(mask: Tensor | None, extra: int) -> Tensor | None:
    """Return the mask with `extra` more keys. All queries may look at these keys."""
    if mask is None or not extra:
        return mask
    with devices.on_device_of(mask.array):
        free = Tensor(np.zeros_like(mask.array, shape=(*mask.shape[:-1], extra)))
    return cat([mask, free], -1)
