"""Turns, moves, scales and shears images. Each element of the result is read where the inverse map sends this element.

F.grid_sample reads the elements. With (x, y) in pixels from the centre c, y downwards, an element goes to
A (x, y) + t + c,

    A = scale * [[cos(a - s), -cos(a - s) tan(r) - sin(a) cos(s)],     a the angle, r and s the shears,
                 [sin(a - s), -sin(a - s) tan(r) + cos(a) cos(s)]] / cos(s)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

import minorm.functional as F
from minorm.data.argument_texts import WARP
from minorm.data.dataset import Array
from minorm.data.transforms.argument_checks import TINY, around, by_channel, check_channels, interval, point
from minorm.data.transforms.transform import Generator, ImageTransform, in_floats
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

Fill: TypeAlias = float | Sequence[float]  # one number, or one for each channel


@documented(
    WARP,
    expand="only False is possible; True is a ValueError, because all images of a batch have the same size",
)
class RandomRotation(ImageTransform):
    """Turns each image about its centre by a random angle, counterclockwise.

    Example:
        >>> mn.data.transforms.RandomRotation((90, 90))(mn.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[2., 4.],
                 [1., 3.]]])
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: str = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: Fill = 0,
    ) -> None:
        if expand:
            raise ValueError(
                "RandomRotation: expand=True; expected False, because all images of a batch have the same size"
            )
        name = "RandomRotation"
        self.degrees, self.interpolation = around(name, "degrees", degrees), mode(name, interpolation)
        self.center, self.fill = point(name, "center", center), fill
        by_channel(name, "fill", fill)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw a new angle for each image, and turn the image."""
        angles = generator.uniform(*self.degrees, len(images))
        maps = np.stack([linear(-angle) for angle in angles]) if len(images) else np.empty((0, 2, 2))
        fill = filling("RandomRotation", self.fill, images)
        return warped(images, maps, np.zeros((len(images), 2)), self.center, self.interpolation, fill)


@documented(
    WARP,
    translate="the largest shift, as shares of width and height, rounded to whole pixels; None moves nothing",
    scale="(a, b), the range of the factor; None keeps the size",
    shear="(a, b), the range in degrees of the shear along x, or d for the range (-d, d); four numbers give the "
    "ranges along x and y",
)
class RandomAffine(ImageTransform):
    """Turns (clockwise), moves, scales and shears each image by random amounts.

    Raises ValueError if `translate` is outside of 0 to 1.

    Example:
        >>> mn.data.transforms.RandomAffine((90, 90))(mn.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
        tensor([[[3., 1.],
                 [4., 2.]]])
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: str = "nearest",
        fill: Fill = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        name = "RandomAffine"
        self.degrees = around(name, "degrees", degrees)
        shares = None if translate is None else point(name, "translate", translate)
        if shares is not None and not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"{name}: translate={translate!r}; expected two shares from 0 to 1")
        self.translate = translate
        self.scale = None if scale is None else interval(name, "scale", scale, TINY)
        parts: list[Any] = [shear]
        if isinstance(shear, (Sequence, np.ndarray)) and len(shear) == 4:
            parts = [shear[:2], shear[2:]]
        self.shear = None if shear is None else tuple(end for part in parts for end in around(name, "shear", part))
        self.interpolation, self.fill, self.center = mode(name, interpolation), fill, point(name, "center", center)
        by_channel(name, "fill", fill)

    def apply(self, images: Array, generator: Generator) -> Array:
        """Draw a new map for each image, and apply it to the image."""
        count, (height, width) = len(images), images.shape[2:]
        maps, moves = np.empty((count, 2, 2)), np.zeros((count, 2))
        for i in range(count):
            angle = generator.uniform(*self.degrees)
            if self.translate is not None:
                most = self.translate[0] * width, self.translate[1] * height
                moves[i] = [round(generator.uniform(-m, m)) for m in most]
            scale = 1.0 if self.scale is None else generator.uniform(*self.scale)
            ends = self.shear or ()
            maps[i] = linear(angle, scale, *(generator.uniform(ends[k], ends[k + 1]) for k in range(0, len(ends), 2)))
        fill = filling("RandomAffine", self.fill, images)
        return warped(images, maps, moves, self.center, self.interpolation, fill)


def linear(angle: float, scale: float = 1.0, shear_x: float = 0.0, shear_y: float = 0.0) -> Array:
    """Return the matrix A of the module's formula, which turns, scales and shears. All angles are in degrees."""
    a, r, s = map(math.radians, (angle, shear_x, shear_y))
    return scale / math.cos(s) * np.array(
        [[math.cos(a - s), -math.cos(a - s) * math.tan(r) - math.sin(a) * math.cos(s)],
         [math.sin(a - s), -math.sin(a - s) * math.tan(r) + math.cos(a) * math.cos(s)]]
    )  # fmt: skip


def warped(
    images: Array, maps: Array, moves: Array, center: Sequence[float] | None, interpolation: str, fill: Any
) -> Array:
    """Return the images after the linear maps `maps` and the translations `moves`, with one of each for every image.

    Elements that come from outside an image get the value `fill`.
    """
    height, width = images.shape[2:]
    middle = np.array([(width - 1) / 2, (height - 1) / 2] if center is None else [x - 0.5 for x in center])
    y, x = np.mgrid[:height, :width]
    places = np.stack([x, y], -1) - middle  # of the result
    (a, b), (c, d) = maps[:, 0].T, maps[:, 1].T
    inverse = np.array([[d, -b], [-c, a]]) / (a * d - b * c)
    from_x, from_y = np.moveaxis(places - moves[:, None, None], -1, 0)
    grid = np.stack([inverse[i, 0][:, None, None] * from_x + inverse[i, 1][:, None, None] * from_y for i in (0, 1)], -1)
    return read_at(images, grid + middle + 0.5, interpolation, fill)


def filling(name: str, fill: Fill, images: Array) -> Array:
    """Return the values of elements outside an image: one number for all channels, or one for each channel."""
    found = by_channel(name, "fill", fill)
    check_channels(name, "fill", found, images)
    return found


def read_at(images: Array, places: Array, interpolation: str, fill: Any) -> Array:
    """Return the images read at positions (x, y) from the upper left.

    `places` has shape N x H x W x 2. Positions outside an image give `fill`.
    """
    height, width = images.shape[2:]
    grid = 2 * places / [width, height] - 1  # -1 and 1 are the outer edges
    outside = np.reshape(fill, (1, -1, 1, 1)).astype(np.float64)

    def read(x: Tensor) -> Tensor:
        at = Tensor(grid.astype(x.dtype))
        found = F.grid_sample(x, at, interpolation)
        if not outside.any():
            return found
        inside = F.grid_sample(Tensor(np.ones_like(x.array)), at, interpolation)
        return found + Tensor(outside.astype(x.dtype)) * (1 - inside)

    return in_floats(images, read)


def mode(name: str, interpolation: Any) -> str:
    """Return the interpolation as a plain text; raise ValueError unless it is "nearest" or "bilinear"."""
    if interpolation not in ("nearest", "bilinear"):
        raise ValueError(f"{name}: interpolation={interpolation!r}; expected 'nearest' or 'bilinear'")
    return str(getattr(interpolation, "value", interpolation))
