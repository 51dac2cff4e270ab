"""Tones of images: against Pillow on the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minorm.data.transforms import tones

pytest.importorskip("PIL")
from PIL import Image, ImageEnhance, ImageOps

BYTES = np.random.default_rng(0).integers(20, 200, (3, 3, 12, 10)).astype(np.uint8)
FLOATS = (BYTES / 255).astype(np.float32)


def by_pillow(change: Callable[[Any], Any]) -> np.ndarray:
    """The change of each picture, as bytes N x C x H x W."""
    pictures = [Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))) for image in BYTES]
    return np.stack([np.asarray(change(picture)).transpose(2, 0, 1) for picture in pictures])


def as_bytes(images: Any) -> np.ndarray:
    return np.rint(images * 255).astype(int)


@pytest.mark.parametrize("bits", range(1, 9))
def test_posterized(bits: int) -> None:
    expected = by_pillow(lambda picture: ImageOps.posterize(picture, bits))
    assert np.array_equal(as_bytes(tones.posterized(FLOATS, bits)), expected)


def test_posterized_to_no_bit_is_black() -> None:
    assert not tones.posterized(FLOATS, 0).any()


@pytest.mark.parametrize("threshold", [0, 100, 128, 255, 256])
def test_solarized(threshold: int) -> None:
    expected = by_pillow(lambda picture: ImageOps.solarize(picture, threshold))
    assert np.array_equal(as_bytes(tones.solarized(FLOATS, threshold / 255)), expected)


def test_equalized() -> None:
    assert np.array_equal(as_bytes(tones.equalized(FLOATS)), by_pillow(ImageOps.equalize))
    large = np.random.default_rng(1).integers(0, 30, (64, 64)).astype(np.uint8)  # more elements than tones
    expected = np.asarray(ImageOps.equalize(Image.fromarray(large)))
    assert np.array_equal(as_bytes(tones.equalized(large[None, None] / 255))[0, 0], expected)


def test_autocontrasted() -> None:
    found = as_bytes(tones.autocontrasted(FLOATS))
    assert np.abs(found - by_pillow(ImageOps.autocontrast)).max() <= 1  # Pillow cuts, and we have no bytes
    assert (found.min((2, 3)) == 0).all()
    assert (found.max((2, 3)) == 255).all()


def test_one_tone_stays() -> None:
    flat = np.full((1, 3, 4, 4), 0.25, np.float32)
    for change in (tones.autocontrasted, tones.equalized):
        assert np.array_equal(as_bytes(change(flat)), as_bytes(flat))


@pytest.mark.parametrize("f", [0.1, 1.0, 1.9])
def test_sharpened(f: float) -> None:
    expected = by_pillow(lambda picture: ImageEnhance.Sharpness(picture).enhance(f))
    assert np.abs(as_bytes(tones.sharpened(FLOATS, f)) - expected.astype(int)).max() <= 2  # its means are bytes
    assert np.array_equal(tones.sharpened(FLOATS, 1.0), FLOATS)
    assert np.array_equal(tones.sharpened(FLOATS[:, :, :2], f), FLOATS[:, :, :2])
