"""EfficientNet-B0 (Tan and Le 2019, arXiv:1905.11946): MobileNetV2's blocks with a gate for each channel.

The gate is called squeeze and excitation (Hu et al. 2017, arXiv:1709.01507), and is computed from the mean over the
image. During training, blocks are skipped at random; later blocks are skipped more often. The state_dict has
torchvision's keys.
"""

from __future__ import annotations

from typing import Any

from minorm import nn
from minorm.models.blocks import ARGUMENTS, check_arguments, conv_norm, draw_convolutions, no_weights
from minorm.support.documented import documented

STAGES = (
    # times wider inside, kernel, stride of the first block, channels, blocks
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
BLOCKS = sum(count for *_, count in STAGES)


class SqueezeExcitation(nn.Module):
    """x * gate, where each channel's gate is between 0 and 1 and is computed from the means of all channels."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.activation = nn.SiLU()
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.scale_activation = nn.Sigmoid()

    def forward(self, x: Any) -> Any:
        """(N, C, H, W) -> the same shape"""
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


class MBConv(nn.Module):
    """x + narrow(gate(depthwise(wide(x)))); the summand x is left out if the shape changes."""

    def __init__(self, channels: int, width: int, kernel: int, stride: int, expand_ratio: int, drop: float) -> None:
        super().__init__()
        inner = channels * expand_ratio
        wide = [conv_norm(channels, inner, 1, nn.SiLU)] if expand_ratio != 1 else []
        self.block = nn.Sequential(
            *wide,
            conv_norm(inner, inner, kernel, nn.SiLU, stride, groups=inner),
            SqueezeExcitation(inner, channels // 4),
            conv_norm(inner, width, 1, None),
        )
        self.stochastic_depth = nn.StochasticDepth(drop, "row")
        self.use_res_connect = stride == 1 and channels == width

    def forward(self, x: Any) -> Any:
        """(N, channels, H, W) -> (N, width, H / stride, W / stride)"""
        return x + self.stochastic_depth(self.block(x)) if self.use_res_connect else self.block(x)


class EfficientNet(nn.Module):
    """A 3x3 convolution, the stages, a 1x1 convolution, the mean over the image, dropout and a linear layer."""

    def __init__(
        self, dropout: float = 0.2, stochastic_depth_prob: float = 0.2, num_classes: int = 1000, channels: int = 3
    ) -> None:
        super().__init__()
        check_arguments("EfficientNet", num_classes, channels, dropout=dropout,
                        stochastic_depth_prob=stochastic_depth_prob)  # fmt: skip
        width, place = 32, 0
        features = [conv_norm(channels, width, 3, nn.SiLU, stride=2)]
        for expand_ratio, kernel, stage_stride, stage_width, count in STAGES:
            stage = []
            for i in range(count):
                drop = stochastic_depth_prob * place / BLOCKS
                stage.append(MBConv(width, stage_width, kernel, stage_stride if i == 0 else 1, expand_ratio, drop))
                width, place = stage_width, place + 1
            features.append(nn.Sequential(*stage))
        features.append(conv_norm(width, 4 * width, 1, nn.SiLU))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(4 * width, num_classes))
        draw_convolutions(self)
        bound = num_classes**-0.5
        nn.init.uniform_(self.classifier[1].weight, -bound, bound)
        nn.init.zeros_(self.classifier[1].bias)

    def forward(self, x: Any) -> Any:
        """Images (N, channels, H, W) -> logits (N, num_classes)"""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


@documented(ARGUMENTS)
def efficientnet_b0(
    num_classes: int = 1000,
    dropout: float = 0.2,
    stochastic_depth_prob: float = 0.2,
    channels: int = 3,
    *,
    weights: None = None,
) -> EfficientNet:
    """EfficientNet-B0 with torchvision's keys: 5.3 million weights, for images of any size.

    Raises ValueError if weights is not None, if num_classes or channels is below 1, or if a probability is outside 0 to
    1.

    Example:
        >>> model = mn.models.efficientnet_b0(num_classes=5)
        >>> model(mn.randn(2, 3, 32, 32)).shape
        (2, 5)
        >>> model.classifier[1]
        Linear(in_features=1280, out_features=5, bias=True)

    Tan and Le 2019, arXiv:1905.11946.
    """
    no_weights("efficientnet_b0", weights)
    return EfficientNet(dropout, stochastic_depth_prob, num_classes, channels)
