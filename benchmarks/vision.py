"""Networks for images of 224 x 224 pixels and 1000 classes in PyTorch, with torchvision's keys.

benchmarks/inference.py has PyTorch's exporter write them. They are the networks of minorm.models, written a second time
from the papers in torch.nn, and without what only training has (dropout, stochastic depth): the tests of minorm/models
load the same weights into both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

CLASSES = 1000


class Residual(nn.Module):
    """relu(branch(x) + shortcut(x)), the branch's convolutions conv1, bn1, conv2 ... with ReLU between them."""

    def __init__(self, *convolutions: nn.Conv2d, shortcut: nn.Module | None) -> None:
        super().__init__()
        for number, convolution in enumerate(convolutions, 1):
            self.add_module(f"conv{number}", convolution)
            self.add_module(f"bn{number}", nn.BatchNorm2d(convolution.out_channels))
        self.count, self.downsample, self.relu = len(convolutions), shortcut, nn.ReLU()

    def forward(self, x: Any) -> Any:
        y = x
        for number in range(1, self.count + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
            if number < self.count:
                y = self.relu(y)
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Residual blocks at each of four resolutions (He et al. 2015, arXiv:1512.03385)."""

    def __init__(self, counts: Sequence[int], bottleneck: bool, classes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)
        channels, grows = 64, 4 if bottleneck else 1
        for stage, count in enumerate(counts):
            width, blocks = 64 << stage, []
            for i in range(count):
                stride = 2 if stage and i == 0 else 1
                blocks.append(self._block(channels, width, stride, grows, bottleneck))
                channels = width * grows
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(channels, classes)

    @staticmethod
    def _block(channels: int, width: int, stride: int, grows: int, bottleneck: bool) -> Residual:
        shortcut = None
        if stride != 1 or channels != width * grows:
            shortcut = nn.Sequential(
                nn.Conv2d(channels, width * grows, 1, stride=stride, bias=False), nn.BatchNorm2d(width * grows)
            )
        if bottleneck:
            return Residual(
                nn.Conv2d(channels, width, 1, bias=False),
                nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False),
                nn.Conv2d(width, width * grows, 1, bias=False),
                shortcut=shortcut,
            )
        return Residual(
            nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            shortcut=shortcut,
        )

    def forward(self, x: Any) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(self.avgpool(x).flatten(1))


def resnet18(size: int = 224, classes: int = CLASSES) -> ResNet:  # noqa: ARG001  as the others
    """Two blocks of two 3x3 convolutions at each resolution."""
    return ResNet((2, 2, 2, 2), False, classes)


def resnet34(size: int = 224, classes: int = CLASSES) -> ResNet:  # noqa: ARG001  as the others
    """3, 4, 6 and 3 of those blocks."""
    return ResNet((3, 4, 6, 3), False, classes)


def resnet50(size: int = 224, classes: int = CLASSES) -> ResNet:  # noqa: ARG001  as the others
    """3, 4, 6 and 3 blocks of 1x1, 3x3 and 1x1 convolutions; the 3x3 one has the stride."""
    return ResNet((3, 4, 6, 3), True, classes)


def block(channels: int, width: int, kernel: int, activation: Any, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, BatchNorm, activation."""
    convolution = nn.Conv2d(
        channels, width, kernel, stride=stride, padding=(kernel - 1) // 2, groups=groups, bias=False
    )
    layers = [convolution, nn.BatchNorm2d(width)]
    return nn.Sequential(*layers, activation()) if activation else nn.Sequential(*layers)


class Pooled(nn.Module):
    """classifier(mean over the image of features(x)), as in MobileNetV2 and EfficientNet."""

    def __init__(self, features: Sequence[nn.Module], classes: int) -> None:
        super().__init__()
        self.features, self.avgpool = nn.Sequential(*features), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, classes))

    def forward(self, x: Any) -> Any:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


class Inverted(nn.Module):
    """Wide inside, narrow between: 1x1, depthwise 3x3, 1x1."""

    def __init__(self, channels: int, width: int, stride: int, factor: int) -> None:
        super().__init__()
        inner = channels * factor
        layers = [block(channels, inner, 1, nn.ReLU6)] if factor > 1 else []
        layers += [block(inner, inner, 3, nn.ReLU6, stride, inner)]
        self.conv = nn.Sequential(*layers, nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))
        self.has_shortcut = stride == 1 and channels == width

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.has_shortcut else self.conv(x)


def mobilenet_v2(size: int = 224, classes: int = CLASSES) -> Pooled:  # noqa: ARG001  as the others
    """17 inverted residuals (Sandler et al. 2018, arXiv:1801.04381)."""
    layers: list[nn.Module] = [block(3, 32, 3, nn.ReLU6, 2)]
    channels = 32
    for factor, width, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    ):  # fmt: skip
        for i in range(count):
            layers.append(Inverted(channels, width, stride if i == 0 else 1, factor))
            channels = width
    return Pooled([*layers, block(320, 1280, 1, nn.ReLU6)], classes)


class Gate(nn.Module):
    """Squeeze and excitation (Hu et al. 2017, arXiv:1709.01507)."""

    def __init__(self, width: int, squeezed: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(width, squeezed, 1), nn.Conv2d(squeezed, width, 1)

    def forward(self, x: Any) -> Any:
        means = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.fc2(nn.functional.silu(self.fc1(means))))


class MBConv(nn.Module):
    """An inverted residual with a gate."""

    def __init__(self, channels: int, width: int, kernel: int, stride: int, factor: int) -> None:
        super().__init__()
        inner = channels * factor
        layers: list[nn.Module] = [block(channels, inner, 1, nn.SiLU)] if factor > 1 else []
        layers += [block(inner, inner, kernel, nn.SiLU, stride, inner), Gate(inner, channels // 4)]
        self.block = nn.Sequential(*layers, block(inner, width, 1, None))
        self.has_shortcut = stride == 1 and channels == width

    def forward(self, x: Any) -> Any:
        return x + self.block(x) if self.has_shortcut else self.block(x)


def efficientnet_b0(size: int = 224, classes: int = CLASSES) -> Pooled:  # noqa: ARG001  as the others
    """The network that was searched for (Tan and Le 2019, arXiv:1905.11946, table 1)."""
    stages: list[nn.Module] = [block(3, 32, 3, nn.SiLU, 2)]
    channels = 32
    for factor, kernel, width, count, stride in (
        (1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1), (6, 5, 192, 4, 2),
        (6, 3, 320, 1, 1),
    ):  # fmt: skip
        blocks = [MBConv(channels, width, kernel, stride, factor)]
        blocks += [MBConv(width, width, kernel, 1, factor) for _ in range(count - 1)]
        stages.append(nn.Sequential(*blocks))
        channels = width
    return Pooled([*stages, block(320, 1280, 1, nn.SiLU)], classes)


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of (N, C, H, W)."""

    def forward(self, x: Any) -> Any:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, LayerNorm over channels, two linear layers with GELU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer_scale = nn.Parameter(torch.full((width, 1, 1), 1e-6))
        self.block = nn.ModuleDict({
            "0": nn.Conv2d(width, width, 7, padding=3, groups=width),
            "2": nn.LayerNorm(width, eps=1e-6),
            "3": nn.Linear(width, 4 * width),
            "5": nn.Linear(4 * width, width),
        })  # fmt: skip

    def forward(self, x: Any) -> Any:
        y = self.block["2"](self.block["0"](x).permute(0, 2, 3, 1))
        y = self.block["5"](nn.functional.gelu(self.block["3"](y)))
        return x + self.layer_scale * y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Four stages of blocks (Liu et al. 2022, arXiv:2201.03545)."""

    def __init__(self, widths: Sequence[int], depths: Sequence[int], classes: int) -> None:
        super().__init__()
        features = [nn.Sequential(nn.Conv2d(3, widths[0], 4, stride=4), ChannelNorm(widths[0], eps=1e-6))]
        for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if i:
                before = widths[i - 1]
                halved = nn.Conv2d(before, width, 2, stride=2)
                features.append(nn.Sequential(ChannelNorm(before, eps=1e-6), halved))
            features.append(nn.Sequential(*[ConvNeXtBlock(width) for _ in range(depth)]))
        self.features, self.avgpool = nn.Sequential(*features), nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(ChannelNorm(widths[-1], eps=1e-6), nn.Flatten(), nn.Linear(widths[-1], classes))

    def forward(self, x: Any) -> Any:
        return self.classifier(self.avgpool(self.features(x)))


def convnext(size: int = 224, classes: int = CLASSES) -> ConvNeXt:  # noqa: ARG001  as the others
    """The smallest published, "atto": 2, 2, 6, 2 blocks of 40, 80, 160, 320 channels."""
    return ConvNeXt((40, 80, 160, 320), (2, 2, 6, 2), classes)


def convnext_tiny(size: int = 224, classes: int = CLASSES) -> ConvNeXt:  # noqa: ARG001  as the others
    """3, 3, 9, 3 blocks of 96, 192, 384, 768 channels."""
    return ConvNeXt((96, 192, 384, 768), (3, 3, 9, 3), classes)


class Attention(nn.Module):
    """Written out, with the parameters of nn.MultiheadAttention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads, self.each = width, heads, width // heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.randn(3 * width) * 0.02)  # not all alike: the exporter would see it
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(self, x: Any) -> Any:
        n, length = x.shape[0], x.shape[1]
        qkv = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        qkv = qkv.reshape(n, length, 3, self.heads, self.each).permute(2, 0, 3, 1, 4)
        query, key, value = qkv[0], qkv[1], qkv[2]
        weights = torch.softmax(query @ key.transpose(-2, -1) * self.each**-0.5, -1)
        return self.out_proj((weights @ value).transpose(1, 2).reshape(n, length, self.width))


class TransformerBlock(nn.Module):
    """Attention and two linear layers, each behind a norm and around it a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.self_attention = nn.LayerNorm(width, eps=1e-6), Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        dropout = nn.Identity()
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), dropout, nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class ViT(nn.Module):
    """12 layers of attention on patches of 16 x 16 (Dosovitskiy et al. 2020, arXiv:2010.11929)."""

    def __init__(self, size: int, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.conv_proj = nn.Conv2d(3, width, 16, stride=16)
        self.encoder = nn.Module()
        self.encoder.pos_embedding = nn.Parameter(torch.randn(1, (size // 16) ** 2 + 1, width) * 0.02)
        self.encoder.layers = nn.Sequential()
        for i in range(12):
            self.encoder.layers.add_module(f"encoder_layer_{i}", TransformerBlock(width, heads))
        self.encoder.ln = nn.LayerNorm(width, eps=1e-6)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(width, classes))

    def forward(self, x: Any) -> Any:
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.encoder.pos_embedding
        return self.heads(self.encoder.ln(self.encoder.layers(x))[:, 0])


def vit_tiny(size: int = 224, classes: int = CLASSES) -> ViT:
    """3 heads and 192 channels, the width of Touvron et al. 2020, arXiv:2012.12877."""
    return ViT(size, 192, 3, classes)
