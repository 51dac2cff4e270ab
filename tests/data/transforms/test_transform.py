"""All transforms take batches, single images, arrays and Tensors, draw from the generator, and keep their input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.data import transforms
from minorm.data.transforms import (
    CenterCrop,
    ColorJitter,
    Compose,
    GaussianBlur,
    Grayscale,
    Normalize,
    Pad,
    RandAugment,
    RandomAffine,
    RandomApply,
    RandomChoice,
    RandomCrop,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    RandomVerticalFlip,
    Resize,
    TrivialAugmentWide,
)

IMAGES = np.random.default_rng(0).random((6, 3, 5, 4), dtype=np.float32)
RANDOM = [
    RandomCrop(4, 2),
    RandomHorizontalFlip(),
    RandomVerticalFlip(),
    RandomResizedCrop(3),
    RandomErasing(),
    ColorJitter(0.3, 0.3, 0.3, 0.3),
    RandomRotation(90),
    RandomAffine(30, (0.3, 0.3), (0.5, 1.5), 10),
    RandomGrayscale(0.5),
    GaussianBlur(3),
    RandAugment(5, 20),
    RandomPerspective(0.8),
    TrivialAugmentWide(),
    RandomApply([RandomCrop((5, 4), 1)]),
    RandomChoice([RandomHorizontalFlip(), RandomVerticalFlip()]),
    Compose([RandomCrop(3)]),
]
PLAIN = [Normalize(0.1, 2), Resize(3), CenterCrop(3), Pad(1), Grayscale()]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_every_transform_is_here() -> None:
    tried = {type(transform).__name__ for transform in RANDOM + PLAIN}
    others = {"ImageTransform", "InterpolationMode", "Lambda", "ToDtype", "ToImage", "ToTensor", "Transform"}
    assert tried | others == set(transforms.__all__)


@pytest.mark.parametrize("transform", RANDOM + PLAIN, ids=lambda transform: type(transform).__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_the_generator_decides_and_the_input_stays(transform: Any, dtype: Any) -> None:
    before = IMAGES.astype(dtype)
    kept = before.copy()
    before.setflags(write=False)
    first, second, other = transform(before, rng(1)), transform(before, rng(1)), transform(before, rng(2))
    assert np.array_equal(first, second)
    assert np.array_equal(first, other) == (transform in PLAIN)
    assert np.array_equal(before, kept)
    assert not np.shares_memory(first, before)
    assert first.dtype == dtype


@pytest.mark.parametrize("transform", RANDOM + PLAIN, ids=lambda transform: type(transform).__name__)
def test_one_image_and_a_tensor(transform: Any) -> None:
    whole = transform(IMAGES[:1], rng(1))
    assert np.array_equal(transform(IMAGES[0], rng(1)), whole[0])
    tensor = transform(mn.tensor(IMAGES[0]), rng(1))
    assert isinstance(tensor, mn.Tensor)
    assert np.array_equal(tensor.numpy(), whole[0])
    assert len(transform(IMAGES[:0], rng())) == 0
    mn.manual_seed(7)
    first = transform(IMAGES)
    mn.manual_seed(7)
    same = np.random.Generator(np.random.Philox(7))
    assert np.array_equal(transform(IMAGES, mn.Generator().manual_seed(7)), transform(IMAGES, same))
    assert np.array_equal(transform(IMAGES), first)


@pytest.mark.parametrize("transform", [RandomCrop(2), RandomHorizontalFlip(), Normalize(0, 1)])
def test_what_is_no_image(transform: Any) -> None:
    with pytest.raises(ValueError, match=r": images are \(5, 4\); expected an array of shape \(N, C, H, W\), or"):
        transform(IMAGES[0, 0], rng())
    with pytest.raises(ValueError, match=r": images are list; expected an array"):
        transform([[1.0]], rng())
