"""Count the parameters that a model of `minorm.models` would have, without making them.

A checkpoint states the sizes of its model, and its file must hold the model's weights. A model that needs more bytes
than the file has is refused before any layer is made.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from minorm import models, nn

SMALLEST_WEIGHT = 2  # bytes: a weight has at least 16 bits


class Counted(nn.Module):
    """A layer that has no parameters; it only stores how many parameters the real layer would have."""

    def __init__(self, count: int = 0) -> None:
        super().__init__()
        self.count = count


class Namespace:
    """Replaces `minorm.nn` when a network is built. Its layers only count the parameters that they would have."""

    Module, Sequential = nn.Module, nn.Sequential

    @staticmethod
    def Conv2d(channels: int, width: int, kernel: int, *, bias: bool = True, **_: Any) -> Counted:
        """Count a kernel for each pair of input and output channel, and the bias."""
        return Counted(channels * width * kernel * kernel + width * bias)

    @staticmethod
    def Linear(inputs: int, outputs: int, bias: bool = True) -> Counted:
        """Count the matrix and the bias."""
        return Counted(inputs * outputs + outputs * bias)

    @staticmethod
    def LayerNorm(shape: Sequence[int]) -> Counted:
        """Return the number of parameters: a weight and a bias of this shape."""
        return Counted(2 * math.prod(shape))

    @staticmethod
    def GroupNorm(groups: int, channels: int) -> Counted:  # noqa: ARG004
        """Count weight and bias for each channel."""
        return Counted(2 * channels)

    @staticmethod
    def BatchNorm2d(channels: int, **_: Any) -> Counted:
        """Count weight and bias for each channel."""
        return Counted(2 * channels)

    BatchNorm1d = InstanceNorm2d = BatchNorm2d

    @staticmethod
    def ReLU(*_: Any) -> Counted:
        """Count no parameters."""
        return Counted()

    MaxPool2d = AdaptiveAvgPool2d = Flatten = Identity = ReLU


# The networks with torchvision's keys, for 3 channels, 1000 classes and 224 x 224 pixels: the number of parameters,
# how many of these belong to each input channel, and the number of features that the head takes.
PUBLISHED = {
    "resnet18": (11_689_512, 64 * 7 * 7, 512),
    "resnet34": (21_797_672, 64 * 7 * 7, 512),
    "resnet50": (25_557_032, 64 * 7 * 7, 2048),
    "mobilenet_v2": (3_504_872, 32 * 3 * 3, 1280),
    "efficientnet_b0": (5_288_548, 32 * 3 * 3, 1280),
    "convnext_tiny": (28_589_128, 96 * 4 * 4, 768),
    "vit_tiny": (5_717_416, 192 * 16 * 16, 192),
}
POSITIONS = {"vit_tiny": (16, 192)}  # the side of a patch, and the features of its position


def parameters(name: str, channels: int, size: int, classes: int) -> int:
    """Return the number of parameters of the model that `models.build` makes from these arguments."""
    if name in PUBLISHED:
        count, each_channel, features = PUBLISHED[name]
        count += (channels - 3) * each_channel + (classes - 1000) * (features + 1)
        if name in POSITIONS:
            patch, width = POSITIONS[name]
            count += ((size // patch) ** 2 - (224 // patch) ** 2) * width
        return count
    layers = models.build(name, channels, size, classes, Namespace).modules()
    return sum(layer.count for layer in layers if isinstance(layer, Counted))


def check(facts: Mapping[str, Any], path: str) -> None:
    """Raise ValueError if the file at `path` is too small for the weights of the model in its facts."""
    count = parameters(**{key: facts[key] for key in ("name", "channels", "size", "classes")})
    there = os.path.getsize(path)
    if count * SMALLEST_WEIGHT > there:
        raise ValueError(f"{path}: its model is {facts['name']} with channels={facts['channels']}, "
                         f"size={facts['size']} and classes={facts['classes']}, of {count:,} parameters; a file of "
                         f"{there:,} bytes cannot hold them")  # fmt: skip
