"""One transform after the other, perhaps, or one of several."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.data import ArrayDataset, DataLoader
from minorm.data.transforms import (
    Compose,
    Lambda,
    Normalize,
    Pad,
    RandomApply,
    RandomChoice,
    RandomCrop,
    RandomHorizontalFlip,
)

IMAGES = np.random.default_rng(0).random((6, 3, 5, 4), dtype=np.float32)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_compose_is_one_after_the_other() -> None:
    steps = [RandomCrop(4, padding=1), RandomHorizontalFlip(), Normalize(0.5, 0.25)]
    expected, generator = IMAGES, rng(3)
    for step in steps:
        expected = step(expected, generator)
    assert np.array_equal(Compose(steps)(IMAGES, rng(3)), expected)
    assert Compose([])(IMAGES, rng()) is IMAGES


def test_functions_of_the_images_alone() -> None:
    twice = Compose([lambda images: images * 2, Lambda(lambda images: images + 1), np.sqrt])
    assert np.array_equal(twice(IMAGES, rng()), np.sqrt(IMAGES * 2 + 1))
    noisy = Compose([lambda images, generator: images + generator.random(1)])
    assert np.array_equal(noisy(IMAGES, rng(1)), IMAGES + rng(1).random(1))
    with pytest.raises(TypeError, match=r"Lambda: lambd is a int; expected a function"):
        Lambda(3)  # type: ignore[arg-type]


def test_perhaps() -> None:
    images = rng(1).random((3000, 1, 2, 2))
    found = RandomApply([Lambda(lambda x: x + 1), Lambda(lambda x: x * 2)], p=0.3)(images, rng())
    changed = (found == (images + 1) * 2).all(axis=(1, 2, 3))
    assert (changed ^ (found == images).all(axis=(1, 2, 3))).all()
    assert abs(changed.mean() - 0.3) < 0.03
    with pytest.raises(
        ValueError, match=r"RandomApply: for images of shape \(3, 5, 4\) the transforms' result has shape \(3, 7, 6\)"
    ):
        RandomApply([Pad(1)], p=1.0)(IMAGES, rng())


@pytest.mark.parametrize("p", [None, [1, 3]])
def test_one_of_several(p: Any) -> None:
    images = rng(1).random((3000, 1, 2, 2))
    found = RandomChoice([Lambda(lambda x: x + 1), Lambda(lambda x: x * 2)], p)(images, rng())
    first = (found == images + 1).all(axis=(1, 2, 3))
    assert (first ^ (found == images * 2).all(axis=(1, 2, 3))).all()
    assert abs(first.mean() - (0.5 if p is None else 0.25)) < 0.03
    assert RandomChoice([Pad(1)])(IMAGES, rng()).shape == (6, 3, 7, 6)
    with pytest.raises(
        ValueError, match=r"RandomChoice: the transforms' results have shapes \[\(3, 5, 4\), \(3, 7, 6\)\]"
    ):
        RandomChoice([Pad(1), Pad(0)])(IMAGES, rng(1))
    with pytest.raises(
        ValueError, match=r"RandomChoice: p=\[1\] for 2 transforms; expected a number of at least 0 for each"
    ):
        RandomChoice([Pad(1), Pad(0)], [1])


def test_they_show_what_they_hold() -> None:
    steps = Compose([RandomCrop(4, padding=1), RandomApply([RandomHorizontalFlip()], 0.25), Normalize(0.5, [1, 2])])
    assert repr(steps) == (
        "Compose(\n    RandomCrop(size=(4, 4), padding=(1, 1), fill=0, padding_mode='constant')\n    RandomApply(\n"
        "        RandomHorizontalFlip(p=0.5)\n        p=0.25\n    )\n    Normalize(mean=[0.5], std=[1.0, 2.0])\n)"
    )
    assert repr(RandomChoice([Pad(1)])) == (
        "RandomChoice(\n    Pad(padding=(1, 1, 1, 1), fill=0, padding_mode='constant')\n    p=None\n)"
    )


def test_in_a_dataset_and_in_a_loader() -> None:
    steps = Compose([RandomHorizontalFlip(), Normalize(0.5, 0.5)])
    mn.manual_seed(3)
    alone = steps(mn.tensor(IMAGES[0]))
    assert isinstance(alone, mn.Tensor)
    mn.manual_seed(3)
    assert np.array_equal(alone.numpy(), steps(IMAGES[:1])[0])
    loader = mn.data.DataLoader(mn.data.ArrayDataset(IMAGES), 2, transform=lambda images: images + 1)
    assert np.array_equal(next(iter(loader))[0].numpy(), IMAGES[:2] + 1)


def flipped(images: Any, vertical: bool = False) -> Any:
    return images[..., ::-1, :] if vertical else images[..., ::-1]


def noisy(images: Any, scale: float = 1.0, *, generator: Any = None) -> Any:
    return images + scale * generator.random()


def rolled(images: Any, rng: Any) -> Any:
    return images + rng.random()


def any_number(*images: Any) -> Any:
    return images[0] * len(images)


class Twice(nn.Module):
    def forward(self, images: Any, factor: float = 2.0) -> Any:
        return images * factor


@pytest.mark.parametrize(
    ("transform", "want"),
    [
        (flipped, lambda x: x[..., ::-1]),
        (functools.partial(flipped, vertical=True), lambda x: x[..., ::-1, :]),
        (any_number, lambda x: x),
        (Twice(), lambda x: x * 2),
        (np.negative, lambda x: -x),
        (noisy, lambda x: x + np.random.default_rng((5, 0, 0)).random()),
        (functools.partial(noisy, generator=rng(7)), lambda x: x + rng(7).random()),
        (rolled, lambda x: x + np.random.default_rng((5, 0, 0)).random()),
    ],
    ids=["default", "partial", "starred", "module", "ufunc", "generator", "bound", "second"],
)
def test_the_generator_goes_to_what_asks_for_it(transform: Any, want: Any) -> None:
    loader = DataLoader(ArrayDataset(IMAGES, np.zeros(6)), 6, transform=Compose([transform]), seed=5)
    found = next(iter(loader))[0].numpy()
    np.testing.assert_allclose(found, want(IMAGES), rtol=1e-6)
