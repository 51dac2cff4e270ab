"""Mixes two images and, in the same proportion, their labels: mixup and CutMix, with torchvision's names.

    images, labels = MixUp(num_classes=10)(images, labels)      # labels (N) become probabilities (N, num_classes)

Each image is mixed with the previous image in the batch. All images of a batch have the same share lambda.
`nn.CrossEntropyLoss` accepts these probabilities as targets.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import devices
from minorm.data.dataset import Array
from minorm.data.settings_repr import Shown
from minorm.devices import generators
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

MIXING = {
    "alpha": "the distribution's parameter, above 0: 1 draws lambda evenly, small values change most images little",
    "num_classes": "how many classes there are, at least 2",
}


class Mixing(Shown):
    """Base class. A subclass defines `mix`, which mixes two batches of images and returns the actual share lambda."""

    def __init__(self, alpha: float = 1.0, num_classes: int = 0) -> None:
        name = type(self).__name__
        if not alpha > 0:
            raise ValueError(f"{name}: alpha is {alpha}; expected a number above 0")
        if num_classes < 2:
            raise ValueError(f"{name}: num_classes is {num_classes}; expected at least 2")
        self.alpha, self.num_classes = float(alpha), int(num_classes)

    def __call__(self, images: Any, labels: Any, generator: Any = None) -> tuple[Any, Any]:
        """Return the mixed (images N x C x H x W, probabilities N x num_classes).

        The labels have shape (N). The results are Tensors if the arguments are Tensors.
        """
        x, y = (part.array if isinstance(part, Tensor) else np.asarray(part) for part in (images, labels))
        if x.ndim != 4 or x.dtype.kind in "iub" or y.shape != x.shape[:1]:
            raise ValueError(f"{type(self).__name__}: images are {x.dtype} of shape {x.shape} and labels have shape "
                             f"{y.shape}; expected floats (N, C, H, W) and (N)")  # fmt: skip
        if not devices.same_device(x, y):
            raise ValueError(f"{type(self).__name__}: images are on {devices.device_of(x)} and labels on "
                             f"{devices.device_of(y)}; expected one device")  # fmt: skip
        source = generators.source(generator)
        share = float(source.beta(self.alpha, self.alpha))
        with devices.on_device_of(x):
            mixed, share = self.mix(x, np.roll(x, 1, axis=0), share, source)
            exact = devices.constant_of(np.eye(self.num_classes, dtype=x.dtype), x)[y]
            soft = (share * exact + (1 - share) * np.roll(exact, 1, axis=0)).astype(x.dtype)
        wrapped = Tensor if isinstance(images, Tensor) else np.asarray
        return wrapped(mixed), wrapped(soft)

    def mix(self, x: Array, other: Array, share: float, source: Any) -> tuple[Array, float]:
        """Mix the images `x` and `other`. Return the mixed images, and the share that `x` has in them."""
        raise NotImplementedError(f"{type(self).__name__} has no mix")


@documented(MIXING)
class MixUp(Mixing):
    """images = lambda * x + (1 - lambda) * other, where other is the previous image in the batch.

    lambda is drawn from Beta(alpha, alpha). Labels are mixed in the same way.

    Called with (images N x C x H x W, labels N) it gives (images, probabilities N x num_classes).

    Example:
        >>> mix = mn.data.MixUp(alpha=1.0, num_classes=2)
        >>> images, probabilities = mix(mn.ones(4, 1, 2, 2), mn.tensor([0, 1, 0, 1]))
        >>> images.shape, probabilities.shape
        ((4, 1, 2, 2), (4, 2))

    Zhang et al. 2017, arXiv:1710.09412.
    """

    def mix(self, x: Array, other: Array, share: float, source: Any) -> tuple[Array, float]:  # noqa: ARG002
        """Return share * x + (1 - share) * other, and the share."""
        return (share * x + (1 - share) * other).astype(x.dtype), share


@documented(MIXING)
class CutMix(Mixing):
    """Pastes a rectangle of the previous image in the batch into each image, and mixes the labels by area.

    The rectangle has a share of 1 - lambda of the area, and lambda is drawn from Beta(alpha, alpha). Every element is
    equally likely to be the rectangle's centre. A part of the rectangle beyond the border is cut off, and its area does
    not count in the shares. Called with (images N x C x H x W, labels N) it gives (images, probabilities N x
    num_classes).

    Example:
        >>> mix = mn.data.CutMix(alpha=1.0, num_classes=2)
        >>> images, probabilities = mix(mn.ones(4, 1, 8, 8), mn.tensor([0, 1, 0, 1]))
        >>> images.shape, probabilities.sum(1)
        ((4, 1, 8, 8), tensor([1., 1., 1., 1.]))

    Yun et al. 2019, arXiv:1905.04899.
    """

    def mix(self, x: Array, other: Array, share: float, source: Any) -> tuple[Array, float]:
        """Return x with a rectangle of `other` pasted in, and the share of the area that x keeps."""
        height, width = x.shape[2:]
        half = 0.5 * np.sqrt(1 - share)
        y0, x0 = source.integers(height), source.integers(width)
        top, bottom = max(0, int(y0 - half * height)), min(height, int(y0 + half * height))
        left, right = max(0, int(x0 - half * width)), min(width, int(x0 + half * width))
        mixed = x.copy()
        mixed[:, :, top:bottom, left:right] = other[:, :, top:bottom, left:right]
        return mixed, 1 - (bottom - top) * (right - left) / (height * width)
