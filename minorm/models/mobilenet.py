"""MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381): blocks with many channels inside and few between them.

A block is a 1x1 convolution to more channels, a 3x3 convolution of each channel, and a 1x1 convolution to few channels.
The last convolution has no activation, since an activation loses too much if there are few channels. The state_dict has
torchvision's keys.
"""

from __future__ import annotations

from typing import Any

from minorm import nn
from minorm.models.blocks import ARGUMENTS, check_arguments, conv_norm, draw_convolutions, no_weights
from minorm.support.documented import documented

STAGES = (
    # times wider inside, channels, blocks, stride of the first
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
LAST = 1280  # channels in front of the classifier


class InvertedResidual(nn.Module):
    """x + narrow(depthwise(wide(x))); the summand x is left out if the shape changes."""

    def __init__(self, channels: int, width: int, stride: int, expand_ratio: int) -> None:
        super().__init__()
        inner = channels * expand_ratio
        wide = [conv_norm(channels, inner, 1, nn.ReLU6)] if expand_ratio != 1 else []
        depthwise = conv_norm(inner, inner, 3, nn.ReLU6, stride, groups=inner)
        self.conv = nn.Sequential(*wide, depthwise, nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))
        self.use_res_connect = stride == 1 and channels == width

    def forward(self, x: Any) -> Any:
        """(N, channels, H, W) -> (N, width, H / stride, W / stride)"""
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """A 3x3 convolution, the stages, a 1x1 convolution, the mean over the image, dropout and a linear layer."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.2, channels: int = 3) -> None:
        super().__init__()
        check_arguments("MobileNetV2", num_classes, channels, dropout=dropout)
        width = 32
        features: list[nn.Module] = [conv_norm(channels, width, 3, nn.ReLU6, stride=2)]
        for expand_ratio, stage_width, count, stage_stride in STAGES:
            for i in range(count):
                features.append(InvertedResidual(width, stage_width, stage_stride if i == 0 else 1, expand_ratio))
                width = stage_width
        features.append(conv_norm(width, LAST, 1, nn.ReLU6))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(LAST, num_classes))
        draw_convolutions(self)
        nn.init.normal_(self.classifier[1].weight, std=0.01)
        nn.init.zeros_(self.classifier[1].bias)

    def forward(self, x: Any) -> Any:
        """Images (N, channels, H, W) -> logits (N, num_classes)"""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


@documented(ARGUMENTS)
def mobilenet_v2(
    num_classes: int = 1000, dropout: float = 0.2, channels: int = 3, *, weights: None = None
) -> MobileNetV2:
    """MobileNetV2 with torchvision's keys: 3.5 million weights, for images of any size.

    Raises ValueError if weights is not None, if num_classes or channels is below 1, or if dropout is outside 0 to 1.

    Example:
        >>> model = mn.models.mobilenet_v2(num_classes=5)
        >>> model(mn.randn(2, 3, 32, 32)).shape
        (2, 5)
        >>> model.classifier[1]
        Linear(in_features=1280, out_features=5, bias=True)

    Sandler et al. 2018, arXiv:1801.04381.
    """
    no_weights("mobilenet_v2", weights)
    return MobileNetV2(num_classes, dropout, channels)
