"""Reads your own data set from one .npz file with x_train, y_train, x_test and y_test; it must fit in memory.

Images are N x H x W, N x H x W x C or N x C x H x W, with 1 or 3 channels; they are uint8, uint16 or floats. Labels are
integers that count from 0. Objects in the file could run any program, so they are never read. Headers are checked
first. If the arrays take far more memory than the file, a first pass checks the file and a second pass makes the
arrays. So a file that is refused takes no memory for arrays.
"""

from __future__ import annotations

import os
from math import isfinite, prod
from typing import Any

import numpy as np

from minorm.data import npy
from minorm.data.dataset import Array, ArrayDataset, FilePath
from minorm.data.npy import Stored
from minorm.serialization import limits
from minorm.serialization.archive import Archive
from minorm.serialization.opening import regular
from minorm.support.documented import documented

NAMES = ("x_train", "y_train", "x_test", "y_test")
CHANNELS = (1, 3)
SCALES = {"uint8": 255.0, "uint16": 65535.0}  # other types are floats, and stay as they are
MOST_CLASSES = 100_000
LARGEST = float(np.finfo(np.float32).max)


@documented(
    {},
    path="the .npz file, with x_train, y_train, x_test and y_test",
    max_bytes="the bytes that all four arrays may take together; None allows 2 GiB, or the file's length if that is "
    "more",
)
def load_npz(path: FilePath, max_bytes: int | None = None) -> tuple[ArrayDataset, ArrayDataset]:
    """Read (train, test) from a file of your own arrays. A sample is an image, float32 C x H x W, and a label, int64.

    Images are N x H x W, N x H x W x C or N x C x H x W with 1 or 3 channels. uint8 and uint16 are scaled to numbers
    from 0 to 1. Floats are not scaled. Raises ValueError, which names the file and the array, if an array is missing or
    has another shape or type, or if a test label is above all training labels.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> images, labels = np.zeros((2, 8, 8), np.uint8), np.array([0, 1])
        >>> with tempfile.NamedTemporaryFile(suffix=".npz") as file:
        ...     np.savez(file, x_train=images, y_train=labels, x_test=images, y_test=labels)
        ...     file.flush()
        ...     train, test = mn.data.load_npz(file.name, max_bytes=1_000_000)
        >>> train[1][0].shape
        (1, 8, 8)
    """
    name = os.fsdecode(path)
    with regular(path, "load_npz") as file:
        try:
            archive = _archive(file)
            found = {key: npy.described(archive, key) for key in NAMES}
            most = max(limits.NPZ, archive.length) if max_bytes is None else max_bytes
            if (decoded := sum(map(_bytes_in_memory, found.values()))) > most:
                raise ValueError(limits.too_large("the arrays together take", decoded, most))
        except ValueError as error:
            raise ValueError(f"load_npz: {name}: {error}; expected an .npz file with {', '.join(NAMES)}") from error
        try:
            _check_shapes(found)
            if decoded > limits.spare(archive.length):
                _check_numbers({key: (stored, *npy.extremes(archive, stored)) for key, stored in found.items()})
                arrays = {key: npy.read(archive, stored) for key, stored in found.items()}
            else:
                arrays = {key: npy.read(archive, stored) for key, stored in found.items()}
                _check_numbers({key: (stored, *npy.ends(arrays[key])) for key, stored in found.items()})
        except ValueError as error:
            raise ValueError(f"load_npz: {name}: {error}") from error
    train, test = (
        _dataset(_images(arrays.pop(f"x_{part}")), arrays.pop(f"y_{part}").reshape(-1).astype(np.int64))
        for part in ("train", "test")
    )
    return train, test


def read_arrays(path: FilePath, max_bytes: int | None = None) -> dict[str, Array]:
    """Return a dict with all arrays of an .npz file.

    Raises ValueError, which names the file, if the file is damaged.
    """
    name = os.fsdecode(path)
    with regular(path, "load") as file:
        try:
            archive = Archive(file)
            found = {key: npy.described(archive, key) for key in npy.names(archive)}
            decoded, most = sum(stored.nbytes for stored in found.values()), max_bytes
            if decoded > (most := max(limits.NPZ, archive.length) if most is None else most):
                raise ValueError(limits.too_large("the arrays together take", decoded, most))
            if decoded > limits.spare(archive.length):
                for stored in found.values():
                    npy.extremes(archive, stored)
            return {key: npy.read(archive, stored) for key, stored in found.items()}
        except ValueError as error:
            raise ValueError(f"load: {name}: {error}; expected an .npz file of arrays") from error


def _bytes_in_memory(stored: Stored) -> int:
    """Return the bytes that the array takes in memory before or after its conversion, whichever is larger.

    Labels become int64, and float16 becomes float32.
    """
    least = {"f": 4}.get(stored.dtype.kind, 1) if len(stored.shape) > 2 else 8
    return prod(stored.shape) * max(stored.dtype.itemsize, least)


def _archive(file: Any) -> Archive:
    """Return the file's entries; raise ValueError if one of the four arrays is missing."""
    start = file.read(len(npy.MAGIC))
    if start == npy.MAGIC:
        raise ValueError("the file holds one array without a name")
    archive = Archive(file)
    names = npy.names(archive)
    if missing := [key for key in NAMES if key not in names]:
        raise ValueError(f"there is no {', '.join(missing)}; the file has {', '.join(names[:20]) or 'nothing'}")
    return archive


def _check_shapes(found: dict[str, Stored]) -> None:
    for part in ("train", "test"):
        _check_images(f"x_{part}", found[f"x_{part}"])
        _check_labels(part, found[f"y_{part}"], found[f"x_{part}"].shape[0])
    train, test = (_layout(found[f"x_{part}"].shape) for part in ("train", "test"))
    if train[1:] != test[1:]:
        raise ValueError(f"the images of x_train are {_shape(train)} and those of x_test "
                         f"{_shape(test)}; expected the same channels and size in both")  # fmt: skip


def _layout(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape as N x C x H x W."""
    if len(shape) == 3:
        return (shape[0], 1, *shape[1:])
    return shape if len(shape) != 4 or shape[1] in CHANNELS else (shape[0], shape[3], shape[1], shape[2])


def _check_images(key: str, x: Stored) -> None:
    shaped = _layout(x.shape)
    if len(shaped) != 4 or 0 in shaped or shaped[1] not in CHANNELS:
        raise ValueError(f"{key} has shape {x.shape}; expected N x H x W, N x H x W x C or "
                         "N x C x H x W with 1 or 3 channels, and at least one image")  # fmt: skip
    if x.dtype.name not in SCALES and x.dtype.kind != "f":
        raise ValueError(f"{key} is {x.dtype}; expected uint8, uint16 or floats")
    if shaped[2] != shaped[3]:
        raise ValueError(f"the images of {key} are {shaped[2]} x {shaped[3]}; expected squares")


def _check_labels(part: str, y: Stored, count: int, least: str = "") -> None:
    if y.shape not in ((count,), (count, 1)) or y.dtype.kind not in "iu" or least:
        raise ValueError(f"y_{part} is {y.dtype} of shape {y.shape}{least}; expected {count} "
                         f"integers of at least 0, one for each image of x_{part}")  # fmt: skip


def _check_numbers(found: dict[str, tuple[Stored, float, float]]) -> None:
    """Raise ValueError for numbers out of range; `found` has the smallest and the largest number of each array."""
    for part in ("train", "test"):
        x, low, high = found[f"x_{part}"]
        if not (isfinite(low) and isfinite(high)):
            raise ValueError(f"x_{part} holds NaN or infinite numbers; expected finite ones")
        if x.dtype.kind == "f" and max(-low, high) > LARGEST:
            raise ValueError(f"x_{part} holds numbers from {low:g} to {high:g}; expected numbers that float32 can hold")
        y, low, high = found[f"y_{part}"]
        if low < 0:
            _check_labels(part, y, x.shape[0], f" with {low} in it")
        if high >= MOST_CLASSES:
            raise ValueError(
                f"y_{part} has the label {high}; expected less than {MOST_CLASSES}, because classes are numbered from 0"
            )
    train, test = found["y_train"][2], found["y_test"][2]
    if train < 1:
        raise ValueError("y_train has only the label 0; expected at least two classes")
    if test > train:
        raise ValueError(f"y_test has the label {test}; expected at most {train}, the largest label of y_train")


def _images(x: Array) -> Array:
    """Return the images as N x C x H x W. Floats become float32, and integers keep their type."""
    if x.ndim == 3:
        shaped = x[:, None]
    else:
        shaped = x if x.shape[1] in CHANNELS else np.moveaxis(x, -1, 1)
    return np.ascontiguousarray(shaped, dtype=np.float32 if x.dtype.kind == "f" else x.dtype.newbyteorder("="))


def _dataset(x: Array, y: Array) -> ArrayDataset:
    return ArrayDataset(x, y, scale=SCALES.get(x.dtype.name))


def _shape(layout: tuple[int, ...]) -> str:
    return " x ".join(map(str, layout[1:]))
