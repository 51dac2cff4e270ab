"""Transforms that mirror, pad and crop images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.data.argument_texts import TRANSFORM
from minorm.data.dataset import Array
from minorm.data.transforms.argument_checks import check_fits, check_probability, is_int, one_number, pair
from minorm.data.transforms.transform import Generator, ImageTransform
from minorm.support.documented import documented

PADDING_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect", "symmetric": "symmetric"}


@documented(TRANSFORM)
class RandomHorizontalFlip(ImageTransform):
    """Mirrors each image left to right with probability p.

    Example:
        >>> mn.data.transforms.RandomHorizontalFlip(p=1.0)(mn.tensor([[[1.0, 2.0]]]))
        tensor([[[2., 1.]]])
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability("RandomHorizontalFlip", p)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw a new choice for each image, and apply it."""
        chosen = generator.random(len(images)) < self.p
        return _mirrored(images, images[..., ::-1], chosen)


@documented(TRANSFORM)
class RandomVerticalFlip(ImageTransform):
    """Turns each image upside down with probability p.

    Example:
        >>> mn.data.transforms.RandomVerticalFlip(p=1.0)(mn.tensor([[[1.0], [2.0]]]))
        tensor([[[2.],
                 [1.]]])
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability("RandomVerticalFlip", p)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw a new choice for each image, and apply it."""
        chosen = generator.random(len(images)) < self.p
        return _mirrored(images, images[:, :, ::-1], chosen)


@documented(TRANSFORM, padding="one number, (left and right, above and below), or (left, above, right, below)")
class Pad(ImageTransform):
    """Adds rows and columns around each image.

    Example:
        >>> mn.data.transforms.Pad((1, 0), fill=9)(mn.tensor([[[1.0, 2.0]]]))
        tensor([[[9., 1., 2., 9.]]])
    """

    def __init__(self, padding: int | Sequence[int], fill: float = 0, padding_mode: str = "constant") -> None:
        listed = tuple(padding) if isinstance(padding, (Sequence, np.ndarray)) else (padding,)
        sides = listed * (4 // len(listed)) if len(listed) in (1, 2) else listed
        if len(sides) != 4 or not all(is_int(n) and n >= 0 for n in sides):
            raise ValueError(f"Pad: padding={padding!r}; expected 1, 2 or 4 ints of at least 0")
        self.padding, self.fill = tuple(map(int, sides)), one_number("Pad", "fill", fill)
        self.padding_mode = _mode("Pad", padding_mode)

    def apply(self, images: Array, generator: Generator) -> Array:  # noqa: ARG002
        """Return the padded images."""
        check_fits("Pad", "fill", self.fill, images)
        left, above, right, below = self.padding
        return padded(images, (above, below), (left, right), self.padding_mode, self.fill)


@documented(TRANSFORM)
class CenterCrop(ImageTransform):
    """Crops the middle of each image to `size`. A smaller image is padded with zeros.

    Example:
        >>> mn.data.transforms.CenterCrop(2)(mn.ones(3, 5, 5)).shape
        (3, 2, 2)
    """

    def __init__(self, size: int | tuple[int, int]) -> None:
        self.size = pair("CenterCrop", "size", size, 1)

    def apply(self, images: Array, generator: Generator) -> Array:  # noqa: ARG002
        """Return the middle of each image."""
        missing = [max(want - have, 0) for want, have in zip(self.size, images.shape[2:], strict=True)]
        (above, below), (left, right) = ((n // 2, n - n // 2) for n in missing)
        images = padded(images, (above, below), (left, right), "constant", 0)
        top, start = (round((have - want) / 2) for want, have in zip(self.size, images.shape[2:], strict=True))
        return images[:, :, top : top + self.size[0], start : start + self.size[1]].copy()


@documented(
    TRANSFORM, padding="the number of pixels added on each side before the crop: one number, or (vertical, horizontal)"
)
class RandomCrop(ImageTransform):
    """Crops a random window of `size` from each image, after adding `padding` on each side.

    Raises ValueError for a window that is larger than the padded image.

    Example:
        >>> mn.data.transforms.RandomCrop(4, padding=1)(mn.ones(2, 3, 4, 4)).shape
        (2, 3, 4, 4)
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        padding: int | tuple[int, int] | None = 0,
        fill: float = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = pair("RandomCrop", "size", size, 1)
        self.padding = pair("RandomCrop", "padding", 0 if padding is None else padding, 0)
        self.fill = one_number("RandomCrop", "fill", fill)
        self.padding_mode = _mode("RandomCrop", padding_mode)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw a new window for each image, and crop it."""
        check_fits("RandomCrop", "fill", self.fill, images)
        count, (height, width), (top, left) = len(images), self.size, self.padding
        rows, columns = images.shape[2] + 2 * top - height, images.shape[3] + 2 * left - width  # room to move
        if rows < 0 or columns < 0:
            most = height + rows, width + columns
            raise ValueError(f"RandomCrop: size={self.size} and images of shape {images.shape} with padding "
                             f"{self.padding}; expected a size of at most {most}")  # fmt: skip
        y = generator.integers(0, rows + 1, count)
        x = generator.integers(0, columns + 1, count)
        if self.padding_mode != "constant":
            images, top, left = padded(images, (top, top), (left, left), self.padding_mode, self.fill), 0, 0
        cropped = np.full((*images.shape[:2], height, width), self.fill, images.dtype)
        for i, (first, start) in enumerate(zip((y - top).tolist(), (x - left).tolist(), strict=True)):
            (to_y, from_y), (to_x, from_x) = map(_overlap, (first, start), self.size, images.shape[2:])
            cropped[i, :, to_y, to_x] = images[i, :, from_y, from_x]
        return cropped


def padded(images: Array, rows: tuple[int, int], columns: tuple[int, int], mode: str, fill: float) -> Array:
    """Return the images with `rows` (above, below) and `columns` (left, right) added around them."""
    if not any((*rows, *columns)):
        return images
    if mode != "constant":
        return np.pad(images, ((0, 0), (0, 0), rows, columns), mode)  # type: ignore[call-overload]
    height, width = images.shape[2:]
    around = np.full((*images.shape[:2], sum(rows) + height, sum(columns) + width), fill, images.dtype)
    around[:, :, rows[0] : rows[0] + height, columns[0] : columns[0] + width] = images
    return around


def _overlap(first: int, count: int, length: int) -> tuple[slice, slice]:
    """Return the overlap of an axis with a window that starts at `first`: (slice of the window, slice of the axis)."""
    begin = max(first, 0)
    end = max(begin, min(first + count, length))
    return slice(begin - first, end - first), slice(begin, end)


def _mirrored(images: Array, mirrored: Array, chosen: Array) -> Array:
    """Return the chosen images from `mirrored` and all others from `images`. Each image is copied once."""
    found = np.empty_like(images)
    for i, which in enumerate(chosen.tolist()):
        found[i] = mirrored[i] if which else images[i]
    return found


def _mode(name: str, mode: Any) -> str:
    if mode not in PADDING_MODES:
        raise ValueError(f"{name}: padding_mode={mode!r}; expected one of {', '.join(PADDING_MODES)}")
    return str(mode)
