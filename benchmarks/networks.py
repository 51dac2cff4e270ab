"""Small networks that minorm/models lacks, written once for two libraries.

Every function takes the library it builds from: `vgg(minorm)` and `vgg(torch)` are the same network with the same
state_dict keys. All are for 3 x 32 x 32 images and 10 classes; `unet` gives a class a pixel, and `discriminator` takes
one of its ten logits as real or not, as the class-conditional ones do.
"""

from __future__ import annotations

from typing import Any

Library = Any  # minorm, torch


def _block(nn: Any, channels: int, width: int, kernel: int = 3, **options: Any) -> list[Any]:
    """A convolution that keeps the size at stride 1, BatchNorm, ReLU."""
    options = {"padding": kernel // 2, "bias": False, **options}
    return [nn.Conv2d(channels, width, kernel, **options), nn.BatchNorm2d(width), nn.ReLU()]


def _head(nn: Any, width: int) -> list[Any]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]


def depthwise(library: Library) -> Any:
    """Depthwise-separable convolutions, as in MobileNet (Howard et al. 2017, arXiv:1704.04861)."""
    nn = library.nn
    layers = _block(nn, 3, 32)
    for channels, width, stride in ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)):
        layers += _block(nn, channels, channels, stride=stride, groups=channels) + _block(nn, channels, width, 1)
    return nn.Sequential(*layers, *_head(nn, 256))


def vgg(library: Library) -> Any:
    """Pairs of 3x3 convolutions and a pooling, as in VGG (Simonyan and Zisserman 2014, arXiv:1409.1556)."""
    nn = library.nn
    layers = []
    for channels, width in ((3, 32), (32, 64), (64, 128)):
        layers += [*_block(nn, channels, width), *_block(nn, width, width), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 128), nn.ReLU(), nn.Linear(128, 10))


def unet(library: Library) -> Any:
    """Two halvings, two doublings, and skip connections between them (Ronneberger et al. 2015, arXiv:1505.04597)."""
    nn = library.nn

    class UNet(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(*_block(nn, 3, 16), *_block(nn, 16, 16))
            self.second = nn.Sequential(nn.MaxPool2d(2), *_block(nn, 16, 32), *_block(nn, 32, 32))
            self.bottom = nn.Sequential(nn.MaxPool2d(2), *_block(nn, 32, 64), nn.ConvTranspose2d(64, 32, 2, stride=2))
            self.up = nn.Sequential(*_block(nn, 64, 32), nn.ConvTranspose2d(32, 16, 2, stride=2))
            self.last = nn.Sequential(*_block(nn, 32, 16), nn.Conv2d(16, 10, 1))

        def forward(self, x: Any) -> Any:
            large = self.first(x)
            small = self.second(large)
            x = self.up(library.cat([self.bottom(small), small], 1))
            return self.last(library.cat([x, large], 1))

    return UNet()


def densenet(library: Library) -> Any:
    """Each layer reads all before it (Huang et al. 2016, arXiv:1608.06993): two dense blocks of four layers."""
    nn = library.nn

    class Dense(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.layer = nn.Sequential(
                nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 12, 3, padding=1, bias=False)
            )

        def forward(self, x: Any) -> Any:
            return library.cat([x, self.layer(x)], 1)

    def dense(channels: int) -> list[Any]:
        return [Dense(channels + 12 * i) for i in range(4)]

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False), *dense(16), *_block(nn, 64, 32, 1), nn.AvgPool2d(2), *dense(32),
        nn.BatchNorm2d(80), nn.ReLU(), *_head(nn, 80),
    )  # fmt: skip


def convmixer(library: Library) -> Any:
    """Patches, then depthwise 5x5 with a residual and pointwise (Trockman and Kolter 2022, arXiv:2201.09792)."""
    nn = library.nn

    class Residual(nn.Module):  # type: ignore[misc, name-defined]  # whichever library is asked for
        def __init__(self, width: int) -> None:
            super().__init__()
            depthwise = nn.Conv2d(width, width, 5, groups=width, padding=2)
            self.body = nn.Sequential(depthwise, nn.GELU(), nn.BatchNorm2d(width))

        def forward(self, x: Any) -> Any:
            return self.body(x) + x

    layers = [nn.Conv2d(3, 96, 2, stride=2), nn.GELU(), nn.BatchNorm2d(96)]
    for _ in range(4):
        layers += [Residual(96), nn.Conv2d(96, 96, 1), nn.GELU(), nn.BatchNorm2d(96)]
    return nn.Sequential(*layers, *_head(nn, 96))


def discriminator(library: Library) -> Any:
    """A GAN's discriminator (Radford et al. 2015, arXiv:1511.06434): 4x4 convolutions of stride 2, LeakyReLU."""
    nn = library.nn
    layers = [nn.Conv2d(3, 32, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
    for channels, width in ((32, 64), (64, 128)):
        layers += [
            nn.Conv2d(channels, width, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.LeakyReLU(0.2)
        ]  # fmt: skip
    return nn.Sequential(*layers, nn.Conv2d(128, 10, 4), nn.Flatten())
