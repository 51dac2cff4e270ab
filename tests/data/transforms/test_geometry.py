"""Windows and mirrors: the pixels that stay, how often each happens, and the errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minorm.data.transforms import CenterCrop, Pad, RandomCrop, RandomHorizontalFlip, RandomVerticalFlip

IMAGES = np.random.default_rng(0).random((6, 3, 5, 4), dtype=np.float32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)),
    padding=st.tuples(st.integers(0, 9), st.integers(0, 9)),  # more than the image: some windows miss it
    data=st.data(),
)
def test_a_crop_is_a_window_of_the_padded_image(shape: Any, padding: tuple[int, int], data: st.DataObject) -> None:
    size = tuple(data.draw(st.integers(1, shape[2 + i] + 2 * padding[i])) for i in range(2))
    images = rng(1).random(shape) + 1
    padded = np.pad(images, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    found = RandomCrop((size[0], size[1]), padding)(images, rng(2))
    assert found.shape == (*shape[:2], *size)
    assert found.dtype == images.dtype
    for image, whole in zip(found, padded, strict=True):
        rows, columns = whole.shape[1] - size[0] + 1, whole.shape[2] - size[1] + 1
        windows = [whole[:, y : y + size[0], x : x + size[1]] for y in range(rows) for x in range(columns)]
        assert any(np.array_equal(image, window) for window in windows)


def test_every_crop_happens_and_about_as_often() -> None:
    images = np.broadcast_to(np.arange(9.0).reshape(3, 3), (9000, 1, 3, 3))
    corners = RandomCrop(2)(images, rng())[:, 0, 0, 0]
    places, counts = np.unique(corners, return_counts=True)
    assert places.tolist() == [0, 1, 3, 4]
    assert (abs(counts - 2250) < 200).all()


def test_a_crop_of_bytes_stays_bytes() -> None:
    assert RandomCrop(3, 1)(np.zeros((2, 1, 3, 3), np.uint8), rng()).dtype == np.uint8


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_flips(p: float) -> None:
    images = rng(1).random((4000, 1, 2, 3))
    found = RandomHorizontalFlip(p)(images, rng())
    flipped = (found == images[..., ::-1]).all(axis=(1, 2, 3))
    kept = (found == images).all(axis=(1, 2, 3))
    assert (flipped ^ kept).all()
    assert abs(flipped.mean() - p) < 0.03


def test_vertical_flips() -> None:
    images = rng(1).random((4000, 2, 3, 2))
    found = RandomVerticalFlip(0.3)(images, rng())
    flipped = (found == images[:, :, ::-1]).all(axis=(1, 2, 3))
    assert (flipped ^ (found == images).all(axis=(1, 2, 3))).all()
    assert abs(flipped.mean() - 0.3) < 0.03


@pytest.mark.parametrize(("mode", "numpys"), [("constant", "constant"), ("edge", "edge"), ("reflect", "reflect"),
                                              ("symmetric", "symmetric")])  # fmt: skip
@pytest.mark.parametrize(
    ("padding", "sides"), [(2, (2, 2, 2, 2)), ((1, 3), (1, 3, 1, 3)), ((0, 1, 2, 3), (0, 1, 2, 3))]
)
def test_padding_is_numpys(mode: str, numpys: Any, padding: Any, sides: tuple[int, ...]) -> None:
    left, above, right, below = sides
    filled = {"constant_values": 0.5} if mode == "constant" else {}
    expected = np.pad(IMAGES, ((0, 0), (0, 0), (above, below), (left, right)), numpys, **filled)
    assert np.array_equal(Pad(padding, 0.5, mode)(IMAGES, rng()), expected)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric"])
def test_a_crop_of_copies(mode: Any) -> None:
    found = RandomCrop((5, 4), padding=2, padding_mode=mode)(IMAGES, rng(4))
    expected = RandomCrop((5, 4))(np.pad(IMAGES, ((0, 0), (0, 0), (2, 2), (2, 2)), mode), rng(4))
    assert np.array_equal(found, expected)
    assert (RandomCrop(9, padding=2, fill=3)(np.zeros((1, 1, 5, 5)), rng()) == 3).sum() == 81 - 25


@pytest.mark.parametrize(
    ("size", "corner"), [((3, 2), (1, 1)), ((2, 3), (2, 0)), (4, (0, 0)), ((5, 4), (0, 0)), ((4, 1), (0, 2))]
)
def test_the_middle(size: Any, corner: tuple[int, int]) -> None:
    height, width = (size, size) if isinstance(size, int) else size
    expected = IMAGES[:, :, corner[0] : corner[0] + height, corner[1] : corner[1] + width]
    assert np.array_equal(CenterCrop(size)(IMAGES, rng()), expected)


def test_the_middle_of_less() -> None:
    found = CenterCrop((7, 5))(IMAGES, rng())
    assert np.array_equal(found, np.pad(IMAGES, ((0, 0), (0, 0), (1, 1), (0, 1))))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomCrop(0), r"RandomCrop: size=0; expected an int of at least 1"),
        (lambda: RandomCrop(3, -1), r"RandomCrop: padding=-1; expected an int of at least 0"),
        (lambda: RandomCrop((1, 2, 3)), r"RandomCrop: size=\(1, 2, 3\)"),  # type: ignore[arg-type]
        (
            lambda: RandomCrop(3, padding_mode="wrap"),
            r"RandomCrop: padding_mode='wrap'; expected one of constant, edge",
        ),
        (
            lambda: RandomCrop(8, 1)(IMAGES, rng()),
            r"size=\(8, 8\) .*padding \(1, 1\); expected a size of at most \(7, 6\)",
        ),
        (lambda: RandomHorizontalFlip(1.5), r"RandomHorizontalFlip: p=1.5; expected a probability"),
        (lambda: RandomVerticalFlip(-1), r"RandomVerticalFlip: p=-1; expected a probability"),
        (lambda: Pad((1, 2, 3)), r"Pad: padding=\(1, 2, 3\); expected 1, 2 or 4 ints of at least 0"),
        (lambda: CenterCrop((0, 1)), r"CenterCrop: size=\(0, 1\)"),
    ],
)
def test_wrong_arguments(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
