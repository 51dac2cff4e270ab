"""Converts pictures to Tensors: channels first, and bytes as numbers between 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.data.settings_repr import Shown
from minorm.devices import dtypes
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


class ToImage(Shown):
    """Converts a picture H x W or H x W x C to a Tensor C x H x W.

    A picture is an array, or any other argument of np.asarray. A Tensor, or an array N x C x H x W, is returned
    unchanged.

    Example:
        >>> mn.data.transforms.ToImage()(mn.zeros(4, 5, 3).numpy()).shape
        (3, 4, 5)
    """

    def __call__(self, images: Any, generator: Any = None) -> Any:  # noqa: ARG002
        """Return a picture as a Tensor C x H x W. A Tensor, or a batch with four axes, is returned unchanged."""
        return image("ToImage", images)


def image(name: str, picture: Any) -> Any:
    """Return a picture as a Tensor C x H x W. A Tensor, or a batch with four axes, is returned unchanged."""
    if isinstance(picture, Tensor):
        return picture
    array = np.asarray(picture)
    if array.dtype.kind not in "iub" and not dtypes.is_float(array.dtype):
        came = array.dtype if isinstance(picture, np.ndarray) else type(picture).__name__
        raise TypeError(
            f"{name}: the picture is {came}; expected an array of numbers of shape (H, W) or (H, W, C), or a batch "
            "(N, C, H, W)"
        )
    if array.ndim == 4:
        return array
    if array.ndim not in (2, 3):
        raise ValueError(f"{name}: the picture has shape {array.shape}; expected (H, W) or (H, W, C), or a batch "
                         "(N, C, H, W)")  # fmt: skip
    return Tensor(np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1)))


@documented(
    {},
    dtype="the type wanted",
    scale="True scales the numbers: the full range of an integer type, or 0 to 1 in "
    "floats, becomes the full range of the new type",
)
class ToDtype(Shown):
    """Converts images to another type.

    Example:
        >>> mn.data.transforms.ToDtype(mn.float32, scale=True)(mn.tensor([[[0, 255]]], dtype=mn.uint8))
        tensor([[[0., 1.]]])
    """

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self.dtype, self.scale = dtypes.check(dtype, "ToDtype"), scale

    def __call__(self, images: Any, generator: Any = None) -> Any:  # noqa: ARG002
        """Return the converted images, as an array for an array and as a Tensor for a Tensor."""
        array = images.array if isinstance(images, Tensor) else images
        if not hasattr(array, "dtype") or array.dtype.kind in "OSUMmc":
            came = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"ToDtype: images are {came}; expected an array or a Tensor of numbers")
        found = self._converted(array)
        return Tensor(found) if isinstance(images, Tensor) else found

    def _converted(self, array: Any) -> Any:
        floats = dtypes.is_float(array.dtype), dtypes.is_float(self.dtype)
        if not self.scale or floats == (True, True) or array.dtype == self.dtype:
            return array.astype(self.dtype)
        if floats == (False, True):
            wide = dtypes.compute_type(self.dtype)
            return np.divide(array, wide.type(np.iinfo(array.dtype).max), dtype=wide).astype(self.dtype, copy=False)
        most = np.iinfo(self.dtype).max
        if floats == (True, False):
            return np.minimum(array.astype(np.float64) * (most + 1 - 1e-3), most).astype(self.dtype)
        return (array.astype(np.float64) * (most + 1) // (int(np.iinfo(array.dtype).max) + 1)).astype(self.dtype)


class ToTensor(Shown):
    """Converts a picture or a batch of bytes to float32, and divides by 255. Pictures of other types keep their type.

    A picture H x W or H x W x C becomes a Tensor C x H x W; a batch N x C x H x W stays an array.

    Example:
        >>> mn.data.transforms.ToTensor()(mn.full((1, 2, 1), 255, dtype=mn.uint8).numpy())
        tensor([[[1., 1.]]])
    """

    def __call__(self, images: Any, generator: Any = None) -> Any:  # noqa: ARG002
        """Return the converted picture or batch: bytes become float32 from 0 to 1, and other types stay as they are."""
        found = image("ToTensor", images)
        return ToDtype(dtypes.float32, scale=True)(found) if found.dtype == np.uint8 else found
