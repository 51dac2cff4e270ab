"""ResNet (He et al. 2015, arXiv:1512.03385): blocks that add their result to their input.

The state_dict has torchvision's keys. As in torchvision, the 3x3 convolution of a Bottleneck has the stride.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minorm import nn
from minorm.models.blocks import ARGUMENTS, check_arguments, conv_norm, draw_convolutions, no_weights
from minorm.support.documented import documented


class BasicBlock(nn.Module):
    """relu(shortcut(x) + two 3x3 convolutions of x): the block of ResNet-18 and ResNet-34."""

    expansion = 1  # the channels of the result, divided by `width`
    last_norm = "bn2"  # the last norm of the branch

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(channels, width, stride)

    def forward(self, x: Any) -> Any:
        """(N, channels, H, W) -> (N, width, H / stride, W / stride)"""
        y = self.bn1(self.conv1(x), activation="relu")
        return self.bn2(self.conv2(y), activation="relu", residual=self.downsample(x))


class Bottleneck(nn.Module):
    """relu(shortcut(x) + 1x1, 3x3 and 1x1 convolutions of x), with few channels in the middle: ResNet-50's block."""

    expansion = 4
    last_norm = "bn3"

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = _shortcut(channels, 4 * width, stride)

    def forward(self, x: Any) -> Any:
        """(N, channels, H, W) -> (N, 4 * width, H / stride, W / stride)"""
        y = self.bn1(self.conv1(x), activation="relu")
        y = self.bn2(self.conv2(y), activation="relu")
        return self.bn3(self.conv3(y), activation="relu", residual=self.downsample(x))


class ResNet(nn.Module):
    """A stem that halves the size twice, four stages of blocks, the mean over the image and a linear layer."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: Sequence[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        channels: int = 3,
    ) -> None:
        super().__init__()
        check_arguments("ResNet", num_classes, channels)
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(block, 64, 64, layers[0], stride=1)
        self.layer2 = _stage(block, 64 * block.expansion, 128, layers[1], stride=2)
        self.layer3 = _stage(block, 128 * block.expansion, 256, layers[2], stride=2)
        self.layer4 = _stage(block, 256 * block.expansion, 512, layers[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        draw_convolutions(self)
        if zero_init_residual:
            for name, parameter in self.named_parameters():
                if name.endswith(f"{block.last_norm}.weight"):
                    nn.init.zeros_(parameter)

    def forward(self, x: Any) -> Any:
        """Images (N, channels, H, W) -> logits (N, num_classes)"""
        x = self.maxpool(self.bn1(self.conv1(x), activation="relu"))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    """Return the identity, or a 1x1 convolution if the block changes the shape."""
    return nn.Identity() if stride == 1 and channels == width else conv_norm(channels, width, 1, None, stride)


def _stage(block: type[BasicBlock | Bottleneck], channels: int, width: int, count: int, stride: int) -> nn.Sequential:
    first = block(channels, width, stride)
    return nn.Sequential(first, *[block(width * block.expansion, width, 1) for _ in range(count - 1)])


RESNET = {
    **ARGUMENTS,
    "zero_init_residual": "True lets each block begin as the identity: the last BatchNorm of its branch has weight 0",
}


@documented(RESNET)
def resnet18(
    num_classes: int = 1000, zero_init_residual: bool = False, channels: int = 3, *, weights: None = None
) -> ResNet:
    """ResNet-18 with torchvision's keys: 11.7 million weights in four stages of two blocks, for images of any size.

    Raises ValueError if weights is not None, or if num_classes or channels is below 1.

    Example:
        >>> model = mn.models.resnet18(num_classes=5)
        >>> model(mn.randn(2, 3, 32, 32)).shape
        (2, 5)
        >>> model.fc
        Linear(in_features=512, out_features=5, bias=True)

    He et al. 2015, arXiv:1512.03385.
    """
    no_weights("resnet18", weights)
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes, zero_init_residual, channels)


@documented(RESNET)
def resnet34(
    num_classes: int = 1000, zero_init_residual: bool = False, channels: int = 3, *, weights: None = None
) -> ResNet:
    """ResNet-34 with torchvision's keys: 21.8 million weights in 3, 4, 6 and 3 blocks, for images of any size.

    Raises ValueError if weights is not None, or if num_classes or channels is below 1.

    Example:
        >>> model = mn.models.resnet34(num_classes=5)
        >>> len(model.layer3)
        6

    He et al. 2015, arXiv:1512.03385.
    """
    no_weights("resnet34", weights)
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes, zero_init_residual, channels)


@documented(RESNET)
def resnet50(
    num_classes: int = 1000, zero_init_residual: bool = False, channels: int = 3, *, weights: None = None
) -> ResNet:
    """ResNet-50 with torchvision's keys: 25.6 million weights in 3, 4, 6 and 3 bottlenecks, for images of any size.

    The 3x3 convolution of a block has the stride. Raises ValueError if weights is not None, or if num_classes or
    channels is below 1.

    Example:
        >>> model = mn.models.resnet50(num_classes=5)
        >>> model.fc
        Linear(in_features=2048, out_features=5, bias=True)

    He et al. 2015, arXiv:1512.03385; the stride is that of Goyal et al. 2017, arXiv:1706.02677.
    """
    no_weights("resnet50", weights)
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes, zero_init_residual, channels)
