"""Reads CIFAR-10 in its binary version. A file has a label byte and 3 x 32 x 32 pixel bytes for each image.

The version for Python is a pickle. It is never read, because reading a pickle runs any program that is in it.
"""

from __future__ import annotations

import os

import numpy as np

from minorm.data.dataset import Array, ArrayDataset, FilePath
from minorm.serialization.opening import exists, regular
from minorm.support.documented import documented
from minorm.support.safe_names import quoted

RECORD = 1 + 3 * 32 * 32
MOST = 10_000  # images a file
TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
TEST = "test_batch.bin"


@documented({}, folder="where the files are")
def load_cifar10(folder: FilePath) -> tuple[ArrayDataset, ArrayDataset]:
    """Read (train, test) of CIFAR-10 from data_batch_1.bin to data_batch_5.bin and test_batch.bin in `folder`.

    The files may also be in `folder`/cifar-10-batches-bin. Images are read as float32 from 0 to 1, N x 3 x 32 x 32;
    labels are int64. Raises ValueError if a file is not a whole number of images or has labels other than 0 to 9.
    """
    found = _find(os.fsdecode(folder))
    train = [_read(os.path.join(found, name)) for name in TRAIN]
    return _dataset(np.concatenate(train)), _dataset(_read(os.path.join(found, TEST)))


def _find(folder: str) -> str:
    for place in (folder, os.path.join(folder, "cifar-10-batches-bin")):
        if exists(os.path.join(place, TRAIN[0]), "load_cifar10"):
            missing = [name for name in (*TRAIN, TEST) if not exists(os.path.join(place, name), "load_cifar10")]
            if missing:
                raise FileNotFoundError(f"load_cifar10: {quoted(place)} lacks {', '.join(missing)}")
            return place
    for place in (folder, os.path.join(folder, "cifar-10-batches-py")):
        if os.path.isfile(os.path.join(place, "data_batch_1")):
            raise ValueError(f"load_cifar10: {quoted(place)} holds the Python version of CIFAR-10. Its files are "
                             "pickles, which can run any code and are never read; put the binary version "
                             "there")  # fmt: skip
    raise FileNotFoundError(f"load_cifar10: found no {TRAIN[0]} in {quoted(folder)} nor in its folder "
                            "cifar-10-batches-bin; nothing is downloaded, so put the binary version of "
                            "CIFAR-10 there")  # fmt: skip


def _read(path: str) -> Array:
    """Return the records of one file as uint8 of shape N x 3073."""
    with regular(path, "load_cifar10") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0 or size % RECORD or size > MOST * RECORD:
            raise ValueError(
                f"load_cifar10: {path} has {size} bytes; expected {RECORD} bytes per image, and at most {MOST} images "
                f"({MOST * RECORD} bytes)"
            )
        records = np.frombuffer(file.read(size), np.uint8)
    if records.size != size:
        raise ValueError(f"load_cifar10: {path} became shorter while it was read")
    records = records.reshape(-1, RECORD)
    if records[:, 0].max() > 9:
        raise ValueError(
            f"load_cifar10: {path} has the label {records[:, 0].max()}; expected 0 to 9; the file is not CIFAR-10"
        )
    return records


def _dataset(records: Array) -> ArrayDataset:
    images = np.ascontiguousarray(records[:, 1:]).reshape(-1, 3, 32, 32)
    return ArrayDataset(images, records[:, 0].astype(np.int64), scale=255)
