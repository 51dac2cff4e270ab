"""Networks for images of 224 x 224 pixels and 1000 classes, written once for two libraries, as benchmarks/networks.py.

Every function takes the library it builds from and the size of the images: `resnet18(torch, 224)`.
"""

from __future__ import annotations

from typing import Any

Library = Any  # minorm, torch

CLASSES = 1000


def resnet18(library: Library, size: int = 224) -> Any:  # noqa: ARG001  as the others
    """Two blocks of two 3x3 convolutions at each of four resolutions (He et al. 2015, arXiv:1512.03385)."""
    nn = library.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        def __init__(self, channels: int, width: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
            )  # fmt: skip
            self.shortcut = nn.Sequential()
            if stride != 1:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
                )
            self.activation = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.activation(self.body(x) + self.shortcut(x))

    layers = [nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers += [nn.MaxPool2d(3, stride=2, padding=1)]
    for channels, width, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(channels, width, stride), Block(width, width, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def mobilenet_v2(library: Library, size: int = 224) -> Any:  # noqa: ARG001  as the others
    """Wide inside, narrow between: 1x1, depthwise 3x3, 1x1 (Sandler et al. 2018, arXiv:1801.04381)."""
    nn = library.nn

    def block(channels: int, width: int, kernel: int = 1, **options: Any) -> list[Any]:
        convolution = nn.Conv2d(channels, width, kernel, padding=kernel // 2, bias=False, **options)
        return [convolution, nn.BatchNorm2d(width), nn.ReLU6()]

    class Inverted(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        def __init__(self, channels: int, width: int, stride: int, factor: int) -> None:
            super().__init__()
            inner = channels * factor
            layers = block(channels, inner) if factor > 1 else []
            layers += block(inner, inner, 3, stride=stride, groups=inner)
            self.body = nn.Sequential(*layers, nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))
            self.has_shortcut = stride == 1 and channels == width

        def forward(self, x: Any) -> Any:
            return x + self.body(x) if self.has_shortcut else self.body(x)

    layers, channels = block(3, 32, 3, stride=2), 32
    for factor, width, count, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    ):  # fmt: skip
        for i in range(count):
            layers.append(Inverted(channels, width, stride if i == 0 else 1, factor))
            channels = width
    layers += block(320, 1280)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, CLASSES))


def convnext(library: Library, size: int = 224) -> Any:  # noqa: ARG001  as the others
    """Depthwise 7x7, LayerNorm over channels, two linear layers with GELU (Liu et al. 2022, arXiv:2201.03545).

    The smallest published, "atto": 2, 2, 6, 2 blocks of 40, 80, 160, 320 channels.
    """
    nn = library.nn

    class Norm(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        """LayerNorm over the channels of (N, C, H, W)."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width, eps=1e-6)

        def forward(self, x: Any) -> Any:
            return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    class Block(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        def __init__(self, width: int) -> None:
            super().__init__()
            self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            self.norm = nn.LayerNorm(width, eps=1e-6)
            self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.scale = nn.Parameter(library.full((width,), 1e-1))

        def forward(self, x: Any) -> Any:
            y = self.body(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
            return x + (self.scale * y).permute(0, 3, 1, 2)

    layers = [nn.Conv2d(3, 40, 4, stride=4), Norm(40)]
    for width, count in ((40, 2), (80, 2), (160, 6), (320, 2)):
        if width > 40:
            layers += [Norm(width // 2), nn.Conv2d(width // 2, width, 2, stride=2)]
        layers += [Block(width) for _ in range(count)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(320, eps=1e-6), nn.Linear(320, CLASSES)]
    return nn.Sequential(*layers, *head)


def vit_tiny(library: Library, size: int = 224) -> Any:
    """12 layers of attention with 3 heads and 192 channels on patches of 16 x 16 (Dosovitskiy et al. 2020,
    arXiv:2010.11929; the small widths are of Touvron et al. 2020, arXiv:2012.12877).
    """
    nn = library.nn
    width, heads, tokens = 192, 3, (size // 16) ** 2

    class Attention(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.softmax = nn.Softmax(-1)
            self.out = nn.Linear(width, width)

        def forward(self, x: Any) -> Any:
            n, length = x.shape[0], x.shape[1]
            qkv = self.qkv(x).reshape(n, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            query, key, value = qkv[0], qkv[1], qkv[2]
            weights = self.softmax(query @ key.transpose(-2, -1) * (width // heads) ** -0.5)
            return self.out((weights @ value).transpose(1, 2).reshape(n, length, width))

    class Block(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        def __init__(self) -> None:
            super().__init__()
            self.first, self.attention = nn.LayerNorm(width, eps=1e-6), Attention()
            self.second = nn.LayerNorm(width, eps=1e-6)
            self.body = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.first(x))
            return x + self.body(self.second(x))

    class ViT(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, 16, stride=16)
            self.token = nn.Parameter(library.zeros(1, 1, width))
            self.position = nn.Parameter(library.zeros(1, tokens + 1, width))
            self.blocks = nn.Sequential(*[Block() for _ in range(12)])
            self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = library.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
            return self.head(self.norm(self.blocks(x))[:, 0])

    return ViT()
