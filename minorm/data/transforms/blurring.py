"""GaussianBlur replaces each element by a weighted mean of the elements around it. Nearer elements weigh more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minorm.data.argument_texts import TRANSFORM
from minorm.data.dataset import Array
from minorm.data.transforms.argument_checks import TINY, interval, is_number, pair
from minorm.data.transforms.transform import Generator, ImageTransform, in_floats
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    TRANSFORM,
    kernel_size="the number of elements in each mean, which must be odd: one for both axes, or (along x, along y)",
    sigma="(a, b), the range of the standard deviation in pixels, or one number",
)
class GaussianBlur(ImageTransform):
    """Blurs each image along both axes; the weight at distance d is exp(-d^2 / (2 sigma^2)) / (the sum of all weights).

    sigma is drawn for each image. An image is extended beyond its border by mirroring it at its outermost elements.
    Raises ValueError for an even kernel, and for a kernel that reaches farther than the image.

    Example:
        >>> blur = mn.data.transforms.GaussianBlur(3, sigma=0.5)
        >>> blur(mn.tensor([[[0.0, 0.0, 1.0, 0.0, 0.0]] * 3]))[0, 1]
        tensor([0.    , 0.1065, 0.787 , 0.1065, 0.    ])
    """

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        sizes = kernel_size[0] if isinstance(kernel_size, Sequence) and len(kernel_size) == 1 else kernel_size
        self.kernel_size = pair("GaussianBlur", "kernel_size", sizes, 1)
        if not all(size % 2 for size in self.kernel_size):
            raise ValueError(f"GaussianBlur: kernel_size={kernel_size}; expected odd numbers")
        self.sigma = interval("GaussianBlur", "sigma", (sigma, sigma) if is_number(sigma) else sigma, TINY)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw a new sigma for each image, and blur the image."""
        sigmas = generator.uniform(*self.sigma, len(images))
        for size, length in zip(self.kernel_size, images.shape[:1:-1], strict=True):
            if size // 2 >= length:
                raise ValueError(f"GaussianBlur: kernel_size={self.kernel_size} and images of shape {images.shape}; "
                                 f"expected a kernel of at most {2 * length - 1} along this axis")  # fmt: skip

        def blurred(x: Tensor) -> Tensor:
            found = x.array
            for axis, size in zip((3, 2), self.kernel_size, strict=True):
                found = along(found, weights(sigmas, size).astype(found.dtype), axis)
            return Tensor(found)

        return in_floats(images, blurred)


def weights(sigmas: Array, size: int) -> Array:
    """Return the Gaussian weights of a mean over `size` elements, with a row for each sigma."""
    distance = np.arange(size) - size // 2
    powers = np.exp(-0.5 * (distance / sigmas[:, None]) ** 2)
    return powers / powers.sum(1, keepdims=True)


def along(images: Array, shares: Array, axis: int) -> Array:
    """Return the weighted sum of each element's neighbours along an axis; `shares` has each image's weights."""
    size = shares.shape[1]
    around = [(size // 2, size // 2) if i == axis else (0, 0) for i in range(4)]
    wide = np.moveaxis(np.pad(images, around, "reflect"), axis, -1)
    length = images.shape[axis]
    found = sum(shares[:, i, None, None, None] * wide[..., i : i + length] for i in range(size))
    return np.moveaxis(np.asarray(found), -1, axis)
