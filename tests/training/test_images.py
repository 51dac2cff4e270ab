"""Number and digest of a run's images: what changes them, and what does not."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from minorm.data import ArrayDataset, ImageFolder, Subset, load_folder
from minorm.training import images

X, Y = np.arange(3000 * 4, dtype=np.uint8).reshape(3000, 1, 2, 2), np.arange(3000) % 3


def test_arrays_by_their_bytes() -> None:
    expected = hashlib.sha256(b"uint8 (3000, 1, 2, 2)\n" + X.tobytes() + b"int64 (3000,)\n" + Y.tobytes()).hexdigest()
    assert images.digest(ArrayDataset(X, Y)) == expected
    assert images.digest(ArrayDataset(np.asfortranarray(X), Y)) == expected
    changed = X.copy()
    changed[2999, 0, 1, 1] ^= 1
    others = [(changed, Y), (X, (Y + 1) % 3), (X[:-1], Y[:-1]), (X.reshape(3000, 1, 1, 4), Y), (X.view(np.int8), Y)]
    found = {images.digest(ArrayDataset(*arrays)) for arrays in others}
    assert len(found | {expected}) == len(others) + 1
    part, other = (images.digest(Subset(ArrayDataset(X, Y), chosen)) for chosen in ([0, 1], [0, 2]))
    assert len({expected, part, other}) == 3


def test_a_folder_by_names_labels_and_sizes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "one" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "one" / name / f"{i}.png").write_bytes(bytes(10 + i))  # no picture: none is decoded
    first = images.known(load_folder(tmp_path / "one"))
    assert [first[part]["number"] for part in ("train", "test")] == [8, 2]
    shutil.copytree(tmp_path / "one", tmp_path / "moved")
    assert images.known(load_folder(tmp_path / "moved")) == first
    whole = images.digest(ImageFolder(tmp_path / "one"))
    (tmp_path / "moved/b/4.png").write_bytes(bytes(99))
    assert images.digest(ImageFolder(tmp_path / "moved")) != whole
    (tmp_path / "moved/b/4.png").write_bytes(bytes(14))
    assert images.digest(ImageFolder(tmp_path / "moved")) == whole
    assert images.digest(ImageFolder(tmp_path / "moved", classes=["b", "a"])) != whole
    os.rename(tmp_path / "moved/b/4.png", tmp_path / "moved/b/5.png")
    assert images.digest(ImageFolder(tmp_path / "moved")) != whole


def test_what_has_changed_is_said() -> None:
    before = {"train": {"number": 1438, "sha256": "a"}, "test": {"number": 50, "sha256": "b"}}
    assert images.changes(before, before) == []
    now = {"train": {"number": 1500, "sha256": "c"}, "test": {"number": 50, "sha256": "d"}}
    assert images.changes(before, now) == [
        "1,438 training images then, 1,500 now",
        "some of the 50 test images are others",
    ]
    unknown = {part: {**entry, "sha256": None} for part, entry in before.items()}
    assert images.changes(unknown, before) == images.changes(before, unknown) == []


def test_a_dataset_of_another_kind_has_a_number_alone() -> None:
    class Own:
        def __len__(self) -> int:
            return 7

        def __getitem__(self, index: int) -> None:
            pytest.fail("it was read")

    assert images.known((Own(), Own())) == {part: {"number": 7, "sha256": None} for part in ("train", "test")}
