"""Describe a sample of pictures: the sizes that Pillow gives, colours, class names that a mirror would make wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minorm.data import ImageFolder, Subset
from minorm.training.data.appearance import shorter_side, why_no_mirror

Image = pytest.importorskip("PIL.Image")


def folder(root: Path, images: list[np.ndarray], ending: str = "png") -> Subset:
    (root / "cat").mkdir(parents=True)
    for i, pixels in enumerate(images):
        Image.fromarray(pixels).save(root / "cat" / f"{i:03}.{ending}")
    dataset = ImageFolder(root, 16)
    return Subset(dataset, np.arange(len(dataset)))


def noise(height: int, width: int, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(height).integers(0, 256, shape, np.uint8)


def test_the_median_of_the_shorter_sides(tmp_path: Path) -> None:
    sizes = [(10, 90), (40, 30), (55, 50), (200, 61), (33, 500)]
    train = folder(tmp_path, [noise(*size) for size in sizes])
    assert shorter_side(train) == int(np.median([min(size) for size in sizes])) == 33
    (tmp_path / "cat" / "004.png").write_bytes(b"broken")
    assert shorter_side(train) == int(np.median([10, 30, 50, 61]))


@pytest.mark.parametrize("ending", ["png", "jpg", "webp"])
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_pictures_are_found_in_any_form(tmp_path: Path, ending: str, channels: int) -> None:
    """Noise of one channel is grey, also where the file is RGB."""
    grey = [np.repeat(noise(40 + i, 40, 1)[..., None], channels, 2).squeeze() for i in range(8)]
    assert why_no_mirror(folder(tmp_path / "grey", grey, ending)) == "the pictures are grey"
    assert why_no_mirror(folder(tmp_path / "coloured", [noise(40 + i, 40) for i in range(8)], ending)) == ""


def test_a_sample_of_many_is_spread_over_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = folder(tmp_path, [noise(8, 8) for _ in range(200)])
    read: list[int] = []

    def path(index: int) -> str:
        read.append(index)
        return str(tmp_path / "cat/000.png")

    monkeypatch.setattr(train.dataset, "path", path)
    assert shorter_side(train) == 8
    assert len(read) == len(set(read)) == 64
    assert (min(read), max(read)) == (0, 199)
