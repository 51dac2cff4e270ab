"""Describe the images of a run in its checkpoint: the number, digest and file names of each part, and the path.

The digest of arrays covers their bytes. The digest of a folder of pictures covers only the files' names, labels and
sizes, because decoding 100,000 pictures would take minutes. For other datasets only the number is known.

Because of the names, a run keeps its split if its folder has grown: old pictures stay in their part. A fifth of the new
pictures of each class is drawn for validation, as when the run began.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from minorm.data import ImageFolder, Subset
from minorm.data.dataset import ArrayDataset
from minorm.data.splits import SHARE
from minorm.support.safe_names import printable, quoted

Known = dict[str, Any]  # {"train": {"number": 48, "sha256": "...", "files": ...}, "validation": ..., "path": ...}
PARTS = ("train", "validation")
OLD_NAMES = {"validation": "test"}  # of parts, in older checkpoints
PATH, FILES = "path", "files"
NAMED = 3  # files, in a sentence


def known(sets: Any, path: str | None = None) -> Known:
    """Describe the training images and the validation images; `path` is the path of the images."""
    found: Known = {part: _known(images) for part, images in zip(PARTS, sets, strict=True)}
    return found if path is None else {**found, PATH: path}


def _known(dataset: Any) -> dict[str, Any]:
    found = {"number": len(dataset), "sha256": digest(dataset)}
    names = _names(dataset)
    return found if names is None else {**found, FILES: packed(names)}


def digest(dataset: Any) -> str | None:
    """Return the SHA-256 of the dataset's contents; return None if this would need to read every sample."""
    found = hashlib.sha256()
    inner, indices = (dataset.dataset, dataset.indices) if isinstance(dataset, Subset) else (dataset, None)
    if isinstance(inner, ImageFolder):
        _add_files(found, inner, range(len(inner)) if indices is None else indices.tolist())
    elif isinstance(inner, ArrayDataset):
        for array in inner.arrays:
            _add_array(found, array)
        if indices is not None:
            _add_array(found, indices)
    else:
        return None
    return found.hexdigest()


def packed(names: list[str]) -> Any:
    """Return the names of files as one array of bytes. So a checkpoint's header says how much memory the names take."""
    return np.frombuffer(b"\0".join(map(os.fsencode, names)), np.uint8)


def unpacked(entry: Mapping[str, Any]) -> list[str] | None:
    """Return the names of a part's files; return None if the description has no names."""
    if FILES not in entry:
        return None
    raw = np.asarray(entry[FILES]).tobytes()
    return [os.fsdecode(name) for name in raw.split(b"\0")] if raw else []


def known_before(found: Mapping[str, Any], now: Known) -> Known:
    """Read the description of the images in a checkpoint.

    An older checkpoint has no description; the number of images is read from its loader's state.
    """
    if "images" in found:
        return {part: entry(found["images"], part) for part in PARTS}
    train, validation = PARTS
    return {train: {"number": found["loader"]["length"], "sha256": None}, validation: now[validation]}


def entry(images: Mapping[str, Any], part: str) -> Any:
    """Return a checkpoint's description of a part; return None if the part is not described."""
    return images.get(part, images.get(OLD_NAMES.get(part, part)))


def place(images: Mapping[str, Any] | None, file: str, needed: bool = True) -> str | None:
    """Return the path of the run's images.

    Raises FileNotFoundError if `needed` is True and the path does not exist. The message names `file`, the run's
    checkpoint.
    """
    path: str | None = (images or {}).get(PATH)
    if needed and path is not None and not os.path.exists(path):
        raise FileNotFoundError(
            f"the run of {file} read its images from {quoted(path)}, which no longer exists; give the new path: --path "
            "PATH"
        )
    return path


def with_split_of_run(images: Mapping[str, Any] | None, sets: Any, seed: int) -> Any:
    """Return the sets, split as when the run began.

    If the sets are not parts of one folder, or the run's split is not known, they are returned unchanged.
    """
    train, val = sets
    old = [unpacked(entry(images, part)) if images and entry(images, part) else None for part in PARTS]
    if None in old or not (isinstance(train, Subset) and isinstance(val, Subset)) or train.dataset is not val.dataset:
        return sets
    folder, (trained, validated) = train.dataset, [set(names or ()) for names in old]
    validates = np.array([name in validated for name in folder.files])
    new = np.array([name not in trained and name not in validated for name in folder.files])
    chosen = validates | folder.drawn(new, SHARE, seed)
    if chosen.all() or not chosen.any():
        raise ValueError(f"none of the {'training' if chosen.all() else 'validation'} images of the run is still in "
                         f"{quoted(folder.root)}; start a new run for a new split")  # fmt: skip
    return Subset(folder, np.flatnonzero(~chosen)), Subset(folder, np.flatnonzero(chosen))


def changes(before: Known, now: Known) -> list[str]:
    """Return a sentence for each part that has changed, such as `1,438 training images then, 1,500 now`.

    The sentence has the names of added and removed files if they are known.
    """
    said = []
    for part, name in zip(PARTS, ("training", "validation"), strict=True):
        old, new = before[part], now[part]
        moves = _moves(unpacked(old), unpacked(new))
        if moves:
            said.append(f"{old['number']:,} {name} images before, {new['number']:,} now: {moves}")
        elif old["number"] != new["number"]:
            said.append(f"{old['number']:,} {name} images before, {new['number']:,} now")
        elif None not in (old["sha256"], new["sha256"]) and old["sha256"] != new["sha256"]:
            said.append(f"some of the {new['number']:,} {name} images have changed")
    return said


def _moves(old: list[str] | None, new: list[str] | None) -> str:
    """Return `2 added (a.png, b.png), 1 removed (c.png)`, or "" if the names are the same or unknown."""
    if old is None or new is None:
        return ""
    added, removed = sorted({*new} - {*old}), sorted({*old} - {*new})
    moves = {"added": added, "removed": removed}
    return ", ".join(f"{len(names):,} {word} ({_some(names)})" for word, names in moves.items() if names)


def _some(names: list[str]) -> str:
    return ", ".join(map(printable, names[:NAMED])) + (", ..." if len(names) > NAMED else "")


def _names(dataset: Any) -> list[str] | None:
    """Return the file names of a folder of pictures, or of a part of the folder; return None for other datasets."""
    inner, indices = (dataset.dataset, dataset.indices) if isinstance(dataset, Subset) else (dataset, None)
    if not isinstance(inner, ImageFolder):
        return None
    return inner.files if indices is None else [inner.files[index] for index in indices.tolist()]


def _add_files(found: Any, folder: ImageFolder, indices: Any) -> None:
    for index in indices:
        try:
            size = os.stat(folder.path(index)).st_size
        except OSError:  # the training names it among the broken files
            size = -1
        found.update(b"%b\0%d %d\n" % (os.fsencode(folder.files[index]), folder.labels[index], size))


def _add_array(found: Any, array: Any) -> None:
    found.update(f"{array.dtype.name} {array.shape}\n".encode())
    for start in range(0, len(array), 1024):  # an array that is not contiguous is copied piece by piece
        found.update(np.ascontiguousarray(array[start : start + 1024]).reshape(-1).view(np.uint8).data)
