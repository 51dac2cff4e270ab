"""The vision transformer (Dosovitskiy et al. 2020, arXiv:2010.11929): attention between the patches of an image.

A convolution whose stride equals its kernel size turns each patch into a token. The first token is a learned class
token, and the logits are computed from its final state. Positions are learned too, so a network is for images of one
size; `interpolate_embeddings` converts positions to another size. The state_dict has the keys of torchvision's
VisionTransformer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from minorm import nn
from minorm.functional.resizing import interpolate
from minorm.models.blocks import ARGUMENTS, check_arguments, no_weights
from minorm.nn.parameter import check_sizes
from minorm.support.documented import documented
from minorm.tensor.combining import cat
from minorm.tensor.creation import empty, zeros
from minorm.tensor.tensor import Tensor

EPS = 1e-6
POSITIONS = "encoder.pos_embedding"
TRANSFORMER = {
    **ARGUMENTS,
    "image_size": "the height and width of the images, a multiple of patch_size",
    "patch_size": "the height and width of a patch",
    "num_layers": "the number of blocks of attention and linear layers",
    "num_heads": "the number of heads of each attention; it must divide hidden_dim",
    "hidden_dim": "the number of features of a token",
    "mlp_dim": "the number of features between the two linear layers of a block",
    "dropout": "the probability of a zero behind the positions, the attention and the linear layers, in training",
    "attention_dropout": "the probability of a zero among the weights of the attention, in training",
}


class EncoderBlock(nn.Module):
    """y + mlp(norm(y)), where y = x + attention(norm(x))"""

    def __init__(self, num_heads: int, hidden_dim: int, mlp_dim: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden_dim, eps=EPS)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(hidden_dim, eps=EPS)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_dim, mlp_dim), nn.GELU(), nn.Dropout(dropout),
            nn.Linear(mlp_dim, hidden_dim), nn.Dropout(dropout),
        )  # fmt: skip
        for linear in (self.mlp[0], self.mlp[3]):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.normal_(linear.bias, std=1e-6)

    def forward(self, x: Any) -> Any:
        """Tokens (N, length, hidden_dim) -> the same shape"""
        tokens = self.ln_1(x)
        attended, _ = self.self_attention(tokens, tokens, tokens, need_weights=False)
        x = x + self.dropout(attended)
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """norm(blocks(tokens + positions)), with learned positions."""

    def __init__(self, length: int, num_layers: int, hidden_dim: int, dropout: float, **block: Any) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(nn.init.normal_(empty((1, length, hidden_dim)), std=0.02))
        self.dropout = nn.Dropout(dropout)
        blocks = {
            f"encoder_layer_{i}": EncoderBlock(hidden_dim=hidden_dim, dropout=dropout, **block)
            for i in range(num_layers)
        }
        self.layers = nn.Sequential(blocks)
        self.ln = nn.LayerNorm(hidden_dim, eps=EPS)

    def forward(self, tokens: Any) -> Any:
        """(N, length, hidden_dim) -> the same shape"""
        return self.ln(self.layers(self.dropout(tokens + self.pos_embedding)))


@documented(TRANSFORMER)
class VisionTransformer(nn.Module):
    """logits = head(c), where c is the class token after num_layers blocks of attention between an image's patches.

    Layers and their names are the same as in torchvision's VisionTransformer, so its weights can be loaded. Raises
    ValueError if patch_size does not divide image_size, if num_heads does not divide hidden_dim, or if a probability is
    outside 0 to 1.

    Example:
        >>> model = mn.models.VisionTransformer(
        ...     image_size=32, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64, mlp_dim=128, num_classes=5
        ... )
        >>> model(mn.randn(2, 3, 32, 32)).shape
        (2, 5)
        >>> model.encoder.pos_embedding.shape  # four patches and the class token
        (1, 5, 64)

    Dosovitskiy et al. 2020, arXiv:2010.11929.
    """

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
        channels: int = 3,
    ) -> None:
        super().__init__()
        check_arguments("VisionTransformer", num_classes, channels, dropout=dropout,
                        attention_dropout=attention_dropout)  # fmt: skip
        check_sizes("VisionTransformer", image_size=image_size, patch_size=patch_size, num_layers=num_layers,
                    num_heads=num_heads, hidden_dim=hidden_dim, mlp_dim=mlp_dim)  # fmt: skip
        for name, divisor, whole, size in (
            ("patch_size", patch_size, "image_size", image_size), ("num_heads", num_heads, "hidden_dim", hidden_dim)
        ):  # fmt: skip
            if size % divisor:
                raise ValueError(f"VisionTransformer: {name}={divisor} must divide {whole}={size}")
        self.image_size = image_size
        self.conv_proj = nn.Conv2d(channels, hidden_dim, patch_size, stride=patch_size)
        self.class_token = nn.Parameter(zeros((1, 1, hidden_dim)))
        self.encoder = Encoder(
            (image_size // patch_size) ** 2 + 1, num_layers, hidden_dim, dropout,
            num_heads=num_heads, mlp_dim=mlp_dim, attention_dropout=attention_dropout,
        )  # fmt: skip
        self.heads = nn.Sequential({"head": nn.Linear(hidden_dim, num_classes)})
        nn.init.trunc_normal_(self.conv_proj.weight, std=(channels * patch_size**2) ** -0.5)
        for zero in (self.conv_proj.bias, self.heads.head.weight, self.heads.head.bias):
            nn.init.zeros_(zero)

    def forward(self, x: Any) -> Any:
        """Images (N, channels, image_size, image_size) -> logits (N, num_classes)"""
        if x.shape[2:] != (self.image_size, self.image_size):
            raise ValueError(
                f"VisionTransformer: x.shape is {x.shape}; expected {self.image_size} x {self.image_size} pixels, "
                "because there is a learned embedding for each position; interpolate_embeddings converts a state_dict "
                "to another size"
            )
        patches = self.conv_proj(x).flatten(2).transpose(1, 2)
        token = self.class_token.expand(patches.shape[0], -1, -1)
        return self.heads(self.encoder(cat([token, patches], 1))[:, 0])


@documented(TRANSFORMER, image_size="the height and width of the images, a multiple of 16")
def vit_tiny(
    image_size: int = 224,
    num_classes: int = 1000,
    dropout: float = 0.0,
    attention_dropout: float = 0.0,
    channels: int = 3,
    *,
    weights: None = None,
) -> VisionTransformer:
    """A VisionTransformer with 12 blocks, 3 heads, width 192 and patches of 16 x 16 pixels: 5.7 million weights.

    The keys are those of torchvision's VisionTransformer; torchvision has no network of this size. Raises ValueError if
    weights is not None, if num_classes or channels is below 1, if a probability is outside 0 to 1, or if image_size is
    not a multiple of 16.

    Example:
        >>> model = mn.models.vit_tiny(image_size=32, num_classes=5)
        >>> model(mn.randn(2, 3, 32, 32)).shape
        (2, 5)

    Dosovitskiy et al. 2020, arXiv:2010.11929; the width is that of Touvron et al. 2020, arXiv:2012.12877.
    """
    no_weights("vit_tiny", weights)
    return VisionTransformer(image_size, 16, 12, 3, 192, 768, dropout, attention_dropout, num_classes, channels)


@documented(
    {},
    image_size="the height and width of the new network's images",
    patch_size="the height and width of a patch, in both networks",
    model_state="a VisionTransformer's state_dict; it is not changed",
    interpolation_mode='how embeddings between the old positions are interpolated: "bicubic" or "bilinear"',
    reset_heads="True leaves the last layer out of the result",
)
def interpolate_embeddings(
    image_size: int,
    patch_size: int,
    model_state: Mapping[str, Any],
    interpolation_mode: str = "bicubic",
    reset_heads: bool = False,
) -> dict[str, Any]:
    """Return the state_dict of a VisionTransformer with its positions resized for images of another size.

    The positions of the patches are resized like a square picture (align_corners=True); the position of the class token
    is kept. Raises ValueError if the positions do not form a square, or if patch_size does not divide image_size.

    Example:
        >>> small, large = mn.models.vit_tiny(image_size=32), mn.models.vit_tiny(image_size=64)
        >>> state = mn.models.interpolate_embeddings(64, 16, small.state_dict())
        >>> large.load_state_dict(state)
        <All keys matched successfully>

    Touvron et al. 2019, arXiv:1906.06423, and torchvision's function.
    """
    check_sizes("interpolate_embeddings", image_size=image_size, patch_size=patch_size)
    if image_size % patch_size:
        raise ValueError(f"interpolate_embeddings: patch_size={patch_size} must divide image_size={image_size}")
    if POSITIONS not in model_state:
        raise ValueError(f"interpolate_embeddings: model_state has no {POSITIONS!r}; expected a VisionTransformer's")
    state = {name: value for name, value in model_state.items() if not (reset_heads and name.startswith("heads."))}
    state[POSITIONS] = _resized(state[POSITIONS], image_size // patch_size, interpolation_mode)
    return state


def _resized(positions: Any, side: int, mode: str) -> Tensor:
    """(1, 1 + n * n, width) -> (1, 1 + side * side, width)"""
    before = math.isqrt(positions.shape[1] - 1) if positions.ndim == 3 else 0
    if positions.ndim != 3 or positions.shape[0] != 1 or before**2 != positions.shape[1] - 1:
        raise ValueError(f"interpolate_embeddings: {POSITIONS} has shape {tuple(positions.shape)}; expected "
                         "(1, 1 + n * n, hidden_dim), a class token and n x n patches")  # fmt: skip
    if before == side:
        return positions
    token, patches = positions[:, :1], positions[:, 1:]
    picture = patches.transpose(1, 2).reshape(1, -1, before, before)
    resized = interpolate(picture, size=(side, side), mode=mode, align_corners=True)
    return cat([token, resized.flatten(2).transpose(1, 2)], 1)
