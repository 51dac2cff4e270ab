"""ConvNeXt (Liu et al. 2022, arXiv:2201.03545): a convolutional network with LayerNorm, GELU and the widths of a Swin
transformer.

The state_dict has torchvision's keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minorm import nn
from minorm.models.blocks import ARGUMENTS, check_arguments, no_weights
from minorm.support.documented import documented
from minorm.tensor.creation import full

LAYER_SCALE = 1e-6  # the initial scale of the residual branches
EPS = 1e-6


class Permute(nn.Module):
    """Permutes axes. As a layer of a Sequential, it makes the numbers of the other layers equal to torchvision's."""

    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Any) -> Any:
        """Return x with its axes in the order `dims`."""
        return x.permute(self.dims)


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of (N, C, H, W), at each pixel."""

    def forward(self, x: Any) -> Any:  # type: ignore[override]  # a norm of images takes no mask
        """(N, C, H, W) -> the same shape"""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    """x + scale * narrow(gelu(wide(norm(depthwise(x))))), where depthwise is a 7x7 convolution of each channel"""

    def __init__(self, width: int, drop: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(width, width, 7, padding=3, groups=width),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(width, eps=EPS),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            Permute(0, 3, 1, 2),
        )
        self.layer_scale = nn.Parameter(full((width, 1, 1), LAYER_SCALE))
        self.stochastic_depth = nn.StochasticDepth(drop, "row")

    def forward(self, x: Any) -> Any:
        """(N, width, H, W) -> the same shape"""
        return x + self.stochastic_depth(self.layer_scale * self.block(x))


class ConvNeXt(nn.Module):
    """A 4x4 convolution, stages of blocks with 2x2 convolutions between them, the mean, a norm and a linear layer."""

    def __init__(
        self,
        widths: Sequence[int],
        depths: Sequence[int],
        stochastic_depth_prob: float = 0.0,
        num_classes: int = 1000,
        channels: int = 3,
    ) -> None:
        super().__init__()
        check_arguments("ConvNeXt", num_classes, channels, stochastic_depth_prob=stochastic_depth_prob)
        width, place, last = widths[0], 0, max(1, sum(depths) - 1)
        patches = nn.Sequential(nn.Conv2d(channels, width, 4, stride=4), LayerNorm2d(width, eps=EPS))
        features = [patches]
        for stage_width, depth in zip(widths, depths, strict=True):
            if stage_width != width:
                halved = nn.Conv2d(width, stage_width, 2, stride=2)
                features.append(nn.Sequential(LayerNorm2d(width, eps=EPS), halved))
                width = stage_width
            drops = [stochastic_depth_prob * i / last for i in range(place, place + depth)]
            features.append(nn.Sequential(*[CNBlock(width, drop) for drop in drops]))
            place += depth
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(LayerNorm2d(width, eps=EPS), nn.Flatten(), nn.Linear(width, num_classes))
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Any) -> Any:
        """Images (N, channels, H, W) -> logits (N, num_classes)"""
        return self.classifier(self.avgpool(self.features(x)))


@documented(ARGUMENTS)
def convnext_tiny(
    num_classes: int = 1000, stochastic_depth_prob: float = 0.1, channels: int = 3, *, weights: None = None
) -> ConvNeXt:
    """ConvNeXt-T with torchvision's keys: 28.6 million weights, for images of at least 32 x 32 pixels.

    Raises ValueError if weights is not None, if num_classes or channels is below 1, or if stochastic_depth_prob is
    outside 0 to 1.

    Example:
        >>> model = mn.models.convnext_tiny(num_classes=5)
        >>> model(mn.randn(2, 3, 32, 32)).shape
        (2, 5)
        >>> model.classifier[2]
        Linear(in_features=768, out_features=5, bias=True)

    Liu et al. 2022, arXiv:2201.03545.
    """
    no_weights("convnext_tiny", weights)
    return ConvNeXt((96, 192, 384, 768), (3, 3, 9, 3), stochastic_depth_prob, num_classes, channels)
