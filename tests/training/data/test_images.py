"""Number and digest of a run's images: what changes them, and what does not."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from minorm.data import ArrayDataset, ImageFolder, Subset, load_folder
from minorm.training.data import images

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
    assert [first[part]["number"] for part in images.PARTS] == [8, 2]
    shutil.copytree(tmp_path / "one", tmp_path / "moved")
    again = images.known(load_folder(tmp_path / "moved"))
    assert images.changes(first, again) == []
    assert [again[part]["sha256"] for part in images.PARTS] == [first[part]["sha256"] for part in images.PARTS]
    names = [name for part in images.PARTS for name in images.unpacked(first[part]) or ()]
    assert sorted(names) == [f"{name}/{i}.png" for name in ("a", "b") for i in range(5)]
    whole = images.digest(ImageFolder(tmp_path / "one"))
    (tmp_path / "moved/b/4.png").write_bytes(bytes(99))
    assert images.digest(ImageFolder(tmp_path / "moved")) != whole
    (tmp_path / "moved/b/4.png").write_bytes(bytes(14))
    assert images.digest(ImageFolder(tmp_path / "moved")) == whole
    assert images.digest(ImageFolder(tmp_path / "moved", classes=["b", "a"])) != whole
    os.rename(tmp_path / "moved/b/4.png", tmp_path / "moved/b/5.png")
    assert images.digest(ImageFolder(tmp_path / "moved")) != whole


def test_what_has_changed_is_said() -> None:
    before = {"train": {"number": 1438, "sha256": "a"}, "validation": {"number": 50, "sha256": "b"}}
    assert images.changes(before, before) == []
    now = {"train": {"number": 1500, "sha256": "c"}, "validation": {"number": 50, "sha256": "d"}}
    assert images.changes(before, now) == [
        "1,438 training images before, 1,500 now",
        "some of the 50 validation images have changed",
    ]
    unknown = {part: {**entry, "sha256": None} for part, entry in before.items()}
    assert images.changes(unknown, before) == images.changes(before, unknown) == []


def test_a_dataset_of_another_kind_has_a_number_alone() -> None:
    class Own:
        def __len__(self) -> int:
            return 7

        def __getitem__(self, index: int) -> None:
            pytest.fail("it was read")

    assert images.known((Own(), Own())) == {part: {"number": 7, "sha256": None} for part in images.PARTS}


def folder_of(root: Path, start: int, stop: int) -> Path:
    """Files of no bytes in two classes: none is opened."""
    for name in ("a", "b"):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(start, stop):
            (root / name / f"{i:02}.png").touch()
    return root


def split(sets: tuple[Subset, Subset]) -> tuple[set[str], set[str]]:
    return tuple({part.dataset.files[i] for i in part.indices} for part in sets)  # type: ignore[return-value]


def test_a_folder_that_has_grown_keeps_its_split(tmp_path: Path) -> None:
    first = load_folder(folder_of(tmp_path, 0, 20))
    before, (trained, validated) = images.known(first), split(first)
    same = images.with_split_of_run(before, load_folder(tmp_path), 0)
    assert split(same) == (trained, validated)
    folder_of(tmp_path, 20, 45)
    for name in ("a", "b"):
        (tmp_path / name / "00.png").unlink()
    now = images.with_split_of_run(before, load_folder(tmp_path), 0)
    train, val = split(now)
    gone = {"a/00.png", "b/00.png"}
    assert trained - gone <= train
    assert validated - gone <= val
    assert not train & val
    assert len(train | val) == 88
    added = val - validated
    assert [sum(name.startswith(c) for name in added) for c in "ab"] == [5, 5]  # a fifth of 25 each
    said = "; ".join(images.changes(before, images.known(now)))
    assert f"32 training images before, {len(train)} now: 40 added (a/2" in said
    assert f"8 validation images before, {len(val)} now: 10 added (" in said
    assert said.count("00.png") == 2
    assert "removed (" in said


def test_a_run_whose_part_is_gone_needs_a_new_one(tmp_path: Path) -> None:
    first = load_folder(folder_of(tmp_path, 0, 5))
    before = images.known(first)
    for name in split(first)[1]:
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=r"none of the validation images of the run is still in "):
        images.with_split_of_run(before, load_folder(tmp_path), 0)


def test_what_has_no_names_is_left_as_it_is(tmp_path: Path) -> None:
    sets = load_folder(folder_of(tmp_path, 0, 5))
    old = {part: {"number": 5, "sha256": None} for part in ("train", "test")}
    assert images.with_split_of_run(old, sets, 0) is sets
    assert images.with_split_of_run(None, sets, 0) is sets
    arrays = (ArrayDataset(X, Y), ArrayDataset(X, Y))
    assert images.with_split_of_run(images.known(sets), arrays, 0) is arrays


def test_names_that_are_not_utf8_come_back() -> None:
    names = ["a/caf\udce9.png", "b/ü.png"]
    assert images.unpacked({"files": images.packed(names)}) == names
    assert images.unpacked({"files": images.packed([])}) == []
    assert images.unpacked({}) is None


def test_a_place_that_is_gone_is_named(tmp_path: Path) -> None:
    assert images.place(None, "run") is None
    assert images.place({"path": str(tmp_path)}, "run") == str(tmp_path)
    gone = str(tmp_path / "gone")
    assert images.place({"path": gone}, "run", needed=False) == gone
    with pytest.raises(
        FileNotFoundError, match=f"the run of run read its images from '{gone}', .* the new path: --path PATH"
    ):
        images.place({"path": gone}, "run")
