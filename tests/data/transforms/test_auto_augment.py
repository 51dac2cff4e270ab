"""RandAugment and TrivialAugmentWide: each operation against Pillow on the same bytes, and how they are drawn."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from minorm.data.transforms import RandAugment, TrivialAugmentWide

pytest.importorskip("PIL")
from PIL import Image, ImageEnhance, ImageOps

BYTES = np.random.default_rng(0).integers(0, 256, (3, 16, 12)).astype(np.uint8)
FLOATS = (BYTES / 255).astype(np.float32)[None]
NAMES = [
    *("Identity", "ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast"),
    *("Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize"),
]


def moved(*numbers: float) -> Any:
    return lambda picture: picture.transform(picture.size, Image.Transform.AFFINE, numbers)


def pillows(name: str, v: float) -> Any:
    """Return Pillow's version of the operation, a function of a picture."""
    return {
        "Identity": lambda picture: picture,
        "ShearX": moved(1, v, 0, 0, 1, 0),
        "ShearY": moved(1, 0, 0, v, 1, 0),
        "TranslateX": moved(1, 0, -int(v), 0, 1, 0),
        "TranslateY": moved(1, 0, 0, 0, 1, -int(v)),
        "Rotate": lambda picture: picture.rotate(v),
        "Brightness": lambda picture: ImageEnhance.Brightness(picture).enhance(1 + v),
        "Color": lambda picture: ImageEnhance.Color(picture).enhance(1 + v),
        "Contrast": lambda picture: ImageEnhance.Contrast(picture).enhance(1 + v),
        "Sharpness": lambda picture: ImageEnhance.Sharpness(picture).enhance(1 + v),
        "Posterize": lambda picture: ImageOps.posterize(picture, int(v)),
        "Solarize": lambda picture: ImageOps.solarize(picture, v * 255),
        "AutoContrast": ImageOps.autocontrast,
        "Equalize": ImageOps.equalize,
    }[name]


class Fixed:
    """A generator that draws one operation and one sign."""

    def __init__(self, operation: int, sign: int) -> None:
        self.operation, self.sign = operation, sign

    def integers(self, high: int, size: int) -> Any:
        return np.full(size, self.sign if high == 2 else self.operation)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize(("transform", "bin"), [(RandAugment(), 9), (RandAugment(), 30), (TrivialAugmentWide(), 17)])
def test_each_operation_is_pillows(name: str, sign: int, transform: Any, bin: int) -> None:
    magnitudes, signed = transform.space(16, 12)[name]
    value = float(magnitudes[bin]) * (-1 if signed and sign else 1)
    generator: Any = Fixed(NAMES.index(name), sign)
    found = np.rint(transform.changed(FLOATS, np.array([bin]), generator)[0] * 255)
    picture = Image.fromarray(np.ascontiguousarray(BYTES.transpose(1, 2, 0)))
    expected = np.asarray(pillows(name, value)(picture)).transpose(2, 0, 1).astype(int)
    off = np.abs(found - expected)
    if name.startswith(("Shear", "Rotate")):
        assert (off > 0).mean() <= 0.02  # a place between two elements may go to either
    else:
        exact = name in ("Identity", "TranslateX", "TranslateY", "Posterize", "Solarize", "Equalize")
        assert off.max() <= (0 if exact else 2)  # Pillow's grey, means and products are bytes


def test_ranges_are_the_papers() -> None:
    space = RandAugment(num_magnitude_bins=31).space(40, 80)
    assert list(space) == NAMES
    ends = {name: (magnitudes[0], magnitudes[-1]) for name, (magnitudes, _) in space.items()}
    assert ends["ShearX"] == (0, 0.3)
    assert ends["TranslateX"] == (0, pytest.approx(150 / 331 * 80))
    assert ends["TranslateY"] == (0, pytest.approx(150 / 331 * 40))
    assert (ends["Rotate"], ends["Contrast"], ends["Posterize"]) == ((0, 30), (0, 0.9), (8, 4))
    assert ends["Solarize"] == (1, 0)
    wide = TrivialAugmentWide().space(40, 80)
    ends = {name: (magnitudes[0], magnitudes[-1]) for name, (magnitudes, _) in wide.items()}
    assert (ends["ShearY"], ends["TranslateX"], ends["Rotate"]) == ((0, 0.99), (0, 32), (0, 135))
    assert (ends["Color"], ends["Posterize"]) == ((0, 0.99), (8, 2))
    signed = [name for name, (_, both) in wide.items() if both]
    assert signed == NAMES[1:10]


def test_all_operations_are_drawn_alike() -> None:
    seen: Counter[str] = Counter()

    class Counting(TrivialAugmentWide):
        def _operate(self, name: str, images: Any, values: Any) -> Any:
            seen[name] += len(images)
            return images

    Counting()(np.zeros((14_000, 1, 2, 2), np.float32), np.random.default_rng(0))
    assert seen.keys() == {*NAMES}
    assert all(abs(count - 1000) < 150 for count in seen.values())  # 5 standard deviations


@pytest.mark.parametrize("transform", [RandAugment(3, 20), TrivialAugmentWide()])
def test_the_same_generator_gives_the_same_images(transform: Any) -> None:
    images = np.random.default_rng(1).random((20, 3, 8, 8)).astype(np.float32)
    before = images.copy()
    found = transform(images, np.random.default_rng(5))
    assert np.array_equal(found, transform(images, np.random.default_rng(5)))
    assert not np.array_equal(found, transform(images, np.random.default_rng(6)))
    assert np.array_equal(images, before)
    assert found.dtype == np.float32
    assert 0 <= found.min() <= found.max() <= 1
    assert transform(images[:0], np.random.default_rng(5)).shape == (0, 3, 8, 8)
    assert transform(images[:, :1], np.random.default_rng(5)).shape == (20, 1, 8, 8)


def test_no_operation_is_a_copy_and_fill_stands_outside() -> None:
    images = np.ones((1, 3, 8, 8), np.float32)
    found = RandAugment(num_ops=0)(images)
    assert np.array_equal(found, images)
    assert found is not images
    generator: Any = Fixed(NAMES.index("TranslateX"), 0)
    moved_images = RandAugment(fill=[0.25, 0.5, 0.75]).changed(images, np.array([30]), generator)
    assert moved_images[0, :, 0, 0].tolist() == [0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RandAugment(magnitude=31), ValueError, "RandAugment: magnitude=31; expected less than num_magnitude"),
        (lambda: RandAugment(num_ops=-1), ValueError, "RandAugment: num_ops=-1; expected an int of at least 0"),
        (lambda: RandAugment(magnitude=2.5), ValueError, "RandAugment: magnitude=2.5; expected an int"),  # type: ignore[arg-type]
        (lambda: TrivialAugmentWide(1), ValueError, "TrivialAugmentWide: num_magnitude_bins=1; expected an int"),
        (lambda: TrivialAugmentWide(interpolation="area"), ValueError, "interpolation='area'; expected 'nearest'"),
        (lambda: RandAugment()(BYTES), TypeError, "RandAugment: the images are uint8; expected floats"),
    ],
)
def test_mistakes(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        make()
