"""Changes to a whole batch of images at once: `transform(images, generator) -> images`.

images     an array N x C x H x W; it is never changed in place
generator  the np.random.Generator that every random choice is drawn from: the same state gives the same batch

Any function of these two arguments is a transform. The names are torchvision's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from minorm.data.dataset import Array
from minorm.mistakes import Checked

Transform: TypeAlias = Callable[[Array, np.random.Generator], Array]


class Compose(Checked):
    """One transform after the other: `Compose([RandomCrop(32, padding=4), RandomHorizontalFlip()])`."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = list(transforms)

    def __call__(self, images: Array, generator: np.random.Generator) -> Array:
        """Apply each in turn, with the one generator."""
        for transform in self.transforms:
            images = transform(images, generator)
        return images


class Normalize(Checked):
    """(images - mean) / std, with one number for all channels or one a channel."""

    def __init__(self, mean: float | Sequence[float], std: float | Sequence[float]) -> None:
        self.mean = np.asarray(mean, dtype=np.float64).reshape(-1, 1, 1)
        self.std = np.asarray(std, dtype=np.float64).reshape(-1, 1, 1)
        if not (np.isfinite(self.mean).all() and np.isfinite(self.std).all() and (self.std > 0).all()):
            raise ValueError(f"Normalize: mean={mean}, std={std}; expected finite numbers, and std above 0")

    def __call__(self, images: Array, generator: np.random.Generator) -> Array:  # noqa: ARG002
        """The normalized images, in their own float type."""
        _check_images("Normalize", images)
        if images.dtype.kind in "iub":
            raise TypeError(
                f"Normalize: the images are {images.dtype}; expected floats: ArrayDataset(images, labels, scale=255)"
            )
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, images.shape[1]):
                raise ValueError(f"Normalize: {name} has {len(values)} numbers and the images have shape "
                                 f"{images.shape}; expected 1 or {images.shape[1]}, one a channel")  # fmt: skip
        centered = images - self.mean.astype(images.dtype)
        centered /= self.std.astype(images.dtype)
        return centered


class RandomCrop(Checked):
    """A random window of `size` out of each image, after adding `padding` zeros on each side.

    size, padding  one number, or (vertical, horizontal)
    """

    def __init__(self, size: int | tuple[int, int], padding: int | tuple[int, int] = 0) -> None:
        self.size = _pair("RandomCrop", "size", size, 1)
        self.padding = _pair("RandomCrop", "padding", padding, 0)

    def __call__(self, images: Array, generator: np.random.Generator) -> Array:
        """A new window for each image."""
        _check_images("RandomCrop", images)
        count, (height, width), (top, left) = len(images), self.size, self.padding
        rows, columns = images.shape[2] + 2 * top - height, images.shape[3] + 2 * left - width  # room to move
        if rows < 0 or columns < 0:
            raise ValueError(f"RandomCrop: images of shape {images.shape} with padding {self.padding} "
                             f"are smaller than size {self.size}")  # fmt: skip
        y = generator.integers(0, rows + 1, count)
        x = generator.integers(0, columns + 1, count)
        padded = np.zeros((*images.shape[:2], rows + height, columns + width), images.dtype)
        padded[:, :, top : top + images.shape[2], left : left + images.shape[3]] = images
        windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(2, 3))
        return windows[np.arange(count), :, y, x]


class RandomHorizontalFlip(Checked):
    """Each image mirrored left to right with probability p."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"RandomHorizontalFlip: p={p}; expected a probability from 0 to 1")
        self.p = p

    def __call__(self, images: Array, generator: np.random.Generator) -> Array:
        """A new choice for each image."""
        _check_images("RandomHorizontalFlip", images)
        chosen = generator.random(len(images)) < self.p
        flipped = images.copy()
        flipped[chosen] = images[chosen, ..., ::-1]
        return flipped


def _check_images(name: str, images: Any) -> None:
    if not isinstance(images, np.ndarray) or images.ndim != 4:
        raise ValueError(f"{name}: images are {getattr(images, 'shape', type(images).__name__)}; "
                         "expected an array of shape (N, C, H, W)")  # fmt: skip


def _pair(name: str, argument: str, value: int | tuple[int, int], least: int) -> tuple[int, int]:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    if len(pair) != 2 or not all(isinstance(item, (int, np.integer)) and item >= least for item in pair):
        raise ValueError(f"{name}: {argument}={value}; expected an int of at least {least}, or two of them")
    return int(pair[0]), int(pair[1])
