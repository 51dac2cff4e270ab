"""Resizes images, or a random window of each image, by F.interpolate."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.data.argument_texts import TRANSFORM
from minorm.data.dataset import Array
from minorm.data.transforms.argument_checks import TINY, interval, is_int, pair
from minorm.data.transforms.transform import Generator, ImageTransform, drawn_sides, in_floats
from minorm.support.documented import documented


class InterpolationMode(StrEnum):
    """The names of the interpolations, such as "bilinear". Each member is a str.

    Example:
        >>> mn.data.transforms.InterpolationMode.BILINEAR == "bilinear"
        True
    """

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


@documented(
    TRANSFORM,
    size="(height, width), or one number for the shorter side, which keeps the proportions",
    max_size="the largest length of the longer side, if size is one number; the shorter side may then be less than "
    "size. None is no limit",
)
class Resize(ImageTransform):
    """Resizes images.

    Raises ValueError if both max_size and two sizes are given.

    Example:
        >>> mn.data.transforms.Resize(4)(mn.ones(2, 3, 8, 16)).shape
        (2, 3, 4, 8)
    """

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: str = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        alone = size[0] if isinstance(size, Sequence) and len(size) == 1 else size
        sizes = pair("Resize", "size", alone, 1)
        if max_size is not None and not (is_int(alone) and is_int(max_size) and max_size > sizes[0]):
            raise ValueError(f"Resize: max_size={max_size!r} with size={size!r}; expected one number for size and an "
                             "int above it for max_size, or max_size=None")  # fmt: skip
        self.size = sizes[0] if is_int(alone) else sizes
        self.interpolation, self.max_size = _mode("Resize", interpolation), max_size
        self.antialias = bool(antialias)

    def apply(self, images: Array, generator: Generator) -> Array:  # noqa: ARG002
        """Return the resized images, in their own type."""
        return resized(images, self._lengths(*images.shape[2:]), self.interpolation, self.antialias)

    def _lengths(self, height: int, width: int) -> tuple[int, int]:
        if isinstance(self.size, tuple):
            return self.size
        short, long = min(height, width), max(height, width)
        new_short, new_long = self.size, int(self.size * long / short)
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = int(self.max_size * new_short / new_long), self.max_size
        return (new_short, new_long) if height <= width else (new_long, new_short)


@documented(
    TRANSFORM,
    scale="(a, b), the range of the window's share of the image's area",
    ratio="(a, b), the range of width / height, drawn evenly on a logarithmic scale",
)
class RandomResizedCrop(ImageTransform):
    """Crops a window of random area and proportions from each image, and resizes it to `size`.

    As in torchvision, up to ten windows are drawn. If no window fits, the middle of the image is used, as large as the
    ratios allow.

    Example:
        >>> mn.data.transforms.RandomResizedCrop(4)(mn.ones(2, 3, 8, 16)).shape
        (2, 3, 4, 4)

    Szegedy et al. 2014, arXiv:1409.4842.
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: str = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.size = pair("RandomResizedCrop", "size", size, 1)
        self.scale = interval("RandomResizedCrop", "scale", scale, 0)
        self.ratio = interval("RandomResizedCrop", "ratio", ratio, TINY)
        self.interpolation, self.antialias = _mode("RandomResizedCrop", interpolation), bool(antialias)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw a new window for each image, and resize the window."""
        found = np.empty((*images.shape[:2], *self.size), images.dtype)
        for image, place in zip(images, found, strict=True):
            top, left, height, width = self.window(image.shape[1], image.shape[2], generator)
            window = image[None, :, top : top + height, left : left + width]
            place[...] = resized(window, self.size, self.interpolation, self.antialias)[0]
        return found

    def window(self, height: int, width: int, generator: Generator) -> tuple[int, int, int, int]:
        """Draw a window, and return (top, left, height, width)."""
        for _ in range(10):
            w, h = drawn_sides(height * width, self.scale, self.ratio, generator)
            if 0 < w <= width and 0 < h <= height:
                return int(generator.integers(height - h + 1)), int(generator.integers(width - w + 1)), h, w
        w = min(width, round(height * self.ratio[1]))
        h = min(height, round(width / self.ratio[0]))
        return (height - h) // 2, (width - w) // 2, h, w


def resized(images: Array, size: tuple[int, int], interpolation: str, antialias: bool) -> Array:
    """Return the images resized to (height, width) `size`."""
    if tuple(images.shape[2:]) == size:
        return images.copy()
    smooth = interpolation in ("bilinear", "bicubic")
    options: dict[str, Any] = {"align_corners": False, "antialias": antialias} if smooth else {}
    return in_floats(images, lambda x: F.interpolate(x, size, mode=interpolation, **options))


def _mode(name: str, interpolation: Any) -> str:
    try:
        return InterpolationMode(interpolation).value
    except ValueError:
        known = ", ".join(mode.value for mode in InterpolationMode)
        raise ValueError(f"{name}: interpolation={interpolation!r}; expected one of {known}") from None
