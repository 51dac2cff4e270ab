"""A rectangle without its picture: how often, how large, and what stands in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.data.transforms import RandomErasing


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def holes(found: Any) -> list[tuple[int, int, int]]:
    """(elements, height, width) of what was erased in each image, where anything was."""
    sizes = []
    for image in found:
        y, x = np.nonzero(image[0] != 1)
        if len(y):
            sizes.append((len(y), int(np.ptp(y)) + 1, int(np.ptp(x)) + 1))
    return sizes


def test_one_rectangle_of_the_areas_and_proportions() -> None:
    sizes = holes(RandomErasing(0.4, (0.05, 0.2), (0.5, 2))(np.ones((1500, 2, 60, 40)), rng()))
    assert abs(len(sizes) / 1500 - 0.4) < 0.04
    assert all(count == height * width for count, height, width in sizes)
    shares = np.array([count / 2400 for count, _, _ in sizes])
    ratios = np.array([height / width for _, height, width in sizes])
    assert 0.04 < shares.min() < 0.06
    assert 0.18 < shares.max() < 0.22
    assert 0.45 < ratios.min() < 0.6
    assert 1.7 < ratios.max() < 2.3


@pytest.mark.parametrize("value", [0, 0.5, [0.25, 0.75], "random"])
def test_what_stands_in_it(value: Any) -> None:
    images = np.full((1, 2, 40, 40), 9.0)
    found = RandomErasing(1.0, (0.2, 0.3), value=value)(images, rng(1))[0]
    inside = found[:, (found[0] != 9)]
    assert inside.size > 0.2 * 3200 * 0.9
    if value == "random":
        assert abs(inside.mean()) < 0.1
        assert abs(inside.std() - 1) < 0.1
    else:
        assert np.array_equal(inside, np.broadcast_to(np.reshape(value, (-1, 1)), inside.shape))


def test_no_rectangle_fits() -> None:
    images = np.ones((3, 1, 4, 4))
    assert np.array_equal(RandomErasing(1.0, (1, 1))(images, rng()), images)


def test_wrong_arguments() -> None:
    for make, message in [
        (lambda: RandomErasing(2), r"RandomErasing: p=2; expected a probability"),
        (lambda: RandomErasing(scale=(0, 2)), r"RandomErasing: scale=\(0, 2\); expected two numbers, 0 <= first"),
        (
            lambda: RandomErasing(value="zero"),
            r"RandomErasing: value='zero'; expected a number, or one for each channel, or 'random'",
        ),
        (
            lambda: RandomErasing(1.0, value=[1, 2])(np.ones((1, 3, 4, 4)), rng()),
            r"RandomErasing: value has 2 numbers and the images have shape \(1, 3, 4, 4\); expected 1 or 3",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
