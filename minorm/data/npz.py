"""x_train, y_train, x_test and y_test in one .npz file: a data set of one's own that fits in memory.

Images are N x H x W, N x H x W x C or N x C x H x W, with 1 or 3 channels; bytes, 16 bits or floats. Labels are
integers from 0 on. Objects in the file, which could run any program, are never read.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from typing import Any

import numpy as np

from minorm.data.dataset import Array, ArrayDataset, FilePath
from minorm.documented import documented
from minorm.opening import regular

NAMES = ("x_train", "y_train", "x_test", "y_test")
CHANNELS = (1, 3)
SCALES = {"uint8": 255.0, "uint16": 65535.0}  # the others are floats, and stay as they are


@documented({}, path="the .npz file, with x_train, y_train, x_test and y_test")
def load_npz(path: FilePath) -> tuple[ArrayDataset, ArrayDataset]:
    """(train, test) of one's own arrays; samples are (image, label), float32 C x H x W and int64.

    Bytes and 16 bits come out between 0 and 1, floats as they are. ValueError, which names the file and the array,
    where one is missing, or has another shape or type than the module says, or a test label is in no training image.
    """
    name = os.fsdecode(path)
    with regular(path, "load_npz") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array")
            if missing := [key for key in NAMES if key not in archive.files]:
                has = ", ".join(archive.files[:20]) or "nothing"
                raise ValueError(f"there is no {', '.join(missing)}; it has {has}")
            arrays = {key: _read(archive, key) for key in NAMES}
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"load_npz: {name}: {error}; expected an .npz file with {', '.join(NAMES)}") from error
    train, test = (_images(name, f"x_{part}", arrays[f"x_{part}"]) for part in ("train", "test"))
    if train.shape[1:] != test.shape[1:]:
        raise ValueError(f"load_npz: {name}: the images of x_train are {_shape(train)} and those of x_test "
                         f"{_shape(test)}; expected the same channels and size in both")  # fmt: skip
    labels = [_labels(name, part, arrays[f"y_{part}"], len(x)) for part, x in (("train", train), ("test", test))]
    if labels[0].max() < 1:
        raise ValueError(f"load_npz: {name}: y_train holds the label 0 alone; expected at least two classes")
    if labels[1].max() > labels[0].max():
        raise ValueError(f"load_npz: {name}: y_test has the label {labels[1].max()}; expected at most "
                         f"{labels[0].max()}, the largest of y_train")  # fmt: skip
    return tuple(_dataset(x, y) for x, y in zip((train, test), labels, strict=True))  # type: ignore[return-value]


def _read(archive: Any, key: str) -> Array:
    try:
        return archive[key]
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, OSError) as error:
        raise ValueError(f"{key} cannot be read: {error}") from error


def _images(name: str, key: str, x: Array) -> Array:
    """As N x C x H x W."""
    if x.ndim == 3:
        shaped = x[:, None]
    else:
        shaped = x if x.ndim != 4 or x.shape[1] in CHANNELS else np.moveaxis(x, -1, 1)
    if shaped.ndim != 4 or not x.size or shaped.shape[1] not in CHANNELS:
        raise ValueError(f"load_npz: {name}: {key} has shape {x.shape}; expected N x H x W, N x H x W x C or "
                         "N x C x H x W with 1 or 3 channels, and at least one image")  # fmt: skip
    if x.dtype.name not in SCALES and x.dtype.kind != "f":
        raise ValueError(f"load_npz: {name}: {key} is {x.dtype}; expected uint8, uint16 or floats")
    if shaped.shape[2] != shaped.shape[3]:
        raise ValueError(f"load_npz: {name}: the images of {key} are {shaped.shape[2]} x {shaped.shape[3]}; "
                         "expected squares")  # fmt: skip
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise ValueError(f"load_npz: {name}: {key} holds NaN or infinite numbers; expected finite ones")
    return np.ascontiguousarray(shaped, dtype=np.float32 if x.dtype.kind == "f" else x.dtype)


def _labels(name: str, part: str, y: Array, count: int) -> Array:
    flat = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
    if flat.shape != (count,) or flat.dtype.kind not in "iu" or flat.min() < 0:
        negative = flat.dtype.kind in "iu" and flat.size and flat.min() < 0
        least = f" with {flat.min()} in it" if negative else ""
        raise ValueError(f"load_npz: {name}: y_{part} is {y.dtype} of shape {y.shape}{least}; expected {count} "
                         f"integers of at least 0, one for each image of x_{part}")  # fmt: skip
    return flat.astype(np.int64)


def _dataset(x: Array, y: Array) -> ArrayDataset:
    return ArrayDataset(x, y, scale=SCALES.get(x.dtype.name))


def _shape(x: Array) -> str:
    return " x ".join(map(str, x.shape[1:]))
