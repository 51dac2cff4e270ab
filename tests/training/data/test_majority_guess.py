"""The guess of the largest class: counted by hand; broken pictures do not count; a tie with the guess is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minorm.data import ArrayDataset, ImageFolder, Subset
from minorm.training.data.majority_guess import Guess, largest_class


def test_the_share_of_the_largest_class() -> None:
    labels = np.array([2, 0, 2, 1, 2, 0])
    dataset = ArrayDataset(np.zeros((6, 1)), labels)
    assert largest_class(dataset, ["cat", "dog", "rose"]) == Guess("rose", 3 / 6)
    assert largest_class(Subset(dataset, [0, 1, 5]), ["cat", "dog", "rose"]) == Guess("cat", 2 / 3)
    assert largest_class(dataset) == Guess("2", 0.5)


def test_the_sentence() -> None:
    guess = Guess("rose", 0.312)
    assert (
        guess.beside(0.881)
        == "validation accuracy 88.1 %; always guessing the largest class ('rose') would have an accuracy of 31.2 %"
    )
    for accuracy in (0.312, 0.1):
        assert guess.beside(accuracy).endswith("31.2 %: the model is no better than guessing")


def test_broken_pictures_do_not_count(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, count in (("cat", 3), ("dog", 2)):
        (tmp_path / name).mkdir()
        for i in range(count):
            image.new("RGB", (9, 9)).save(tmp_path / name / f"{i}.png")
    for i in range(2):
        (tmp_path / "cat" / f"{i}.png").write_bytes(b"broken")
    folder = ImageFolder(tmp_path, 8, skip_broken=True)
    dataset = Subset(folder, np.arange(5))
    assert largest_class(dataset, folder.classes) == Guess("cat", 3 / 5)
    folder.batch(np.arange(5))
    assert largest_class(dataset, folder.classes) == Guess("dog", 2 / 3)
    for i in range(2):
        (tmp_path / "dog" / f"{i}.png").write_bytes(b"broken")
    (tmp_path / "cat" / "2.png").write_bytes(b"broken")
    folder.batch(np.arange(5))
    with pytest.raises(ValueError, match="no image could be read"):
        largest_class(dataset, folder.classes)
