"""Other sizes: PyTorch's interpolation, and windows drawn as torchvision draws them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.data.transforms import InterpolationMode, RandomResizedCrop, Resize

IMAGES = np.random.default_rng(0).random((4, 3, 12, 9))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("size", [(5, 4), (20, 6), (12, 9)])
def test_resizing_is_pytorchs(mode: str, antialias: bool, size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    smooth = mode.startswith("bi")
    options = {"align_corners": False, "antialias": antialias} if smooth else {}
    expected = torch.nn.functional.interpolate(torch.tensor(IMAGES), size, mode=mode, **options).numpy()
    np.testing.assert_allclose(Resize(size, mode, antialias=antialias)(IMAGES, rng()), expected, atol=1e-9)


def test_resizing_bytes_rounds() -> None:
    pictures = (IMAGES * 255).astype(np.uint8)
    found = Resize((5, 4))(pictures, rng())
    assert found.dtype == np.uint8
    exact = Resize((5, 4))(pictures.astype(np.float32), rng())
    assert np.array_equal(found, np.rint(exact).astype(np.uint8))


@pytest.mark.parametrize(
    ("size", "most", "lengths"), [(6, None, (8, 6)), ([6], None, (8, 6)), (9, 10, (10, 7)), (30, None, (40, 30))]
)
def test_the_shorter_side(size: Any, most: Any, lengths: tuple[int, int]) -> None:
    assert Resize(size, max_size=most)(IMAGES, rng()).shape[2:] == lengths
    assert Resize(size, max_size=most)(IMAGES.swapaxes(2, 3), rng()).shape[2:] == lengths[::-1]


def test_windows_have_the_areas_and_proportions() -> None:
    crop = RandomResizedCrop(4, scale=(0.2, 0.5), ratio=(0.5, 2.0))
    windows = np.array([crop.window(100, 80, rng(seed)) for seed in range(400)])
    top, left, height, width = windows.T
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= 100).all()
    assert (left + width <= 80).all()
    shares, ratios = height * width / 8000, width / height
    assert 0.18 < shares.min() < 0.23
    assert 0.44 < shares.max() < 0.52
    assert 0.47 < ratios.min() < 0.6
    assert 1.6 < ratios.max() < 2.1
    assert abs(np.log(ratios).mean()) < 0.1


def test_the_middle_where_no_window_fits() -> None:
    assert RandomResizedCrop(4, scale=(1, 1), ratio=(3, 4)).window(10, 20, rng()) == (1, 0, 7, 20)
    assert RandomResizedCrop(4, scale=(1, 1), ratio=(0.25, 0.5)).window(10, 20, rng()) == (0, 7, 10, 5)


def test_a_window_is_resized() -> None:
    crop = RandomResizedCrop((6, 5))
    found = crop(IMAGES, rng(3))
    generator = rng(3)
    for image, changed in zip(IMAGES, found, strict=True):
        top, left, height, width = crop.window(12, 9, generator)
        window = image[None, :, top : top + height, left : left + width]
        assert np.array_equal(changed[None], Resize((6, 5))(window, rng()))


def test_wrong_arguments() -> None:
    for make, message in [
        (lambda: Resize(0), r"Resize: size=0; expected an int of at least 1, or two"),
        (lambda: Resize(5, "linear"), r"Resize: interpolation='linear'; expected one of nearest, nearest-exact"),
        (lambda: Resize((5, 5), max_size=9), r"Resize: max_size=9 with size=\(5, 5\)"),
        (lambda: RandomResizedCrop(0), r"RandomResizedCrop: size=0; expected an int"),
        (lambda: RandomResizedCrop(3, (1, 0.5)), r"RandomResizedCrop: scale=\(1, 0.5\); expected two numbers"),
        (lambda: RandomResizedCrop(3, ratio=(0, 1)), r"RandomResizedCrop: ratio=\(0, 1\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    assert Resize(5, InterpolationMode.NEAREST).interpolation == "nearest"
