"""Every wrong argument, and every image that a transform cannot take, is named beside what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minorm.data import transforms as T

IMAGES = np.random.default_rng(0).random((2, 3, 8, 8)).astype(np.float32)
NAN = float("nan")
WRONG: list[tuple[Callable[[Any], Any], str, list[Any]]] = [
    (T.CenterCrop, "size", [0, -1, 2.5, "3", None, (2,), (1, 2, 3), (2, 2.5), True, NAN]),
    (lambda v: T.ColorJitter(brightness=v), "brightness", [-1, "a", None, (1,), (2, 1), (1, "a"), NAN, float("inf")]),
    (lambda v: T.ColorJitter(hue=v), "hue", [0.7, -0.1, (-0.6, 0), "x", None, NAN]),
    (T.GaussianBlur, "kernel_size", [0, 2, 2.5, "3", None, (3, 4), (3, 3, 3), ()]),
    (lambda v: T.GaussianBlur(3, v), "sigma", [0, -1, "a", None, (1,), (2, 1), (1, NAN), float("inf")]),
    (T.Grayscale, "num_output_channels", [0, 2, "1", None]),
    (lambda v: T.Normalize(v, 1), "mean", ["a", "", None, [], [0, "a"], NAN]),
    (lambda v: T.Normalize(0, v), "std", ["a", None, [], 0, -1, [1, 0], float("inf")]),
    (T.Pad, "padding", [-1, 2.5, "1", None, (1, 2, 3), (1, -1), []]),
    (lambda v: T.Pad(1, v), "fill", ["a", None, (1, 2), 1j]),
    (lambda v: T.RandomCrop(2, 1, v), "fill", ["a", None, (1, 2)]),
    (lambda v: T.RandomCrop(2, v), "padding", [-1, "a", 2.5, (1, 2, 3)]),
    (T.RandAugment, "num_ops", [-1, 1.5, "a", None]),
    (lambda v: T.RandAugment(fill=v), "fill", ["a", []]),
    (lambda v: T.TrivialAugmentWide(fill=v), "fill", ["a", []]),
    (T.RandomAffine, "degrees", [-1, "a", None, (2, 1), (1,), NAN]),
    (lambda v: T.RandomAffine(0, v), "translate", [(2, 0), 1, "a", (0.1,), (-1, 0), (0, "a")]),
    (lambda v: T.RandomAffine(0, shear=v), "shear", ["a", (1,), (1, 2, 3), (2, 1), -1]),
    (lambda v: T.RandomAffine(5, fill=v), "fill", ["a", [], None]),
    (lambda v: T.RandomAffine(5, center=v), "center", ["a", (1,), 3, (1, NAN)]),
    (lambda v: T.RandomRotation(5, center=v), "center", ["a", (1,), 3]),
    (lambda v: T.RandomRotation(5, fill=v), "fill", ["a", []]),
    (T.RandomPerspective, "distortion_scale", [-1, 2, "a", None]),
    (lambda v: T.RandomPerspective(fill=v), "fill", ["a", []]),
    (lambda v: T.RandomErasing(value=v), "value", ["a", None, []]),
    (lambda v: T.RandomErasing(scale=v), "scale", [0.5, (2, 3), (0.5, 0.1), "ab"]),
    (lambda v: T.RandomApply([T.Grayscale(3)], v), "p", [-1, 2, "a", None, NAN]),
    (lambda v: T.RandomChoice([T.Grayscale()], v), "p", [-1, [1, 2], "a", [0], [-1], [NAN]]),
    (T.RandomResizedCrop, "size", [0, 2.5, "3", None, (1, 2, 3)]),
    (T.Resize, "size", [0, 2.5, "3", None, (1, 2, 3)]),
    (lambda v: T.Resize(4, max_size=v), "max_size", ["a", 3, 4.5]),
]


@pytest.mark.parametrize(
    ("make", "argument", "value"),
    [(make, argument, value) for make, argument, values in WRONG for value in values],
    ids=lambda value: None if callable(value) else repr(value),
)
def test_a_wrong_argument_is_named(make: Callable[[Any], Any], argument: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^[A-Z]\w+: .*\b{argument}=.*; expected ") as caught:
        make(value)
    assert repr(value) in str(caught.value) or str(value) in str(caught.value)


@pytest.mark.parametrize("make", [T.Compose, T.RandomApply, T.RandomChoice])
@pytest.mark.parametrize("value", [None, 3, [3], [T.Grayscale(), None]])
def test_transforms_are_functions(make: Any, value: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{make.__name__}: transforms(\[\d\])? is .*; expected a "):
        make(value)


ALL = [
    T.CenterCrop(4), T.ColorJitter(0.5), T.GaussianBlur(3), T.Grayscale(), T.Normalize(0, 1), T.Pad(1), T.RandAugment(),
    T.TrivialAugmentWide(), T.RandomAffine(5), T.RandomCrop(4), T.RandomErasing(1.0), T.RandomGrayscale(1.0),
    T.RandomHorizontalFlip(), T.RandomPerspective(p=1.0), T.RandomResizedCrop(4), T.RandomRotation(5), T.Resize(4),
]  # fmt: skip


@pytest.mark.parametrize("transform", ALL, ids=lambda transform: type(transform).__name__)
@pytest.mark.parametrize(
    ("images", "error", "expected"),
    [
        (IMAGES[0, 0], ValueError, r"images are \(8, 8\); expected an array of shape \(N, C, H, W\)"),
        (IMAGES[None], ValueError, r"images are \(1, 2, 3, 8, 8\); expected"),
        ([1, 2], ValueError, "images are list; expected"),
        (IMAGES.astype(np.complex64), TypeError, "images are complex64; expected floats, integers or bools"),
        (IMAGES.astype(object), TypeError, "images are object; expected"),
        (np.full((1, 3, 8, 8), "a"), TypeError, "images are <U1; expected"),
        (IMAGES[:, :, :0], ValueError, r"images have shape \(2, 3, 0, 8\); expected at least one pixel"),
    ],
)
def test_images_of_another_kind(transform: Any, images: Any, error: type[Exception], expected: str) -> None:
    with pytest.raises(error, match=f"^{type(transform).__name__}: {expected}"):
        transform(images)


@pytest.mark.parametrize(
    ("transform", "images", "message"),
    [
        (T.RandAugment(), IMAGES[:, :2], r"RandAugment: images have shape \(2, 2, 8, 8\); expected 1 or 3 channels"),
        (T.TrivialAugmentWide(), IMAGES[:, :0], r"TrivialAugmentWide: images have shape \(2, 0, 8, 8\); expected 1"),
        (T.RandAugment(), IMAGES * NAN, "RandAugment: the images have NaN; expected numbers from 0 to 1"),
        (T.RandomRotation(5, fill=(1, 2)), IMAGES, "RandomRotation: fill has 2 numbers and the images"),
        (T.RandomPerspective(p=0, fill=(1, 2)), IMAGES, "RandomPerspective: fill has 2 numbers and the images"),
        (T.RandomAffine(5, fill=(1, 2)), IMAGES, "RandomAffine: fill has 2 numbers and the images"),
        (T.Pad(1, 300), IMAGES.astype(np.uint8), "Pad: fill=300 and images of uint8; expected whole numbers from 0 to"),
        (T.Pad(1, 0.5), IMAGES.astype(np.uint8), "Pad: fill=0.5 and images of uint8; expected whole numbers from 0"),
        (T.RandomCrop(9, 1, -1), IMAGES.astype(np.uint8), "RandomCrop: fill=-1 and images of uint8; expected whole"),
        (T.RandomErasing(1.0, value=NAN), IMAGES.astype(np.int16), "RandomErasing: value=nan and images of int16"),
    ],
)
def test_images_that_do_not_fit_the_transform(transform: Any, images: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        transform(images)


def test_random_erasing_of_integers_draws_nothing() -> None:
    with pytest.raises(TypeError, match=r"^RandomErasing: value='random': the images are uint8; expected floats"):
        T.RandomErasing(1.0, value="random")(IMAGES.astype(np.uint8))


@pytest.mark.parametrize("picture", [None, "abc", [["a"]], np.zeros((2, 2), complex)])
def test_pictures_are_numbers(picture: Any) -> None:
    for make in (T.ToImage(), T.ToTensor()):
        with pytest.raises(TypeError, match=f"^{type(make).__name__}: the picture is .*; expected an array of numbers"):
            make(picture)
    with pytest.raises(TypeError, match=r"^ToDtype: images are .*; expected an array or a Tensor of numbers"):
        T.ToDtype(np.float32)(picture)
    with pytest.raises(TypeError, match=r"^ToDtype: 'x' is no dtype; expected one of bfloat16"):
        T.ToDtype("x")
