"""Five small data sets, written as folders of pictures with train/ and val/: real and drawn pictures, few and many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from minorm import data
from tests.training import textured

Picture = tuple[str, Any]  # the class, and the pixels
SHAPES = tuple(textured.COUNTS)


def digits(per_class: int | None) -> Iterator[tuple[str, Picture]]:
    """scikit-learn's digits: 359 to validate; of the others so many a class, or all."""
    train, val = data.split_digits(seed=0)
    seen = np.zeros(10, int)
    for image, label in map(train.__getitem__, range(len(train))):
        seen[label] += 1
        if per_class is None or seen[label] <= per_class:
            yield "train", (str(label), _grey(image))
    for image, label in map(val.__getitem__, range(len(val))):
        yield "val", (str(label), _grey(image))


def striped_shapes() -> Iterator[tuple[str, Picture]]:
    """The tests' striped shapes at a third of their size: 100 a class to train, 40 to validate."""
    for label, name in enumerate(SHAPES):
        for i in range(140):
            whole = Image.fromarray(textured.drawn(name, np.random.default_rng((label, i))))
            yield "train" if i < 100 else "val", (name, np.asarray(whole.reduce(3)))


def patterns(per_class: int) -> Iterator[tuple[str, Picture]]:
    """Bars, rows, checks and rings of any width and colour, 32 pixels: 50 a class to validate."""
    for label, name in enumerate(("bars", "rows", "checks", "rings")):
        for i in range(per_class + 50):
            yield "val" if i < 50 else "train", (name, _pattern(name, np.random.default_rng((8, label, i))))


def plain_shapes(per_class: int) -> Iterator[tuple[str, Picture]]:
    """The same outlines in one colour on another, 32 pixels: 60 a class to validate."""
    for label, name in enumerate(SHAPES):
        for i in range(per_class + 60):
            yield "val" if i < 60 else "train", (name, _plain(name, np.random.default_rng((7, label, i))))


SETS: dict[str, Callable[[], Iterator[tuple[str, Picture]]]] = {
    "4 patterns, 40 images": lambda: patterns(10),
    "digits, 100 images": lambda: digits(10),
    "5 striped shapes, 500 images": striped_shapes,
    "digits, 1,438 images": lambda: digits(None),
    "5 shapes, 2,000 images": lambda: plain_shapes(400),
}


def write(name: str, root: Path) -> None:
    """Write the set as a folder."""
    for i, (part, (label, pixels)) in enumerate(SETS[name]()):
        (root / part / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / part / label / f"{i:05}.png")


def _grey(image: Any) -> Any:
    pixels = np.rint(np.asarray(image)[0] * 255).astype(np.uint8)
    return np.kron(pixels, np.ones((4, 4), np.uint8))  # 32 x 32, as a scan has it


def _pattern(name: str, rng: np.random.Generator) -> Any:
    length = rng.integers(3, 7)
    y, x = np.mgrid[:32, :32] + rng.integers(0, length, (2, 1, 1))
    bars, rows = x // length % 2, y // length % 2
    kinds = {"bars": bars, "rows": rows, "checks": bars ^ rows, "rings": np.hypot(x - 16, y - 16) // length % 2}
    colours = rng.integers(0, 256, (2, 3))
    noise = rng.normal(0, 30, (32, 32, 3))
    return np.clip(np.where(kinds[name][..., None] > 0, *colours) + noise, 0, 255).astype(np.uint8)


def _plain(name: str, rng: np.random.Generator) -> Any:
    radius, turn = rng.uniform(6, 13), rng.uniform(0, 2 * np.pi)
    y, x = np.mgrid[:32, :32] - (15.5 + rng.uniform(-3, 3, 2))[:, None, None]
    u, v = (np.cos(turn) * x + np.sin(turn) * y) / radius, (np.cos(turn) * y - np.sin(turn) * x) / radius
    colours = rng.integers(0, 256, (2, 3))
    noise = rng.normal(0, 10, (32, 32, 3))
    return np.clip(np.where(textured.inside(name, u, v)[..., None], *colours) + noise, 0, 255).astype(np.uint8)
