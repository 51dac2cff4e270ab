"""Which images a run was trained on: their number and a digest of each part, which a checkpoint keeps.

Of arrays the digest is that of their bytes; of a folder of pictures that of names, labels and sizes of the files, as
decoding 100,000 pictures would take minutes. A dataset of another kind has a number alone.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from minorm.data import ImageFolder, Subset
from minorm.data.dataset import ArrayDataset

Known = dict[str, dict[str, Any]]  # {"train": {"number": 48, "sha256": "..."}, "test": ...}
PARTS = ("train", "test")


def known(sets: Any) -> Known:
    """Number and digest of the images to train on, and of those to test on."""
    return {part: {"number": len(images), "sha256": digest(images)} for part, images in zip(PARTS, sets, strict=True)}


def digest(dataset: Any) -> str | None:
    """SHA-256 of what the dataset holds, None where that cannot be told without reading all of it."""
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


def known_before(found: Mapping[str, Any], now: Known) -> Known:
    """What a checkpoint says; an older one has the number in its loader's state, and nothing of the test images."""
    if "images" in found:
        return {part: found["images"][part] for part in PARTS}
    train, test = PARTS
    return {train: {"number": found["loader"]["length"], "sha256": None}, test: now[test]}


def changes(before: Known, now: Known) -> list[str]:
    """What is different, a sentence a part: `1,438 training images then, 1,500 now`."""
    said = []
    for part, name in zip(PARTS, ("training", "test"), strict=True):
        old, new = before[part], now[part]
        if old["number"] != new["number"]:
            said.append(f"{old['number']:,} {name} images then, {new['number']:,} now")
        elif None not in (old["sha256"], new["sha256"]) and old["sha256"] != new["sha256"]:
            said.append(f"some of the {new['number']:,} {name} images are others")
    return said


def _add_files(found: Any, folder: ImageFolder, indices: Any) -> None:
    for index in indices:
        try:
            size = os.stat(folder.path(index)).st_size
        except OSError:  # it is named among the broken ones, when it is read
            size = -1
        found.update(b"%b\0%d %d\n" % (os.fsencode(folder.files[index]), folder.labels[index], size))


def _add_array(found: Any, array: Any) -> None:
    found.update(f"{array.dtype.name} {array.shape}\n".encode())
    for start in range(0, len(array), 1024):  # what is not contiguous is copied, a piece at a time
        found.update(np.ascontiguousarray(array[start : start + 1024]).reshape(-1).view(np.uint8).data)
