"""load_folder: folders that are splits and folders that are classes, by their names and by what lies beside them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from minorm.data import Subset, load_folder
from minorm.data.splits import load_part
from tests.data.test_folder import folder_of

Image = pytest.importorskip("PIL.Image")

TWO = ("cat", "dog")


def empty(root: Path, *classes: str, each: int = 5) -> Path:
    """Files of no bytes: none is opened."""
    for name in classes:
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            (root / name / f"{i}.png").touch()
    return root


def files(part: Subset) -> list[str]:
    return [part.dataset.files[i] for i in part.indices]


def test_a_split_repeats_by_seed_and_takes_a_fifth_of_each_class(tmp_path: Path) -> None:
    root = folder_of(tmp_path, each=10)
    Image.new("RGB", (8, 8)).save(tmp_path / "disc" / "one_more.png")
    (train, val), (again, _), (other, _) = (load_folder(root, 8, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(train.indices, again.indices)
    assert not np.array_equal(train.indices, other.indices)
    assert sorted([*train.indices, *val.indices]) == list(range(31))
    assert np.bincount(train.dataset.labels[val.indices]).tolist() == [2, 2, 2]


def test_folders_train_and_val_are_the_split(tmp_path: Path) -> None:
    folder_of(tmp_path / "train", each=3)
    folder_of(tmp_path / "val", ("stripes",), 2)
    train, val = load_folder(str(tmp_path), 8)
    assert (len(train), len(val)) == (9, 2)
    assert val[:][1].tolist() == [2, 2] == [train.dataset.classes.index("stripes")] * 2
    assert train.dataset.notes == []
    assert val.dataset.notes == ["val/ has no image of 'disc', 'squares'"]
    folder_of(tmp_path / "val", ("zebras",), 1)
    with pytest.raises(
        ValueError, match=r"val/zebras' is a class that the training images do not have; expected disc, squa"
    ):
        load_folder(str(tmp_path), 8)


@pytest.mark.parametrize(
    ("val", "test"), [*product((None, "val", "valid", "validation", "Val"), (None, "test", "TEST"))]
)
def test_splits_in_any_combination(tmp_path: Path, val: str | None, test: str | None) -> None:
    empty(tmp_path / "train", *TWO)
    for name in filter(None, (val, test)):
        empty(tmp_path / name, *TWO, each=3)
    train, validation = load_folder(tmp_path)
    assert train.dataset.classes == [*TWO]
    assert (len(train), len(validation)) == ((10, 6) if val else (8, 2))
    assert validation.dataset.root == str(tmp_path / (val or "train"))
    assert not {*files(train)} & {*files(validation)} or val
    assert train.dataset.notes == (
        [f"{test}/ is not read; minorm evaluate RUN --split test scores its images"] if test else []
    )
    whole = load_part(tmp_path, "all")
    assert len(whole) == 10 + 6 * (val is not None) + 6 * (test is not None)
    assert len({*files(whole)}) == len(whole)
    assert np.array_equal(whole.dataset.labels, [name.split("/")[1] == "dog" for name in whole.dataset.files])
    if test is None:
        with pytest.raises(
            ValueError, match=r"has the splits .*'train'.*; expected a folder test with one folder for each class"
        ):
            load_part(tmp_path, "test")
    else:
        assert load_part(tmp_path, "test", classes=TWO).dataset.root == str(tmp_path / test)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ("train", "val", "valid"),
            "has 'val' and 'valid', and both names stand for the validation images; expected one of these folders",
        ),
        (("train", "Train"), "has 'Train' and 'train', and both names stand for the train images"),
        (
            ("val", "test"),
            "has 'test', 'val' but no train; expected a folder train in the same place, with one folder for each class",
        ),
        (("valid",), "has 'valid' but no train"),
    ],
)
def test_splits_that_are_no_split_are_refused(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    for name in names:
        empty(tmp_path / name, *TWO)
    with pytest.raises(ValueError, match=message):
        load_folder(tmp_path)


def test_a_folder_around_the_classes_is_named(tmp_path: Path) -> None:
    """As an archive that was unpacked has it."""
    empty(tmp_path / "dataset" / "train", *TWO)
    empty(tmp_path / "dataset" / "test", *TWO)
    with pytest.raises(ValueError, match=r"only one class, 'dataset'; .*, as '.*/dataset' has: 'test', 'train'"):
        load_folder(tmp_path)
    assert load_folder(tmp_path / "dataset")[0].dataset.classes == [*TWO]


def test_a_split_without_classes_is_refused(tmp_path: Path) -> None:
    """Pictures right in train/ and test/: they are no classes."""
    empty(tmp_path, "train", "test")
    with pytest.raises(ValueError, match="train' has 5 images and no folder; expected one folder for each class"):
        load_folder(tmp_path)


def test_beside_classes_they_are_classes(tmp_path: Path) -> None:
    empty(tmp_path, "cat", "test", "train")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes").rmdir()
    train, _ = load_folder(tmp_path)
    assert train.dataset.classes == ["cat", "test", "train"]
    (note,) = train.dataset.notes
    assert note.startswith(
        "'test', 'train' are classes, because 'cat' is in the same folder; for splits put all classes"
    )


def test_classes_of_a_model_are_classes(tmp_path: Path) -> None:
    empty(tmp_path, "test")
    assert load_part(tmp_path, "all", classes=("other", "test")).dataset.files == [f"test/{i}.png" for i in range(5)]


def test_what_lies_beside_splits_is_counted(tmp_path: Path) -> None:
    empty(tmp_path / "train", *TWO)
    empty(tmp_path, "raw", "test", each=7)  # pictures without a class
    (tmp_path / "docs").mkdir()
    (tmp_path / "train" / "overview.png").touch()
    train, val = load_folder(tmp_path)
    assert (len(train), len(val)) == (8, 2)
    assert train.dataset.notes == [
        f"left out: 7 images in {name}/, because it is no split with one folder for each class"
        for name in ("raw", "test")
    ]


def test_classes_beside_a_split_without_train_are_refused(tmp_path: Path) -> None:
    empty(tmp_path, *TWO)
    empty(tmp_path / "test", *TWO)
    with pytest.raises(ValueError, match="has 'test', which has the form of a split, and also 'cat', 'dog'; expected"):
        load_folder(tmp_path)


def test_a_test_folder_without_classes_is_no_hindrance(tmp_path: Path) -> None:
    """As competitions have it: pictures alone, whose classes are to be found."""
    empty(tmp_path / "train", *TWO)
    empty(tmp_path, "test")
    assert len(load_folder(tmp_path)[0]) == 8
    with pytest.raises(ValueError, match="test' has 5 images and no folder"):
        load_part(tmp_path, "test")
