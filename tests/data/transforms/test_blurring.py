"""GaussianBlur: against SciPy's filter, mirrored at the outermost elements."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from minorm.data.transforms import GaussianBlur

IMAGES = np.random.default_rng(0).random((3, 2, 9, 7))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("kernel_size", [1, 3, 5, (3, 7), (7, 1)])
def test_each_image_is_scipys(kernel_size: Any) -> None:
    filters = pytest.importorskip("scipy.ndimage")
    found = GaussianBlur(kernel_size, (0.5, 1.5))(IMAGES, rng())
    along_x, along_y = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    for image, changed, sigma in zip(IMAGES, found, rng().uniform(0.5, 1.5, 3), strict=True):
        for channel, result in zip(image, changed, strict=True):
            expected = filters.gaussian_filter1d(channel, sigma, 1, mode="mirror", radius=along_x // 2)
            expected = filters.gaussian_filter1d(expected, sigma, 0, mode="mirror", radius=along_y // 2)
            np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_types_stay_and_bytes_are_rounded() -> None:
    narrow = GaussianBlur(3, 1.0)(IMAGES.astype(np.float32), rng())
    assert narrow.dtype == np.float32
    wide = (IMAGES * 255).astype(np.uint8)
    found = GaussianBlur(3, 1.0)(wide, rng())
    assert found.dtype == np.uint8
    assert np.array_equal(found, np.rint(GaussianBlur(3, 1.0)(wide.astype(np.float32), rng())))


def test_the_images_that_come_stay_as_they_are() -> None:
    before = IMAGES.copy()
    GaussianBlur(3)(IMAGES, rng())
    assert np.array_equal(IMAGES, before)
    assert GaussianBlur(3)(np.empty((0, 2, 9, 7)), rng()).shape == (0, 2, 9, 7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianBlur(4), "GaussianBlur: kernel_size=4; expected odd numbers"),
        (lambda: GaussianBlur(0), "GaussianBlur: kernel_size=0; expected an int of at least 1"),
        (lambda: GaussianBlur(3, 0.0), "GaussianBlur: sigma=(0.0, 0.0); expected two numbers"),
        (lambda: GaussianBlur(3, (2.0, 1.0)), "GaussianBlur: sigma=(2.0, 1.0); expected two numbers"),
        (
            lambda: GaussianBlur((15, 3))(IMAGES),
            "GaussianBlur: kernel_size=(15, 3) and images of shape (3, 2, 9, 7); expected a kernel of at most 13",
        ),
    ],
)
def test_mistakes(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
