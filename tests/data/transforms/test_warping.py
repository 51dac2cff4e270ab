"""Turned, moved, scaled and sheared: against a loop over pixels in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from minorm.data.transforms import RandomAffine, RandomRotation
from minorm.data.transforms.warping import linear, warped

IMAGES = np.random.default_rng(0).random((3, 2, 6, 5))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def read(image: Any, x: float, y: float, smooth: bool, fill: float) -> Any:
    """Return the element at (x, y), or the interpolation of its four neighbours."""
    if not smooth:
        column, row = round(x), round(y)
        inside = 0 <= row < image.shape[1] and 0 <= column < image.shape[2]
        return image[:, row, column] if inside else np.full(len(image), fill)
    total = np.zeros(len(image))
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            share = (1 - abs(y - row)) * (1 - abs(x - column))
            total += share * read(image, column, row, False, fill)
    return total


@pytest.mark.parametrize("smooth", [False, True])
@pytest.mark.parametrize("fill", [0, 0.7])
@pytest.mark.parametrize("center", [None, (1.0, 4.0)])
def test_a_map_is_a_loop_over_pixels(smooth: bool, fill: float, center: Any) -> None:
    maps = np.stack([linear(20, 1.3, 5, -8), linear(-70, 0.6), np.eye(2)])
    moves = np.array([[1, -2], [0, 0.25], [-1, 1]])
    found = warped(IMAGES, maps, moves, center, "bilinear" if smooth else "nearest", fill)
    middle = np.array([2.0, 2.5] if center is None else center) - (0 if center is None else 0.5)
    for image, matrix, move, changed in zip(IMAGES, maps, moves, found, strict=True):
        for y in range(6):
            for x in range(5):
                at = np.linalg.inv(matrix) @ (np.array([x, y]) - middle - move) + middle
                np.testing.assert_allclose(changed[:, y, x], read(image, *at, smooth, fill), atol=1e-9)


def test_quarter_turns_are_numpys() -> None:
    square = IMAGES[:, :, :5]
    for quarters in range(4):
        found = RandomRotation((90 * quarters, 90 * quarters))(square, rng())
        assert np.array_equal(found, np.rot90(square, quarters, axes=(2, 3)))


def test_affine_turns_with_the_clock() -> None:
    square = IMAGES[:, :, :5]
    found = RandomAffine((90, 90))(square, rng())
    assert np.array_equal(found, np.rot90(square, -1, axes=(2, 3)))


def test_the_matrix_is_a_turn_of_a_shear() -> None:
    a, r, s = map(math.radians, (25, 12, -7))
    turn = np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
    along_y = np.array([[1, 0], [-math.tan(s), 1]])
    along_x = np.array([[1, -math.tan(r)], [0, 1]])
    np.testing.assert_allclose(linear(25, 1.5, 12, -7), 1.5 * turn @ along_y @ along_x, rtol=1e-12)


def test_moves_are_whole_pixels_within_their_shares() -> None:
    image = np.zeros((1, 1, 11, 11))
    image[..., 5, 5] = 1
    found = RandomAffine(0, translate=(0.2, 0.4))(np.repeat(image, 600, 0), rng())
    _, _, y, x = np.nonzero(found)
    assert len(y) == 600
    assert (y.min(), y.max(), x.min(), x.max()) == (1, 9, 3, 7)


def test_angles_and_factors_within_their_ranges() -> None:
    image = np.zeros((1, 1, 41, 41))
    image[..., 20, 35] = 1
    dots = RandomRotation((10, 50))(np.repeat(image, 300, 0), rng())
    _, _, y, x = np.nonzero(dots)
    angles = np.degrees(np.arctan2(20 - y, x - 20))
    assert 7 < angles.min() < 14
    assert 46 < angles.max() < 53
    ones = np.ones((200, 1, 41, 41))
    shares = RandomAffine(0, scale=(0.25, 0.5))(ones, rng()).mean(axis=(1, 2, 3)) ** 0.5
    assert 0.22 < shares.min() < 0.3
    assert 0.45 < shares.max() < 0.55


def test_bytes_stay_bytes() -> None:
    pictures = (IMAGES * 255).astype(np.uint8)
    assert np.array_equal(RandomRotation((180, 180))(pictures, rng()), pictures[:, :, ::-1, ::-1])


def test_wrong_arguments() -> None:
    for make, message in [
        (lambda: RandomRotation(-1), r"RandomRotation: degrees=-1; expected at least 0, or two numbers"),
        (lambda: RandomRotation((3, 1)), r"RandomRotation: degrees=\(3, 1\); expected two numbers"),
        (lambda: RandomRotation(3, expand=True), r"RandomRotation: expand=True; expected False"),
        (lambda: RandomRotation(3, "bicubic"), r"RandomRotation: interpolation='bicubic'; expected 'nearest' or"),
        (lambda: RandomAffine(3, (2, 0)), r"RandomAffine: translate=\(2, 0\); expected two shares"),
        (lambda: RandomAffine(3, scale=(0, 1)), r"RandomAffine: scale=\(0, 1\); expected two numbers"),
        (lambda: RandomAffine(3, shear=(1, 2, 3)), r"RandomAffine: shear=\(1, 2, 3\); expected two numbers"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
