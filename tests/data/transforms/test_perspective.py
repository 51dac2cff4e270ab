"""RandomPerspective: against Pillow's, pixel by pixel, and its corners against the ranges they are drawn from."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from minorm.data.transforms import RandomPerspective
from minorm.data.transforms.perspective import coefficients

IMAGES = np.random.default_rng(0).random((4, 3, 24, 18)).astype(np.float32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn(transform: RandomPerspective, count: int = len(IMAGES)) -> list[Any]:
    """The corners that an apply with rng() draws, all images chosen."""
    source = rng()
    source.random(count)
    return [transform.corners(24, 18, source) for _ in range(count)]


@pytest.mark.parametrize("smooth", [False, True])
def test_each_image_is_pillows(smooth: bool) -> None:
    pil = pytest.importorskip("PIL.Image")
    transform = RandomPerspective(0.6, p=1.0, interpolation="bilinear" if smooth else "nearest", fill=0.0)
    found = transform(IMAGES, rng())
    way = pil.Resampling.BILINEAR if smooth else pil.Resampling.NEAREST
    for image, changed, corners in zip(IMAGES, found, drawn(transform), strict=True):
        numbers = coefficients(np.array(corners), 24, 18)
        for channel, result in zip(image, changed, strict=True):
            there = pil.fromarray(channel).transform((18, 24), pil.Transform.PERSPECTIVE, tuple(numbers), way)
            ones = pil.fromarray(np.ones_like(channel)).transform((18, 24), pil.Transform.PERSPECTIVE, tuple(numbers))
            inside = np.asarray(ones) > 0
            if smooth:  # at the edge Pillow repeats the outermost element, which fades out here
                inside[1:-1, 1:-1] &= inside[2:, 1:-1] & inside[:-2, 1:-1] & inside[1:-1, 2:] & inside[1:-1, :-2]
                inside[[0, -1]] = inside[:, [0, -1]] = False
            off = np.abs(np.asarray(there) - result)[inside] > 1e-5
            assert off.mean() <= (0 if smooth else 0.01)  # a place between two elements may go to either


def test_the_corners_go_where_they_should() -> None:
    corners = np.array([[2, 3], [16, 1], [15, 20], [0, 22]])
    a, b, c, d, e, f, g, h = coefficients(corners, 24, 18)
    for (x, y), expected in zip(corners, [(0, 0), (17, 0), (17, 23), (0, 23)], strict=True):
        place = np.array([a * x + b * y + c, d * x + e * y + f]) / (g * x + h * y + 1)
        np.testing.assert_allclose(place, expected, atol=1e-9)


def test_corners_are_drawn_within_their_quarters() -> None:
    transform = RandomPerspective(0.5, p=1.0)
    four = np.array(drawn(transform, 500))
    right, down = 18 // 4, 24 // 4
    assert four[:, 0].min(0).tolist() == [0, 0]
    assert four[:, 0].max(0).tolist() == [right, down]
    assert four[:, 2].min(0).tolist() == [18 - right - 1, 24 - down - 1]
    assert four[:, 2].max(0).tolist() == [17, 23]
    assert four[:, 1].max(0).tolist() == [17, down]
    assert four[:, 3].max(0).tolist() == [right, 23]


def test_some_images_stay_and_fill_is_by_channel() -> None:
    found = RandomPerspective(0.8, p=0.5)(IMAGES, rng())
    chosen = rng().random(4) < 0.5
    assert [np.array_equal(a, b) for a, b in zip(found, IMAGES, strict=True)] == (~chosen).tolist()
    ones = np.ones((1, 3, 24, 18))
    filled = RandomPerspective(0.8, p=1.0, interpolation="nearest", fill=[0.2, 0.4, 0.6])(ones, rng())
    assert [sorted(set(channel.ravel().round(6).tolist())) for channel in filled[0]] == [[0.2, 1], [0.4, 1], [0.6, 1]]
    assert np.array_equal(RandomPerspective(0.0, p=1.0, interpolation="nearest")(IMAGES, rng()), IMAGES)


def test_corners_that_coincide_make_no_error() -> None:
    for size in (1, 2, 3):
        found = RandomPerspective(1.0, p=1.0)(np.ones((50, 1, size, size), np.float32), rng())
        assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomPerspective(1.5), "RandomPerspective: distortion_scale=1.5; expected a number from 0 to 1"),
        (lambda: RandomPerspective(p=2), "RandomPerspective: p=2; expected a probability"),
        (lambda: RandomPerspective(interpolation="bicubic"), "interpolation='bicubic'; expected 'nearest' or"),
        (lambda: RandomPerspective(p=1.0, fill=[0, 1])(IMAGES), "fill has 2 numbers and the images have shape"),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
