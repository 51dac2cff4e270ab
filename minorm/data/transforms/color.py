"""Transforms that change pixels' numbers: scale, grey, brightness, contrast, saturation and hue.

Colours are red, green and blue between 0 and 1. Grey is 0.2989 red + 0.587 green + 0.114 blue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.data.argument_texts import TRANSFORM
from minorm.data.dataset import Array
from minorm.data.transforms.argument_checks import (
    around,
    by_channel,
    check_channels,
    check_probability,
    interval,
    is_number,
)
from minorm.data.transforms.transform import Generator, ImageTransform, check_floats
from minorm.support.documented import documented

GREY = np.array([0.2989, 0.587, 0.114])


@documented(
    TRANSFORM,
    mean="the number to subtract, one for all channels or one for each",
    std="the number to divide by, one for all channels or one for each",
)
class Normalize(ImageTransform):
    """y = (images - mean) / std, with one number for all channels or one for each channel.

    Raises TypeError for integers, and ValueError for another number of channels.

    Example:
        >>> mn.data.transforms.Normalize(mean=0.5, std=0.25)(mn.tensor([[[0.5, 1.0]]]))
        tensor([[[0., 2.]]])
    """

    def __init__(
        self, mean: float | Sequence[float], std: float | Sequence[float], inplace: bool = False  # noqa: ARG002
    ) -> None:  # fmt: skip
        self.mean = by_channel("Normalize", "mean", mean).reshape(-1, 1, 1)
        self.std = by_channel("Normalize", "std", std).reshape(-1, 1, 1)
        if not (np.isfinite(self.mean).all() and np.isfinite(self.std).all() and (self.std > 0).all()):
            raise ValueError(f"Normalize: mean={mean}, std={std}; expected finite numbers, and std above 0")

    def apply(self, images: Array, generator: Generator) -> Array:  # noqa: ARG002
        """Return the normalized images, in their own float type."""
        check_floats("Normalize", images)
        for name, values in (("mean", self.mean), ("std", self.std)):
            check_channels("Normalize", name, values, images)
        centered = images - self.mean.astype(images.dtype)
        centered /= self.std.astype(images.dtype)
        return centered

    def __repr__(self) -> str:
        mean, std = (values.ravel().tolist() for values in (self.mean, self.std))
        return f"Normalize(mean={mean}, std={std})"


@documented(TRANSFORM, num_output_channels="the number of channels of the result: 1, or 3 equal channels")
class Grayscale(ImageTransform):
    """y = 0.2989 red + 0.587 green + 0.114 blue: turns colours to grey.

    Integers are truncated, not rounded, as in torchvision. Raises ValueError unless there are 1 or 3 channels.

    Example:
        >>> mn.data.transforms.Grayscale()(mn.ones(2, 3, 4, 4)).shape
        (2, 1, 4, 4)
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ValueError(f"Grayscale: num_output_channels={num_output_channels!r}; expected 1 or 3")
        self.num_output_channels = int(num_output_channels)

    def apply(self, images: Array, generator: Generator) -> Array:  # noqa: ARG002
        """Return the grey images, in their own type; integers are truncated, not rounded, as in torchvision."""
        return np.repeat(grey("Grayscale", images), self.num_output_channels, axis=1)


@documented(TRANSFORM)
class RandomGrayscale(ImageTransform):
    """Turns each image grey with probability p. Images keep their number of channels.

    Example:
        >>> mn.data.transforms.RandomGrayscale(p=1.0)(mn.tensor([[[1.0]], [[0.0]], [[0.0]]])).reshape(-1)
        tensor([0.2989, 0.2989, 0.2989])
    """

    def __init__(self, p: float = 0.1) -> None:
        self.p = check_probability("RandomGrayscale", p)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw which images to change, and turn them grey."""
        chosen = generator.random(len(images)) < self.p
        found = images.copy()
        found[chosen] = grey("RandomGrayscale", images[chosen])
        return found


@documented(
    {},
    brightness="(a, b), the range from which f is drawn, or d for the range (max(0, 1 - d), 1 + d)",
    contrast="(a, b), the range from which f is drawn, or d for the range (max(0, 1 - d), 1 + d)",
    saturation="(a, b), the range from which f is drawn, or d for the range (max(0, 1 - d), 1 + d)",
    hue="(a, b), the range within -0.5 to 0.5 from which f is drawn, or d for the range (-d, d)",
)
class ColorJitter(ImageTransform):
    """Changes brightness, contrast, saturation and hue of each image by random factors, in a random order.

        brightness   images * f
        contrast     f * images + (1 - f) * the mean of the grey image
        saturation   f * images + (1 - f) * the grey image
        hue          the colour turned by f of the colour circle

    Results are clipped to 0 to 1. Saturation and hue do not change images of one channel. Raises TypeError for
    integers.

    Example:
        >>> mn.data.transforms.ColorJitter(brightness=(0.5, 0.5))(mn.ones(1, 1, 1, 2))
        tensor([[[[0.5, 0.5]]]])
    """

    def __init__(self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0) -> None:
        self.brightness, self.contrast = _factors("brightness", brightness), _factors("contrast", contrast)
        self.saturation = _factors("saturation", saturation)
        self.hue = interval("ColorJitter", "hue", (-hue, hue) if is_number(hue) else hue, -0.5, 0.5)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw new factors for each image, and apply them."""
        check_floats("ColorJitter", images)
        check_colors("ColorJitter", images)
        ranges = (self.brightness, self.contrast, self.saturation, self.hue)
        found = images.copy()
        for image in found:
            factors = [generator.uniform(low, high) for low, high in ranges]
            for which in generator.permutation(4):
                if ranges[which] != ((0, 0) if which == 3 else (1, 1)):
                    image[...] = CHANGES[which](image, factors[which])
        return found


def brightened(image: Array, f: float) -> Array:
    """Return f * image, clipped to 0 to 1."""
    return _mixed(image, 0.0, f)


def contrasted(image: Array, f: float) -> Array:
    """Return f * image + (1 - f) * (the mean of the grey image), clipped to 0 to 1."""
    return _mixed(image, _grey_of(image).mean(dtype=np.float64), f)


def saturated(image: Array, f: float) -> Array:
    """Return f * image + (1 - f) * (the grey image), clipped to 0 to 1."""
    return image if len(image) == 1 else _mixed(image, _grey_of(image), f)


def hued(image: Array, f: float) -> Array:
    """Return the image with its hue h turned by f of a full turn; saturation s and value v are from 0 to 1.

    channel = v * (1 - s * max(0, min(k, 4 - k, 1)))  with  k = (n + 6 h) mod 6  and  n = 5, 3, 1 for red, green, blue
    """
    if len(image) == 1:
        return image
    wide = image.astype(np.float64)
    red, green, blue = wide
    value, least = wide.max(0), wide.min(0)
    span = value - least
    part = np.where(span > 0, span, 1)
    sixth = np.where(value == red, (green - blue) / part,
                     np.where(value == green, 2 + (blue - red) / part, 4 + (red - green) / part))  # fmt: skip
    k = (np.array([5.0, 3.0, 1.0]).reshape(3, 1, 1) + sixth + 6 * f) % 6
    turned = value - span * np.clip(np.minimum(k, 4 - k), 0, 1)
    return turned.astype(image.dtype)


CHANGES = (brightened, contrasted, saturated, hued)


def check_colors(name: str, images: Array) -> None:
    """Raise ValueError unless there are 1 or 3 channels."""
    if images.shape[1] not in (1, 3):
        raise ValueError(f"{name}: images have shape {images.shape}; expected 1 or 3 channels")


def grey(name: str, images: Array) -> Array:
    """Return the grey images, N x 1 x H x W; raise ValueError unless there are 1 or 3 channels."""
    check_colors(name, images)
    return _grey_of(images).astype(images.dtype, copy=False)


def _grey_of(images: Array) -> Array:
    """Return the grey channel of one image or of a batch."""
    if images.shape[-3] == 1:
        return images
    red, green, blue = (images[..., i : i + 1, :, :] for i in range(3))
    weights = GREY.astype(images.dtype if images.dtype.kind == "f" else np.float64)
    return weights[0] * red + weights[1] * green + weights[2] * blue


def _mixed(image: Array, other: Any, f: float) -> Array:
    return np.clip(f * image + (1 - f) * other, 0, 1).astype(image.dtype)


def _factors(argument: str, value: Any) -> tuple[float, float]:
    return around("ColorJitter", argument, value, 1, 0)
