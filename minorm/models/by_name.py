"""Builds a network by its name, which `minorm train --model` and checkpoints use, for images of a given form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minorm import nn as minorm_nn
from minorm.models.convnext import convnext_tiny
from minorm.models.efficientnet import efficientnet_b0
from minorm.models.mobilenet import mobilenet_v2
from minorm.models.resnet import resnet18, resnet34, resnet50
from minorm.models.small import NETWORK, Namespace, digits_cnn, lenet, norms_cnn, resnet20
from minorm.models.vision_transformer import vit_tiny
from minorm.support.documented import documented


def _of_torchvision(make: Callable[..., Any], sized: bool = False) -> Callable[..., Any]:
    """Return a function with the arguments of `build` that calls `make`; if `sized`, it also passes the image size."""

    def built(nn: Namespace = minorm_nn, channels: int = 3, size: int = 224, classes: int = 1000) -> Any:
        if nn is not minorm_nn:
            raise ValueError(f"build: nn is {nn!r}; expected minorm.nn, because {make.__name__} exists only with "
                             "minorm's layers; for PyTorch use torchvision's network, whose state_dict has the same "
                             "keys")  # fmt: skip
        return make(num_classes=classes, channels=channels, **({"image_size": size} if sized else {}))

    return built


BY_NAME: Mapping[str, Callable[..., Any]] = {
    "digits": digits_cnn,
    "lenet": lenet,
    "resnet20": resnet20,
    "norms": norms_cnn,
    "resnet18": _of_torchvision(resnet18),
    "resnet34": _of_torchvision(resnet34),
    "resnet50": _of_torchvision(resnet50),
    "mobilenet_v2": _of_torchvision(mobilenet_v2),
    "efficientnet_b0": _of_torchvision(efficientnet_b0),
    "convnext_tiny": _of_torchvision(convnext_tiny),
    "vit_tiny": _of_torchvision(vit_tiny, sized=True),
}
# The side of the smallest images that each network can take.
SMALLEST = dict.fromkeys(BY_NAME, 1) | {"digits": 4, "lenet": 12, "norms": 4, "convnext_tiny": 32, "vit_tiny": 16}
PATCHES = {"vit_tiny": 16}  # the side of images must be a multiple of this


@documented(NETWORK, name="the network's name, such as lenet or resnet18")
def build(name: str, channels: int, size: int, classes: int, nn: Namespace = minorm_nn) -> Any:
    """Return the network `name` for images of `size` x `size` pixels.

    Raises ValueError if the name or the size is wrong.

    Example:
        >>> model = mn.models.build("lenet", channels=1, size=28, classes=10)
        >>> model(mn.randn(2, 1, 28, 28)).shape
        (2, 10)
    """
    if name not in BY_NAME:
        raise ValueError(f"build: there is no model {name!r}; expected one of {', '.join(BY_NAME)}")
    if not _takes(name, size):
        patch = PATCHES.get(name)
        needed = "" if patch is None else f", a multiple of {patch}"
        raise ValueError(
            f"build: {name} needs images of at least {SMALLEST[name]} x {SMALLEST[name]} pixels{needed}; the images "
            f"have {size} x {size}; expected one of {', '.join(n for n in BY_NAME if _takes(n, size))}"
        )
    return BY_NAME[name](nn, channels=channels, size=size, classes=classes)


def _takes(name: str, size: int) -> bool:
    return size >= SMALLEST[name] and size % PATCHES.get(name, 1) == 0
