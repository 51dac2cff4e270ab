"""Networks for small images, which the demo, examples, tests and benchmarks use; minorm or PyTorch can build them.

Every function gets the namespace `nn` of its layers. `lenet(minorm.nn)` and `lenet(torch.nn)` are the same network with
the same state_dict keys. So each of these two networks can load the weights of the other, and their training steps can
be compared.

Convolutions before a normalization have no bias, because the normalization would subtract the bias.
"""

from __future__ import annotations

from typing import Any

from minorm import nn as minorm_nn
from minorm.support.documented import documented

Namespace = Any  # minorm.nn, torch.nn
NETWORK = {
    "nn": "the library whose layers the network uses: minorm.nn or torch.nn",
    "channels": "the number of channels of the images, 3 for colours",
    "size": "the height and width of the images",
    "classes": "the number of logits for each image",
}


@documented(NETWORK)
def digits_cnn(nn: Namespace = minorm_nn, channels: int = 1, size: int = 8, classes: int = 10) -> Any:
    """Three 3x3 convolutions with BatchNorm and two poolings: 25,000 weights for scikit-learn's 8x8 digits.

    Example:
        >>> model = mn.models.digits_cnn(classes=7)
        >>> model(mn.randn(2, 1, 8, 8)).shape
        (2, 7)
    """
    return nn.Sequential(
        *_conv_bn_relu(nn, channels, 16, 3),
        *_conv_bn_relu(nn, 16, 32, 3),
        nn.MaxPool2d(2),
        *_conv_bn_relu(nn, 32, 64, 3),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * (size // 4) ** 2, classes),
    )


@documented(NETWORK)
def lenet(nn: Namespace = minorm_nn, channels: int = 1, size: int = 28, classes: int = 10) -> Any:
    """LeNet (LeCun et al. 1998) in a wider form, with ReLU, max pooling, and BatchNorm after every layer but the last.

    Example:
        >>> model = mn.models.lenet(classes=7)
        >>> model(mn.randn(2, 1, 28, 28)).shape
        (2, 7)
    """
    left = (size // 2 - 4) // 2  # the first convolution keeps the size, the second takes 4, each pooling halves
    return nn.Sequential(
        *_conv_bn_relu(nn, channels, 20, 5),
        nn.MaxPool2d(2),
        *_conv_bn_relu(nn, 20, 50, 5, padding=0),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(50 * left * left, 500, bias=False),
        nn.BatchNorm1d(500),
        nn.ReLU(),
        nn.Linear(500, classes),
    )


@documented(NETWORK)
def resnet20(
    nn: Namespace = minorm_nn,
    channels: int = 3,
    size: int = 32,  # noqa: ARG001  any size will do: the last pooling averages all that is left
    classes: int = 10,
) -> Any:
    """ResNet-20 for small images (He et al. 2015, arXiv:1512.03385); shortcuts that change sizes are 1x1 convolutions.

    Example:
        >>> model = mn.models.resnet20(classes=7)
        >>> model(mn.randn(2, 3, 32, 32)).shape
        (2, 7)
    """
    return nn.Sequential(
        *_conv_bn_relu(nn, channels, 16, 3),
        *[_residual(nn, 16, 16) for _ in range(3)],
        _residual(nn, 16, 32, stride=2),
        *[_residual(nn, 32, 32) for _ in range(2)],
        _residual(nn, 32, 64, stride=2),
        *[_residual(nn, 64, 64) for _ in range(2)],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


@documented(NETWORK)
def norms_cnn(nn: Namespace = minorm_nn, channels: int = 3, size: int = 32, classes: int = 10) -> Any:
    """A network without BatchNorm: GroupNorm, InstanceNorm or LayerNorm follows each of its three convolutions.

    Example:
        >>> model = mn.models.norms_cnn(classes=7)
        >>> model(mn.randn(2, 3, 32, 32)).shape
        (2, 7)
    """
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1, bias=False),
        nn.GroupNorm(8, 32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.InstanceNorm2d(64, affine=True),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1, bias=False),
        nn.LayerNorm([64, size // 4, size // 4]),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


def _conv_bn_relu(nn: Namespace, channels: int, width: int, kernel: int, padding: int | None = None) -> list[Any]:
    """Return a convolution, BatchNorm and ReLU; the convolution keeps the size unless `padding` is given."""
    padding = kernel // 2 if padding is None else padding
    return [nn.Conv2d(channels, width, kernel, padding=padding, bias=False), nn.BatchNorm2d(width), nn.ReLU()]


def _residual(nn: Namespace, channels: int, width: int, stride: int = 1) -> Any:
    """relu(norm(body(x)) + shortcut(x))."""

    class Residual(nn.Module):  # type: ignore[misc]  # the base is whichever library's
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, bias=False),
            )
            self.norm = nn.BatchNorm2d(width)
            self.shortcut = nn.Identity()
            if stride != 1 or channels != width:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
                )

        def forward(self, x: Any) -> Any:
            y, shortcut = self.body(x), self.shortcut(x)
            if nn is minorm_nn:  # in one pass
                return self.norm(y, activation="relu", residual=shortcut)
            return (self.norm(y) + shortcut).relu()

    return Residual()
