"""Finds the splits of a folder of pictures: for training, for choosing the best epoch, and for the final test.

    images/train/cat/001.jpg      training
    images/val/cat/007.jpg        validation: `val`, `valid` or `validation`; if missing, a fifth is drawn from train
    images/test/cat/009.jpg       test: read only on request, and never in training

Folders of these names, in any letter case, are splits in two cases: if no other folder beside them has pictures, or if
train contains folders of pictures. Otherwise they are classes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minorm.data.argument_texts import PICTURES
from minorm.data.dataset import FilePath, Subset
from minorm.data.folder import ImageFolder
from minorm.data.listing import folder_entries, is_class, is_picture, pictures_by_class
from minorm.support.documented import documented
from minorm.support.safe_names import quoted

TRAIN, VALIDATION, TEST, ALL = "train", "validation", "test", "all"
PARTS = {"train": TRAIN, "val": VALIDATION, "valid": VALIDATION, "validation": VALIDATION, "test": TEST}
SHARE = 0.2  # of the training images that validate, if no folder has validation images


class Layout(NamedTuple):
    """The layout of a folder. `folders` is a dict from splits to folder names, or {} if the folders are classes."""

    folders: Mapping[str, str]
    notes: list[str]  # surprises for the user
    beside: list[str]  # folders with pictures that are not splits


def layout(root: str, classes: Sequence[str] | None = None) -> Layout:
    """Return the splits of a folder. `classes` are the classes of an existing model, or None if there is no model.

    Raises ValueError if two folders are the same split, or if there are classes beside splits and there is no train.
    """
    names = [entry.name for entry in folder_entries(root) if is_class(entry)]
    named = [name for name in names if name.lower() in PARTS]
    if not named or (classes is not None and {*names} <= {*classes}):
        return Layout({}, [], [])
    beside = [name for name in names if name not in named and _has_pictures(os.path.join(root, name))]
    if not beside:
        return Layout(_by_part(root, named), [], [])
    nested = [name for name in named if _is_nested(os.path.join(root, name))]
    if not nested:
        said = (
            f"{_quoted(named)} {'is a class' if len(named) == 1 else 'are classes'}, because {_quoted(beside)} "
            f"{'is' if len(beside) == 1 else 'are'} in the same folder"
        )
        return Layout({}, [f"{said}; for splits put all classes into train/ and val/"], [])
    folders = _by_part(root, nested)
    if TRAIN not in folders:
        raise ValueError(
            f"load_folder: {quoted(root)} has {_quoted(nested)}, which {'has' if len(nested) == 1 else 'have'} "
            f"the form of a split, and also "
            f"{_quoted(beside)}; expected all classes in train/, or no folder with the name of a split"
        )
    return Layout(folders, [], beside + [name for name in named if name not in nested])


def _by_part(root: str, names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        part = PARTS[name.lower()]
        if part in found:
            raise ValueError(f"load_folder: {quoted(root)} has {quoted(found[part])} and {quoted(name)}, and both "
                             f"names stand for the {part} images; expected one of these folders")  # fmt: skip
        found[part] = name
    return found


def _quoted(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(quoted, names[:most])) + more


def _has_pictures(place: str) -> bool:
    """Return whether there is a picture in the folder or below. Links to folders are not followed."""
    return any(any(map(is_picture, files)) for _, _, files in os.walk(place))


def _is_nested(place: str) -> bool:
    """Return whether the folder contains folders of pictures, like a split."""
    return any(is_class(entry) and _has_pictures(entry.path) for entry in folder_entries(place))


class SplitFolders(ImageFolder):
    """The pictures of several splits together. A file is called `train/cat/001.jpg`; the class is `cat`."""

    def __init__(self, root: FilePath, parts: Sequence[str], *args: Any, **options: Any) -> None:
        self.parts = tuple(parts)
        super().__init__(root, *args, **options)

    def _found(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for part in self.parts:
            for name, files in pictures_by_class(os.path.join(self.root, part), self.left_out).items():
                found.setdefault(name, []).extend(f"{part}/{file}" for file in files)
        return dict(sorted(found.items()))


@documented(
    PICTURES,
    seed="the seed with which a fifth of the images is drawn for val, if there is no folder for val",
    classes="the classes of an existing model, some of which may have no folder; None takes the names of the folders",
)
def load_folder(
    root: FilePath,
    image_size: int = 64,
    channels: int = 3,
    seed: int = 0,
    skip_broken: bool = False,
    classes: Sequence[str] | None = None,
    max_bytes: int | None = None,
) -> tuple[Subset, Subset]:
    """Read (train, val) from a folder of pictures: its folders train/ and val/, or a random split drawn with `seed`.

    The validation images are in the folder val/, valid/ or validation/. If there is no such folder, the validation
    images are a fifth of each class of train/, or of the whole folder if there is no train/. A folder test/ is not
    read.

    Both results are Subsets, whose `.dataset` is an ImageFolder. Raises ValueError if there are fewer than two classes,
    if val/ has a class that train/ lacks, if a split has two folders, or if there are splits without train/.

    Example:
        >>> import os, tempfile
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as root:
        ...     for name in ("cat", "dog"):
        ...         os.mkdir(f"{root}/{name}")
        ...         for i in range(5):
        ...             Image.new("RGB", (9, 9), "white").save(f"{root}/{name}/{i}.png")
        ...     train, val = mn.data.load_folder(root, image_size=8)
        >>> len(train), len(val)
        (8, 2)
    """
    given = os.fsdecode(root)
    form = (image_size, channels)
    found = layout(given, classes)
    if found.folders and TRAIN not in found.folders:
        raise ValueError(f"load_folder: {quoted(given)} has {_quoted([*found.folders.values()])} but no train; "
                         "expected a folder train in the same place, with one folder for each class")  # fmt: skip
    place = os.path.join(given, found.folders[TRAIN]) if found.folders else given
    train = _of_two_classes(ImageFolder(place, *form, classes, skip_broken, max_bytes))
    _tell(train, given, found)
    if TEST in found.folders:
        train.notes.append(f"{found.folders[TEST]}/ is not read; minorm evaluate RUN --split test scores its images")
    if VALIDATION in found.folders:
        val = ImageFolder(os.path.join(given, found.folders[VALIDATION]), *form, train.classes, skip_broken, max_bytes)
        if missing := [name for label, name in enumerate(train.classes) if label not in val.labels]:
            val.notes.append(f"{found.folders[VALIDATION]}/ has no image of {_quoted(missing)}")
        return Subset(train, np.arange(len(train))), Subset(val, np.arange(len(val)))
    train_part, val_part = train.split(SHARE, seed)
    if not len(val_part):
        raise ValueError(
            f"load_folder: {quoted(place)} has only one image for each class; expected at least two images in one "
            "class, because some images are set aside for validation"
        )
    return train_part, val_part


def load_part(
    root: FilePath,
    part: str,
    image_size: int = 64,
    channels: int = 3,
    skip_broken: bool = False,
    classes: Sequence[str] | None = None,
    max_bytes: int | None = None,
) -> Subset:
    """Read the split `part`, such as "test", of a folder of pictures; "all" reads the pictures of all splits.

    Raises ValueError if there is no such split.
    """
    given = os.fsdecode(root)
    found = layout(given, classes)
    form: tuple[Any, ...] = (image_size, channels, classes, skip_broken, max_bytes)
    if part == ALL:
        whole = SplitFolders(given, [*found.folders.values()], *form) if found.folders else ImageFolder(given, *form)
        _tell(whole, given, found)
        return Subset(whole, np.arange(len(whole)))
    if part not in found.folders:
        there = f"has the splits {_quoted([*found.folders.values()])}" if found.folders else "has no splits"
        raise ValueError(
            f"load_folder: {quoted(given)} {there}; expected a folder {part} with one folder for each class"
        )
    test = ImageFolder(os.path.join(given, found.folders[part]), *form)
    return Subset(test, np.arange(len(test)))


def _tell(folder: ImageFolder, root: str, found: Layout) -> None:
    """Add the notes of `found` to the dataset, and a note on each folder whose pictures are left out."""
    folder.notes += found.notes
    for name in found.beside:
        count = sum(sum(map(is_picture, files)) for _, _, files in os.walk(os.path.join(root, name)))
        folder.notes.append(
            f"left out: {count:,} images in {name}/, because it is no split with one folder for each class"
        )


def _of_two_classes(folder: ImageFolder) -> ImageFolder:
    if len(folder.classes) < 2:
        inner = os.path.join(folder.root, folder.classes[0])
        within = [entry.name for entry in folder_entries(inner) if is_class(entry)] if os.path.isdir(inner) else []
        hint = f", as {quoted(inner)} has: {_quoted(within)}" if len(within) > 1 else ""
        raise ValueError(f"load_folder: {quoted(folder.root)} has images of only one class, "
                         f"{quoted(folder.classes[0])}; expected at least two classes, with one folder "
                         f"each{hint}")  # fmt: skip
    return folder
