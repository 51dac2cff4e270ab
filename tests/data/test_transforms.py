"""Transforms of image batches: the arithmetic, the draws, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minorm.data.transforms import Compose, Normalize, RandomCrop, RandomHorizontalFlip

IMAGES = np.random.default_rng(0).random((6, 3, 5, 4), dtype=np.float32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


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


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)),
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
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


def test_compose_is_one_after_the_other() -> None:
    steps = [RandomCrop(4, padding=1), RandomHorizontalFlip(), Normalize(0.5, 0.25)]
    expected, generator = IMAGES, rng(3)
    for step in steps:
        expected = step(expected, generator)
    assert np.array_equal(Compose(steps)(IMAGES, rng(3)), expected)
    assert Compose([])(IMAGES, rng()) is IMAGES


@pytest.mark.parametrize(
    "transform", [RandomCrop(4, 2), RandomHorizontalFlip(), Normalize(0.1, 2), Compose([RandomCrop(3)])]
)
def test_the_generator_decides_and_the_input_stays(transform: Any) -> None:
    before = IMAGES.copy()
    before.setflags(write=False)
    first, second, other = transform(before, rng(1)), transform(before, rng(1)), transform(before, rng(2))
    assert np.array_equal(first, second)
    assert np.array_equal(first, other) == isinstance(transform, Normalize)
    assert np.array_equal(before, IMAGES)
    assert not np.shares_memory(first, before)


@pytest.mark.parametrize("transform", [RandomCrop(2), RandomHorizontalFlip(), Normalize(0, 1)])
def test_one_image_is_no_batch(transform: Any) -> None:
    with pytest.raises(ValueError, match=r": images are \(3, 5, 4\); expected an array of shape \(N, C, H, W\)"):
        transform(IMAGES[0], rng())


def test_wrong_arguments() -> None:
    for make, message in [
        (lambda: Normalize(0, 0), r"Normalize: mean=0, std=0; expected finite numbers, and std above 0"),
        (lambda: Normalize(0, [1, float("nan")]), r"Normalize: .*expected finite"),
        (
            lambda: Normalize([0, 0], 1)(IMAGES, rng()),
            r"mean has 2 numbers and the images have shape \(6, 3, 5, 4\); expected 1 or 3",
        ),
        (lambda: RandomCrop(0), r"RandomCrop: size=0; expected an int of at least 1"),
        (lambda: RandomCrop(3, -1), r"RandomCrop: padding=-1; expected an int of at least 0"),
        (lambda: RandomCrop((1, 2, 3)), r"RandomCrop: size=\(1, 2, 3\)"),  # type: ignore[arg-type]
        (
            lambda: RandomCrop(8, 1)(IMAGES, rng()),
            r"images of shape \(6, 3, 5, 4\) with padding \(1, 1\) are smaller than size \(8, 8\)",
        ),
        (lambda: RandomHorizontalFlip(1.5), r"p=1.5; expected a probability"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    with pytest.raises(TypeError, match=r"Normalize: the images are uint8; expected floats"):
        Normalize(0, 1)(np.zeros((1, 1, 2, 2), np.uint8), rng())
