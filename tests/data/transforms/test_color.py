"""Numbers of pixels: against the formula in float64, colorsys and torchvision's own arithmetic."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
import pytest

from minorm.data.transforms import ColorJitter, Grayscale, Normalize, RandomGrayscale
from minorm.data.transforms.color import brightened, contrasted, hued, saturated

IMAGES = np.random.default_rng(0).random((6, 3, 5, 4), dtype=np.float32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def grey(image: Any) -> Any:
    return 0.2989 * image[..., 0, :, :] + 0.587 * image[..., 1, :, :] + 0.114 * image[..., 2, :, :]


def test_normalize_each_channel_and_all() -> None:
    mean, std = [0.1, 0.2, 0.3], [0.5, 1.0, 2.0]
    expected = (IMAGES - np.float32(mean).reshape(3, 1, 1)) / np.float32(std).reshape(3, 1, 1)
    found = Normalize(mean, std)(IMAGES, rng())
    assert found.dtype == np.float32
    assert np.array_equal(found, expected)
    assert np.array_equal(Normalize(0.5, 2)(IMAGES, rng()), (IMAGES - np.float32(0.5)) / np.float32(2))
    assert Normalize(0.5, 2)(IMAGES.astype(np.float64), rng()).dtype == np.float64


def test_normalize_is_torchvisions() -> None:
    torch = pytest.importorskip("torch")
    mean, std = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
    theirs = (
        torch.from_numpy(IMAGES.copy()).sub_(torch.tensor(mean).view(-1, 1, 1)).div_(torch.tensor(std).view(-1, 1, 1))
    )
    assert np.array_equal(Normalize(mean, std)(IMAGES, rng()), theirs.numpy())


def test_normalize_refuses() -> None:
    for make, message in [
        (lambda: Normalize(0, 0), r"Normalize: mean=0, std=0; expected finite numbers, and std above 0"),
        (lambda: Normalize(0, [1, float("nan")]), r"Normalize: .*expected finite"),
        (
            lambda: Normalize([0, 0], 1)(IMAGES, rng()),
            r"mean has 2 numbers and the images have shape \(6, 3, 5, 4\); expected 1 or 3",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(TypeError, match=r"Normalize: the images are uint8; expected floats"):
        Normalize(0, 1)(np.zeros((1, 1, 2, 2), np.uint8), rng())


@pytest.mark.parametrize("channels", [1, 3])
def test_grayscale(channels: int) -> None:
    wide = IMAGES.astype(np.float64)
    found = Grayscale(channels)(wide, rng())
    assert found.shape == (6, channels, 5, 4)
    np.testing.assert_allclose(found, np.repeat(grey(wide)[:, None], channels, 1), rtol=1e-14)
    assert np.array_equal(Grayscale()(IMAGES[:, :1], rng()), IMAGES[:, :1])
    bytes_ = (IMAGES * 255).astype(np.uint8)
    assert np.array_equal(Grayscale()(bytes_, rng())[:, 0], grey(bytes_.astype(np.float64)).astype(np.uint8))


def test_random_grayscale() -> None:
    images = rng(1).random((2000, 3, 2, 2))
    found = RandomGrayscale(0.3)(images, rng())
    without = (found == grey(images)[:, None]).all(axis=(1, 2, 3))
    assert (without ^ (found == images).all(axis=(1, 2, 3))).all()
    assert abs(without.mean() - 0.3) < 0.04


@pytest.mark.parametrize("f", [0.0, 0.4, 1.0, 1.7])
def test_factors_of_brightness_contrast_and_saturation(f: float) -> None:
    image = IMAGES[0].astype(np.float64)
    np.testing.assert_allclose(brightened(image, f), np.minimum(f * image, 1), rtol=1e-13)
    mixed = f * image + (1 - f) * grey(image).mean()
    np.testing.assert_allclose(contrasted(image, f), mixed.clip(0, 1), rtol=1e-13)
    np.testing.assert_allclose(
        saturated(image, f), (f * image + (1 - f) * grey(image)).clip(0, 1), rtol=1e-13, atol=1e-14
    )


@pytest.mark.parametrize("f", [-0.5, -0.2, 0.0, 0.1, 0.5])
def test_hues_are_colorsyss(f: float) -> None:
    image = rng(3).random((3, 8, 8))
    image[:, 0] = image[0, 0]  # grey ones
    image[:, 1, :4] = np.eye(3, 4)  # pure ones, and black
    pixels = [colorsys.rgb_to_hsv(*pixel) for pixel in image.reshape(3, -1).T]
    turned = np.array([colorsys.hsv_to_rgb((h + f) % 1, s, v) for h, s, v in pixels]).T.reshape(image.shape)
    np.testing.assert_allclose(hued(image, f), turned, atol=1e-12)


def test_each_image_has_factors_and_an_order_of_its_own() -> None:
    images = np.full((500, 3, 1, 1), 0.5)
    found = ColorJitter(brightness=0.4)(images, rng())[:, 0, 0, 0] / 0.5
    assert len(np.unique(found)) == 500
    assert 0.6 <= found.min() < 0.62
    assert 1.38 < found.max() <= 1.4
    wide = IMAGES.astype(np.float64)
    both = ColorJitter((1.5, 1.5), (0.5, 0.5))(wide, rng(2))
    for image, changed in zip(wide, both, strict=True):
        orders = [contrasted(brightened(image, 1.5), 0.5), brightened(contrasted(image, 0.5), 1.5)]
        assert any(np.array_equal(changed, order) for order in orders)
    assert np.array_equal(ColorJitter()(IMAGES, rng()), IMAGES)
    assert ColorJitter(0.4, 0.4, 0.4, 0.1)(IMAGES, rng()).dtype == np.float32
    assert ColorJitter(0.4, 0.4, 0.4, 0.1)(IMAGES[:, :1], rng()).shape == (6, 1, 5, 4)


def test_wrong_arguments() -> None:
    for make, message in [
        (lambda: Grayscale(2), r"Grayscale: num_output_channels=2; expected 1 or 3"),
        (
            lambda: Grayscale()(IMAGES[:, :2], rng()),
            r"Grayscale: images have shape \(6, 2, 5, 4\); expected 1 or 3 channels",
        ),
        (lambda: ColorJitter(-1), r"ColorJitter: brightness=-1; expected at least 0, or two numbers"),
        (lambda: ColorJitter(contrast=(2, 1)), r"ColorJitter: contrast=\(2, 1\); expected two numbers, 0 <= first"),
        (lambda: ColorJitter(hue=0.6), r"ColorJitter: hue=\(-0.6, 0.6\); expected two numbers, -0.5 <= first"),
        (lambda: ColorJitter(1)(IMAGES[:, :2], rng()), r"ColorJitter: images have shape .*expected 1 or 3 channels"),
        (lambda: RandomGrayscale(2), r"RandomGrayscale: p=2; expected a probability"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(TypeError, match=r"ColorJitter: the images are uint8; expected floats"):
        ColorJitter(1)(np.zeros((1, 3, 2, 2), np.uint8), rng())
