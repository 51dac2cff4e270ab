"""RandomPerspective changes images as if they were seen from the side.

An element at (x, y) is read from ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)). The eight
numbers map four drawn corners back to the corners of the image.
"""

from __future__ import annotations

import numpy as np

from minorm.data.argument_texts import WARP
from minorm.data.dataset import Array
from minorm.data.transforms.argument_checks import by_channel, check_probability, share
from minorm.data.transforms.transform import Generator, ImageTransform
from minorm.data.transforms.warping import Fill, filling, mode, read_at
from minorm.support.documented import documented

FAR = 1e6  # pixels: a place on the horizon is NaN, and is replaced by one far outside


@documented(
    WARP,
    distortion_scale="how far each corner may move inward, from 0 to 1, where 1 is half of the image",
)
class RandomPerspective(ImageTransform):
    """Shows each image with probability p as if seen from the side: each corner moves inward by a random distance.

    Raises ValueError for a distortion_scale outside of 0 to 1.

    Example:
        >>> turn = mn.data.transforms.RandomPerspective(distortion_scale=0.6, p=1.0)
        >>> turn(mn.ones(2, 3, 8, 16)).shape
        (2, 3, 8, 16)
    """

    def __init__(
        self, distortion_scale: float = 0.5, p: float = 0.5, interpolation: str = "bilinear", fill: Fill = 0
    ) -> None:
        name = "RandomPerspective"
        self.distortion_scale, self.p = share(name, "distortion_scale", distortion_scale), check_probability(name, p)
        self.interpolation, self.fill = mode(name, interpolation), fill
        by_channel(name, "fill", fill)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw which images change, and draw new corners for these images."""
        height, width = images.shape[2:]
        fill = filling("RandomPerspective", self.fill, images)
        chosen = generator.random(len(images)) < self.p
        corners = np.array([self.corners(height, width, generator) for _ in range(int(chosen.sum()))])
        found = images.copy()
        if len(corners):
            places = seen_from(corners, height, width)
            found[chosen] = read_at(images[chosen], places, self.interpolation, fill)
        return found

    def corners(self, height: int, width: int, generator: Generator) -> list[list[int]]:
        """Draw new positions (x, y) of the upper left, upper right, lower right and lower left corner."""
        right, down = (int(self.distortion_scale * (length // 2)) for length in (width, height))

        def drawn(far_right: bool, far_down: bool) -> list[int]:
            x = generator.integers(width - right - 1, width) if far_right else generator.integers(right + 1)
            y = generator.integers(height - down - 1, height) if far_down else generator.integers(down + 1)
            return [int(x), int(y)]

        return [drawn(False, False), drawn(True, False), drawn(True, True), drawn(False, True)]


def coefficients(corners: Array, height: int, width: int) -> Array:
    """Return the coefficients a to h of the map from `corners` to the corners of the image.

    The map sends (x, y) to ((a x + b y + c) / (g x + h y + 1), (d x + e y + f) / (g x + h y + 1)). `corners` are four
    positions (x, y).
    """
    rows = np.zeros((8, 8))
    start = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)
    for i, ((x, y), (to_x, to_y)) in enumerate(zip(corners, start, strict=True)):
        rows[2 * i] = [x, y, 1, 0, 0, 0, -to_x * x, -to_x * y]
        rows[2 * i + 1] = [0, 0, 0, x, y, 1, -to_y * x, -to_y * y]
    return np.linalg.lstsq(rows, start.ravel(), rcond=None)[0]  # corners that coincide have no exact solution


def seen_from(corners: Array, height: int, width: int) -> Array:
    """Return an array N x H x W x 2 with the position (x, y), from the upper left, at which each element is read."""
    a, b, c, d, e, f, g, h = np.stack([coefficients(four, height, width) for four in corners]).T[..., None, None]
    y, x = np.mgrid[:height, :width] + 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / (g * x + h * y + 1)
        places = np.stack([(a * x + b * y + c) * scale, (d * x + e * y + f) * scale], -1)
    return np.clip(np.nan_to_num(places, nan=FAR), -FAR, FAR)
