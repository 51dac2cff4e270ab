"""Augmentations that need no choices for a data set: they draw a few of fourteen changes for each image.

    Identity  ShearX  ShearY  TranslateX  TranslateY  Rotate  Brightness  Color  Contrast  Sharpness
    Posterize  Solarize  AutoContrast  Equalize

These changes are torchvision's. The strength of a change is taken from a list of magnitudes. The changes ShearX to
Sharpness, in the first line of the table, have a negative strength in half of the cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from minorm.data.argument_texts import WARP
from minorm.data.dataset import Array
from minorm.data.transforms import tones
from minorm.data.transforms.argument_checks import by_channel, whole
from minorm.data.transforms.color import brightened, check_colors, contrasted, saturated
from minorm.data.transforms.transform import Generator, ImageTransform, check_floats
from minorm.data.transforms.warping import Fill, filling, linear, mode, warped
from minorm.support.documented import documented

Space: TypeAlias = dict[str, tuple[Array, bool]]  # an operation's magnitudes, and whether it gets a minus half the time
MAGNITUDES = WARP | {
    "num_magnitude_bins": "how many magnitudes there are, at least 2",
    "fill": "the value outside the image: one number, or a number for each channel; None is 0",
}


class AutoAugment(ImageTransform):
    """Base class. A subclass defines the operations in `space`, and draws from these operations in `apply`."""

    def __init__(self, num_magnitude_bins: int, interpolation: str, fill: Fill | None) -> None:
        name = type(self).__name__
        self.num_magnitude_bins = whole(name, "num_magnitude_bins", num_magnitude_bins, 2)
        self.interpolation, self.fill = mode(name, interpolation), fill
        if fill is not None:
            by_channel(name, "fill", fill)

    def space(self, height: int, width: int) -> Space:
        """Return the operations with their magnitudes for images of `height` x `width` pixels."""
        raise NotImplementedError(f"{type(self).__name__} has no space")

    def check(self, images: Array) -> None:
        """Raise an error unless the images are floats without NaN, grey or RGB."""
        name = type(self).__name__
        check_floats(name, images)
        check_colors(name, images)
        if np.isnan(images).any():
            raise ValueError(f"{name}: the images have NaN; expected numbers from 0 to 1")

    def changed(self, images: Array, bins: Array, generator: Generator) -> Array:
        """Draw an operation for each image, and apply this operation.

        `bins` has the number of a magnitude for each image: the position in the operation's list of magnitudes.
        """
        space = list(self.space(*images.shape[2:]).items())
        which = generator.integers(len(space), size=len(images))
        signs = 1 - 2 * generator.integers(2, size=len(images))
        found = images.copy()
        for number in np.unique(which):
            name, (magnitudes, signed) = space[number]
            mine = which == number
            values = magnitudes[bins[mine]] * (signs[mine] if signed else 1)
            found[mine] = self._operate(name, images[mine], values)
        return found

    def _operate(self, name: str, images: Array, values: Array) -> Array:
        if name in TONES:
            return np.concatenate(
                [TONES[name](image[None], value) for image, value in zip(images, values, strict=True)]
            )
        if name == "Identity":
            return images
        maps, moves = np.tile(np.eye(2), (len(images), 1, 1)), np.zeros((len(images), 2))
        center = None
        fill = filling(type(self).__name__, 0 if self.fill is None else self.fill, images)
        if name.startswith("Shear"):  # the corner stays
            maps[:, *((0, 1) if name == "ShearX" else (1, 0))], center = -values, (0, 0)
        elif name.startswith("Translate"):
            moves[:, 0 if name == "TranslateX" else 1] = np.trunc(values)
        else:
            maps = np.stack([linear(-angle) for angle in values])
        return warped(images, maps, moves, center, self.interpolation, fill)


@documented(
    MAGNITUDES,
    num_ops="how many changes each image gets, one after the other",
    magnitude="how strong the changes are, from 0 to num_magnitude_bins - 1",
)
class RandAugment(AutoAugment):
    """Applies `num_ops` of fourteen changes (shears, turns, tones and more) to each image, all with the same strength.

    Images are floats from 0 to 1 with 1 or 3 channels, so use it before Normalize. Raises TypeError for integers, and
    ValueError for a magnitude that is not among the bins. The operations and their ranges are torchvision's.

    Example:
        >>> mn.data.transforms.RandAugment(num_ops=2, magnitude=9)(mn.ones(2, 3, 8, 8)).shape
        (2, 3, 8, 8)

    Cubuk et al. 2019, arXiv:1909.13719.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: str = "nearest",
        fill: Fill | None = None,
    ) -> None:
        super().__init__(num_magnitude_bins, interpolation, fill)
        self.num_ops = whole("RandAugment", "num_ops", num_ops, 0)
        self.magnitude = whole("RandAugment", "magnitude", magnitude, 0)
        if magnitude >= num_magnitude_bins:
            raise ValueError(f"RandAugment: magnitude={magnitude}; expected less than num_magnitude_bins, "
                             f"{num_magnitude_bins}")  # fmt: skip

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw new changes for each image, and apply them."""
        self.check(images)
        for _ in range(self.num_ops):
            images = self.changed(images, np.full(len(images), self.magnitude), generator)
        return images.copy() if self.num_ops == 0 else images

    def space(self, height: int, width: int) -> Space:
        """Return the operations with their magnitudes for images of `height` x `width` pixels."""
        far = 150 / 331  # of width and height
        return _space(self.num_magnitude_bins, 0.3, (far * width, far * height), 30, 0.9, 4)


@documented(MAGNITUDES)
class TrivialAugmentWide(AutoAugment):
    """Applies one of fourteen changes to each image, with a strength drawn from a wide range; it needs no tuning.

    Images are floats from 0 to 1 with 1 or 3 channels, so use it before Normalize. Raises TypeError for integers. The
    operations and their ranges are torchvision's: images of any size may move by up to 32 pixels.

    Example:
        >>> mn.data.transforms.TrivialAugmentWide()(mn.ones(2, 3, 8, 8)).shape
        (2, 3, 8, 8)

    Müller and Hutter 2021, arXiv:2103.10158.
    """

    def __init__(self, num_magnitude_bins: int = 31, interpolation: str = "nearest", fill: Fill | None = None) -> None:
        super().__init__(num_magnitude_bins, interpolation, fill)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw a new change for each image, and apply it."""
        self.check(images)
        bins = generator.integers(self.num_magnitude_bins, size=len(images))
        return self.changed(images, bins, generator)

    def space(self, height: int, width: int) -> Space:  # noqa: ARG002
        """Return the operations and their magnitudes, which do not depend on the images' size."""
        return _space(self.num_magnitude_bins, 0.99, (32, 32), 135, 0.99, 6)


def _space(bins: int, shear: float, far: tuple[float, float], degrees: float, tone: float, bits: int) -> Space:
    """Return the operations with their lists of magnitudes, which go from 0 to the given limits.

    Posterize drops at most `bits` of 8 bits.
    """

    def to(most: float) -> Array:
        return np.linspace(0, most, bins)

    changing = {"ShearX": shear, "ShearY": shear, "TranslateX": far[0], "TranslateY": far[1], "Rotate": degrees}
    changing |= dict.fromkeys(("Brightness", "Color", "Contrast", "Sharpness"), tone)
    return {
        "Identity": (np.zeros(bins), False),
        **{name: (to(most), True) for name, most in changing.items()},
        "Posterize": (8 - np.rint(to(bits)), False),
        "Solarize": (1 - to(1), False),
        "AutoContrast": (np.zeros(bins), False),
        "Equalize": (np.zeros(bins), False),
    }


def _each(change: Callable[[Array, float], Array]) -> Callable[[Array, float], Array]:
    """Return a function that takes a batch of one image and a value, and applies `change` with the factor 1 + value."""
    return lambda images, value: change(images[0], 1 + value)[None]


TONES: dict[str, Callable[[Array, Any], Array]] = {
    "Brightness": _each(brightened),
    "Color": _each(saturated),
    "Contrast": _each(contrasted),
    "Sharpness": lambda images, value: tones.sharpened(images, 1 + value),
    "Posterize": lambda images, value: tones.posterized(images, int(value)),
    "Solarize": tones.solarized,
    "AutoContrast": lambda images, _: tones.autocontrasted(images),
    "Equalize": lambda images, _: tones.equalized(images),
}
