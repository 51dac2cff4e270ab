"""Base class of image transforms: it handles a batch or one image, arrays or Tensors, and the generator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from minorm import devices
from minorm.data.dataset import Array
from minorm.data.settings_repr import Shown
from minorm.devices import dtypes, generators
from minorm.tensor.tensor import Tensor

Transform: TypeAlias = Callable[..., Any]  # transform(images, generator) -> images
Generator: TypeAlias = np.random.Generator


class ImageTransform(Shown):
    """Base class. A subclass defines `apply` for an array N x C x H x W, and `apply` must not change this array."""

    def __call__(self, images: Any, generator: Any = None) -> Any:
        """Change a batch N x C x H x W or an image C x H x W. An array gives an array, and a Tensor gives a Tensor."""
        array = images.array if isinstance(images, Tensor) else images
        if not devices.is_host(array):
            raise ValueError(f"{type(self).__name__}: images are on {devices.device_of(array)}, and transforms compute "
                             "on the CPU; transform the images before they are copied to the GPU")  # fmt: skip
        if not isinstance(array, np.ndarray) or array.ndim not in (3, 4):
            raise ValueError(f"{type(self).__name__}: images are {getattr(images, 'shape', type(images).__name__)}; "
                             "expected an array of shape (N, C, H, W), or (C, H, W) for one image; ToTensor turns a "
                             "picture into such a Tensor")  # fmt: skip
        if array.dtype.kind not in "iub" and not dtypes.is_float(array.dtype):
            raise TypeError(f"{type(self).__name__}: images are {array.dtype}; expected floats, integers or bools")
        if 0 in array.shape[-2:]:
            raise ValueError(f"{type(self).__name__}: images have shape {array.shape}; expected at least one pixel")
        found = self.apply(array if array.ndim == 4 else array[None], generators.source(generator))
        found = found if array.ndim == 4 else found[0]
        return Tensor(np.ascontiguousarray(found)) if isinstance(images, Tensor) else found

    def apply(self, images: Array, generator: Generator) -> Array:
        """Return the transformed batch."""
        raise NotImplementedError(f"{type(self).__name__} has no apply")


def check_floats(name: str, images: Array) -> None:
    """Raise TypeError for integers, which cannot hold the results of changes in brightness."""
    if images.dtype.kind in "iub":
        raise TypeError(f"{name}: the images are {images.dtype}; expected floats; use ArrayDataset(images, labels, "
                        "scale=255), or ToTensor before this transform")  # fmt: skip


def drawn_sides(
    area: int, scale: tuple[float, float], ratio: tuple[float, float], generator: Generator
) -> tuple[int, int]:
    """Draw the lengths of a window's two sides.

    `scale` is the range of the window's share of the area, and `ratio` is the range of (first side / second side).
    """
    area_drawn = area * generator.uniform(scale[0], scale[1])
    proportion = math.exp(generator.uniform(math.log(ratio[0]), math.log(ratio[1])))
    return round(math.sqrt(area_drawn * proportion)), round(math.sqrt(area_drawn / proportion))


def in_floats(images: Array, change: Callable[[Tensor], Tensor]) -> Array:
    """Return change(images), computed in float32 or float64. Integers are rounded and clipped to their own type."""
    kind = images.dtype
    if dtypes.is_float(kind):
        return change(Tensor(images)).array
    found = change(Tensor(images.astype(np.float32))).array
    if kind == np.bool_:
        return found >= 0.5
    limits = np.iinfo(kind)
    return np.clip(np.rint(found), limits.min, limits.max).astype(kind)
