"""Transformer layers: attention, then two Linear layers, each with a residual connection and a LayerNorm.

    norm_first=False   x = norm(x + part(x))
    norm_first=True    x = x + part(norm(x))

Masks work as in MultiheadAttention. A mask holds either bools (True where a query must not look) or numbers that are
added to the scores. With is_causal=True the caller must pass a causal mask. Vaswani et al. 2017.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.functional.argument_texts import PLACE
from minorm.nn import init
from minorm.nn.attributes import MadeBy
from minorm.nn.container import ModuleList
from minorm.nn.layers.attention import MultiheadAttention
from minorm.nn.layers.dropout import Dropout
from minorm.nn.layers.linear import Linear
from minorm.nn.module import Module
from minorm.nn.norm import LayerNorm
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Activation = str | Callable[[Tensor], Tensor]
Mask = Tensor | None
ARGUMENTS = {
    **PLACE,
    "d_model": "the number of features of each element",
    "nhead": "the number of heads of each attention; it must divide d_model",
    "dim_feedforward": "the number of features between linear1 and linear2",
    "dropout": "the probability of a 0 in the attention weights and after each part, in training",
    "activation": 'between linear1 and linear2: "relu", "gelu", or a function of a Tensor',
    "layer_norm_eps": "the eps of the LayerNorms",
    "batch_first": "True takes and returns (batch, length, features), False (length, batch, features)",
    "norm_first": "True normalizes the input of each part, False the sum after each part",
    "bias": "False leaves the biases of Linear layers and norms out",
    "num_layers": "the number of copies of the layer",
    "norm": "a layer that normalizes the output; None means that there is no such layer",
}


class _Layer(Module):
    """Base of TransformerEncoderLayer and TransformerDecoderLayer: attention, then linear2(activation(linear1(x))).
    Each part has dropout, a residual connection and a norm.
    """

    attentions: ClassVar[tuple[str, ...]]  # the attributes that hold the attentions
    activation: Any  # a function, stored by `_as_setting`
    self_attn: MultiheadAttention

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        place = {"device": device, "dtype": dtype}
        for name in self.attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place))
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        steps = range(1, len(self.attentions) + 2)
        for i in steps:
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, **place))
        for i in steps:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = activation

    def _as_setting(self, name: str, value: Any) -> Any:
        return _activation(value) if name == "activation" else value

    def _step(self, i: int, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        norm, dropout = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
        return x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


@documented(ARGUMENTS)
class TransformerEncoderLayer(_Layer):
    """y = norm2(x + linear2(activation(linear1(x)))) with x = norm1(src + self_attn(src)): attention, then two Linear
    layers.

    With norm_first=True, x + part(norm(x)) replaces norm(x + part(x)). The call is layer(src, src_mask,
    src_key_padding_mask, is_causal). src is (S, N, d_model), (N, S, d_model) with batch_first=True, or (S, d_model),
    and y has src's shape. The masks work as in MultiheadAttention. A mask holds either bools (True where a query must
    not look) or numbers that are added to the scores. self_attn, linear1, linear2, norm1 and norm2 hold the parameters.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> layer(mn.randn(4, 5, 8)).shape
        (4, 5, 8)

    Written to ONNX as MatMul (opset 13), Softmax (opset 13) and LayerNormalization (opset 17); Vaswani et al. 2017,
    arXiv:1706.03762.
    """

    attentions = ("self_attn",)

    def forward(
        self, src: Tensor, src_mask: Mask = None, src_key_padding_mask: Mask = None, is_causal: bool = False
    ) -> Tensor:
        """Return y, which has src's shape."""

        def attend(x: Tensor) -> Tensor:
            masks = {"key_padding_mask": src_key_padding_mask, "attn_mask": src_mask, "is_causal": is_causal}
            return self.self_attn(x, x, x, need_weights=False, **masks)[0]

        return self._step(2, self._step(1, src, attend), self._ff_block)


@documented(ARGUMENTS)
class TransformerDecoderLayer(_Layer):
    """y = norm3(x + linear2(activation(linear1(x)))), where x comes from attention to tgt and then to memory:

        x = norm1(tgt + self_attn(tgt))
        x = norm2(x + multihead_attn(x, memory))

    With norm_first=True, x + part(norm(x)) replaces norm(x + part(x)). memory is the result of an encoder. The call is
    layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask). tgt is (T, N, d_model) and
    memory is (S, N, d_model). With batch_first=True N is axis 0. For a single sequence neither shape has N. y has tgt's
    shape. The masks work as in MultiheadAttention. The two attentions, linear1, linear2 and three norms hold the
    parameters.

    Example:
        >>> layer = nn.TransformerDecoderLayer(8, nhead=2, batch_first=True)
        >>> layer(mn.randn(4, 3, 8), memory=mn.randn(4, 5, 8)).shape
        (4, 3, 8)

    Written to ONNX as MatMul (opset 13), Softmax (opset 13) and LayerNormalization (opset 17); Vaswani et al. 2017,
    arXiv:1706.03762.
    """

    attentions = ("self_attn", "multihead_attn")
    multihead_attn: MultiheadAttention

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return y, which has tgt's shape."""

        def own(x: Tensor) -> Tensor:
            masks = {"key_padding_mask": tgt_key_padding_mask, "attn_mask": tgt_mask, "is_causal": tgt_is_causal}
            return self.self_attn(x, x, x, need_weights=False, **masks)[0]

        def other(x: Tensor) -> Tensor:
            masks = {"key_padding_mask": memory_key_padding_mask, "attn_mask": memory_mask}
            return self.multihead_attn(x, memory, memory, need_weights=False, is_causal=memory_is_causal, **masks)[0]

        x = self._step(2, self._step(1, tgt, own), other)
        return self._step(3, x, self._ff_block)


@documented(
    ARGUMENTS,
    encoder_layer="the layer to copy, such as a TransformerEncoderLayer",
    enable_nested_tensor="accepted but ignored: there are no nested tensors here",
    mask_check="accepted but ignored",
)
class TransformerEncoder(Module):
    """y = norm(layer_n(... layer_1(src))): copies of a layer, which run one after the other.

    encoder(src, mask, src_key_padding_mask, is_causal) takes the arguments of the layer, and returns a result of the
    same shape. The copies start with equal weights, but each copy is trained separately.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, nhead=2, batch_first=True)
        >>> nn.TransformerEncoder(layer, num_layers=3)(mn.randn(4, 5, 8)).shape
        (4, 5, 8)

    Vaswani et al. 2017, arXiv:1706.03762.
    """

    _made_by: ClassVar[MadeBy] = {"num_layers": lambda encoder: len(encoder.layers)}

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self, src: Tensor, mask: Mask = None, src_key_padding_mask: Mask = None, is_causal: bool | None = None
    ) -> Tensor:
        """Return y, which has src's shape."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)


@documented(ARGUMENTS, decoder_layer="the layer to copy, such as a TransformerDecoderLayer")
class TransformerDecoder(Module):
    """y = norm(layer_n(... layer_1(tgt, memory), memory)): copies of a layer, which run one after the other.

    decoder(tgt, memory, ...) takes the arguments of the layer, and returns a result of the same shape. The copies start
    with equal weights, but each copy is trained separately.

    Example:
        >>> layer = nn.TransformerDecoderLayer(8, nhead=2, batch_first=True)
        >>> nn.TransformerDecoder(layer, num_layers=3)(mn.randn(4, 3, 8), mn.randn(4, 5, 8)).shape
        (4, 3, 8)

    Vaswani et al. 2017, arXiv:1706.03762.
    """

    _made_by: ClassVar[MadeBy] = {"num_layers": lambda decoder: len(decoder.layers)}

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return y, which has tgt's shape."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


@documented(
    ARGUMENTS,
    num_encoder_layers="the number of layers of the encoder",
    num_decoder_layers="the number of layers of the decoder",
    custom_encoder="a module that replaces the encoder; None is a TransformerEncoder",
    custom_decoder="a module that replaces the decoder; None is a TransformerDecoder",
)
class Transformer(Module):
    """y = decoder(tgt, encoder(src)): reads a sequence and writes another, as in translation.

    The call is model(src, tgt, src_mask, tgt_mask, ...). src is (S, N, d_model) and tgt is (T, N, d_model). With
    batch_first=True N is axis 0. For a single sequence neither shape has N. y has tgt's shape. The masks work as in
    MultiheadAttention; `generate_square_subsequent_mask` makes a tgt_mask that hides later elements of tgt. Add the
    embedding, the positions and a last Linear yourself. encoder and decoder hold the parameters. Their matrices start
    with draws of xavier_uniform_.

    Example:
        >>> model = nn.Transformer(8, nhead=2, num_encoder_layers=1, num_decoder_layers=1, batch_first=True)
        >>> later = model.generate_square_subsequent_mask(3)
        >>> model(mn.randn(4, 5, 8), mn.randn(4, 3, 8), tgt_mask=later).shape
        (4, 3, 8)

    Written to ONNX as MatMul (opset 13), Softmax (opset 13) and LayerNormalization (opset 17); Vaswani et al. 2017,
    arXiv:1706.03762.
    """

    _made_by: ClassVar[MadeBy] = {
        "d_model": lambda model: vars(model)["d_model"],
        "nhead": lambda model: vars(model)["nhead"],
        "batch_first": lambda model: vars(model)["batch_first"],
    }

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shared = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder: Module = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*shared, device, dtype), num_encoder_layers, norm()
        )
        self.decoder: Module = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*shared, device, dtype), num_decoder_layers, norm()
        )
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Mask = None,
        tgt_mask: Mask = None,
        memory_mask: Mask = None,
        src_key_padding_mask: Mask = None,
        tgt_key_padding_mask: Mask = None,
        memory_key_padding_mask: Mask = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Return y, which has tgt's shape."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Return a mask (sz, sz) that hides later elements of a sequence: 0 on and below the diagonal, and -infinity
        above the diagonal.
        """
        mask = np.triu(np.full((sz, sz), -np.inf), 1).astype(dtypes.float32 if dtype is None else dtypes.check(dtype))
        return Tensor(mask) if device is None else Tensor(mask).to(device)


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise ValueError(
            f"TransformerEncoderLayer: activation is {activation!r}; expected 'relu', 'gelu' or a function"
        )
    return F.relu if activation == "relu" else F.gelu
