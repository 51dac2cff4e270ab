"""RandomErasing overwrites a rectangle of an image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minorm.data.argument_texts import TRANSFORM
from minorm.data.dataset import Array
from minorm.data.transforms.argument_checks import (
    TINY,
    by_channel,
    check_channels,
    check_fits,
    check_probability,
    interval,
)
from minorm.data.transforms.transform import Generator, ImageTransform, check_floats, drawn_sides
from minorm.support.documented import documented


@documented(
    TRANSFORM,
    scale="(a, b), the range of the rectangle's share of the image's area",
    ratio="(a, b), the range of height / width, drawn evenly on a logarithmic scale",
    value='the new value: one number, one for each channel, or "random" for draws from the normal distribution',
)
class RandomErasing(ImageTransform):
    """Sets one rectangle in each image to `value`, with probability p.

    Example:
        >>> erase = mn.data.transforms.RandomErasing(p=1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0))
        >>> erase(mn.ones(1, 4, 4)).sum()  # 2 x 2 of 16 are gone
        tensor(12.)

    Zhong et al. 2017, arXiv:1708.04896.
    """

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float | str | Sequence[float] = 0,
        inplace: bool = False,  # noqa: ARG002  the images that come stay as they are
    ) -> None:
        self.p = check_probability("RandomErasing", p)
        self.scale = interval("RandomErasing", "scale", scale, 0, 1)
        self.ratio = interval("RandomErasing", "ratio", ratio, TINY)
        if not (isinstance(value, str) and value == "random"):
            by_channel("RandomErasing", "value", value, ", or 'random'")
        self.value = value

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw which images change, and overwrite a random rectangle in each of these images."""
        values = self._values(images)
        found = images.copy()
        for image in found:
            if generator.random() >= self.p:
                continue
            window = self._window(image.shape[1], image.shape[2], generator)
            if window is not None:
                top, left, h, w = window
                drawn = generator.standard_normal((len(image), h, w)) if values is None else values
                image[:, top : top + h, left : left + w] = drawn
        return found

    def _values(self, images: Array) -> Any:
        """Return C numbers or one number, in a shape that broadcasts with an image; return None for random values."""
        if isinstance(self.value, str):
            check_floats("RandomErasing: value='random'", images)
            return None
        values = by_channel("RandomErasing", "value", self.value).reshape(-1, 1, 1)
        check_channels("RandomErasing", "value", values, images)
        check_fits("RandomErasing", "value", values, images)
        return values

    def _window(self, height: int, width: int, generator: Generator) -> tuple[int, int, int, int] | None:
        for _ in range(10):
            h, w = drawn_sides(height * width, self.scale, self.ratio, generator)
            if h < height and w < width:
                return int(generator.integers(height - h + 1)), int(generator.integers(width - w + 1)), h, w
        return None
