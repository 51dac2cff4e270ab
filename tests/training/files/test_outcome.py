"""Outcome: counts and losses against the formula, image by image; broken files move no other's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm import nn
from minorm.data import ArrayDataset, DataLoader, ImageFolder, Subset
from minorm.tensor.tensor import Tensor
from minorm.training.files.outcome import outcome, pixels, softmax


class Brightness(nn.Module):
    """Says 1 for bright images, 0 for dark ones, and never 2."""

    def forward(self, x: Any) -> Any:
        mean = x.mean((1, 2, 3)).reshape(-1, 1)
        return Tensor(np.concatenate([0.5 - mean.numpy(), mean.numpy() - 0.5, mean.numpy() * 0 - 2], 1))


def test_counts_and_losses() -> None:
    means = np.array([0.1, 0.9, 0.6, 0.2, 1.0, 0.0], np.float32)
    images = np.ones((6, 1, 4, 4), np.float32) * means[:, None, None, None]
    labels = np.array([0, 1, 0, 2, 1, 0])
    found = outcome(Brightness(), DataLoader(ArrayDataset(images, labels), 4))
    assert found.confusion.tolist() == [[2, 1, 0], [0, 2, 0], [1, 0, 0]]
    assert found.accuracy == pytest.approx(4 / 6)
    for i in range(6):
        logits = np.array([0.5 - means[i], means[i] - 0.5, -2], np.float64)
        assert found.losses[i] == pytest.approx(np.log(np.exp(logits).sum()) - logits[labels[i]], rel=1e-5)
    assert found.worst(9).tolist() == [3, 2]
    assert found.worst(1).tolist() == [3]
    assert np.allclose(softmax(np.array([[1000.0, 0, 0]])), [[1, 0, 0]])


def test_broken_files_move_no_place(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in "ab":
        (tmp_path / name).mkdir()
        for i in range(3):
            image.new("RGB", (8, 8), (80 * i,) * 3).save(tmp_path / name / f"{i}.png")
    (tmp_path / "a" / "1.png").write_bytes(b"none")
    folder = ImageFolder(tmp_path, 8, skip_broken=True)
    found = outcome(Brightness(), DataLoader(Subset(folder, [5, 1, 0, 2]), 2))
    assert found.indices.tolist() == [0, 2, 3]
    assert found.labels.tolist() == [1, 0, 0]
    for i in range(3):
        (tmp_path / "b" / f"{i}.png").write_bytes(b"none")
    with pytest.raises(ValueError, match="no image could be read"):
        outcome(Brightness(), DataLoader(Subset(ImageFolder(tmp_path, 8, skip_broken=True), [3, 4]), 2))


def test_images_to_look_at() -> None:
    x = np.array([0, 0.5, 1], np.float32).reshape(1, 1, 1, 3)
    assert pixels(ArrayDataset(x, np.zeros(1)), 0).tolist() == [[[0, 128, 255]]]
    assert pixels(ArrayDataset(x * 8 - 4, np.zeros(1)), 0).tolist() == [[[0, 128, 255]]]
