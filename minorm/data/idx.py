"""Reads IDX files, the format of MNIST and Fashion-MNIST, gzipped or not; checks the header before using it.

    2 bytes      zero
    1 byte       the element type
    1 byte       the number of axes
    4 bytes each the axes, big-endian
    the rest     the elements, C order, big-endian

A plain file must have exactly the size that follows from its header. A gzipped file is read piece by piece, and reading
stops at the size in the header. So a false header cannot make the reader take more memory than the contents of the file
need.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from minorm.data.dataset import Array, ArrayDataset, FilePath
from minorm.serialization import limits
from minorm.serialization.opening import exists, regular
from minorm.support.documented import documented
from minorm.support.safe_names import quoted

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP_RATIO = 1032  # no deflate stream grows by a larger factor
PIECE = 1 << 20
EACH_FILE = "the bytes that the array of each file may take; None allows 1 GiB"


@documented(
    {},
    path="the file, with or without gzip",
    max_bytes="the bytes that the array may take; a file whose header asks for more is a ValueError. The "
    "default is 1 GiB",
)
def read_idx(path: FilePath, max_bytes: int = limits.IDX) -> Array:
    """Read the array in an IDX file, plain or gzipped.

    Raises ValueError if the file's size or contents do not match its header.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     count = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))  # bytes, one axis, of length 3
        ...     file.flush()
        ...     mn.data.read_idx(file.name)
        array([7, 8, 9], dtype=uint8)
    """
    try:
        with regular(path, "read_idx") as file:
            size = os.fstat(file.fileno()).st_size
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not zipped:
                return _read(file, size, max_bytes)
            with gzip.GzipFile(fileobj=file) as inner:
                return _read(inner, size * GZIP_RATIO, max_bytes, exact=False)
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"read_idx: {os.fsdecode(path)}: {error}") from None


def _read(file: BinaryIO | gzip.GzipFile, room: int, max_bytes: int, exact: bool = True) -> Array:
    """Read the array. The whole file has `room` bytes or, if `exact` is False, at most `room` bytes."""
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in TYPES or not 1 <= start[3] <= 32:
        raise ValueError(
            f"not an IDX file: it starts with {start!r}; expected two zero bytes, a type and a number of axes"
        )
    dtype, axes = np.dtype(TYPES[start[2]]), start[3]
    lengths = file.read(4 * axes)
    if len(lengths) < 4 * axes:
        raise ValueError(
            f"the header breaks off: {axes} axes take {4 * axes} bytes, but the file has only {len(lengths)}"
        )
    shape = struct.unpack(f">{axes}I", lengths)

    header, data = 4 + 4 * axes, math.prod(shape) * dtype.itemsize
    if (asked := math.prod(axis or 1 for axis in shape) * dtype.itemsize) > max_bytes:
        raise ValueError(f"the header says shape {shape} of {dtype.name}, more than max_bytes={max_bytes}; "
                         f"{limits.raised(asked)}")  # fmt: skip
    if header + data > room or (exact and header + data < room):
        raise ValueError(f"the header says shape {shape} of {dtype.name}, which takes {header + data} bytes in all; "
                         f"the file has {'' if exact else 'at most '}{room} bytes")  # fmt: skip
    said = f"the header says shape {shape} of {dtype.name}, {data} bytes"
    if data > limits.spare(room if exact else room // GZIP_RATIO):  # find a damaged file before taking memory
        for _ in _pieces(file, data, said):
            pass
        file.seek(header)
    content = bytearray()
    for piece in _pieces(file, data, said):
        content += piece
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _pieces(file: BinaryIO | gzip.GzipFile, count: int, said: str) -> Iterator[bytes]:
    """Yield the next `count` bytes; raise ValueError unless these bytes are the last ones of the file."""
    left = count
    while left:
        piece = file.read(min(PIECE, left))
        if not piece:
            raise ValueError(f"{said}; the file has only {count - left} bytes of them")
        left -= len(piece)
        yield piece
    if file.read(1):  # at the end of a gzipped file this also compares its checksum
        raise ValueError(f"{said}; the file has more")


@documented({}, folder="where the files are", max_bytes=EACH_FILE)
def load_mnist(folder: FilePath, max_bytes: int | None = None) -> tuple[ArrayDataset, ArrayDataset]:
    """Read (train, test) of MNIST from its four files in `folder`: images N x 1 x 28 x 28 as float32 from 0 to 1.

    The files have their usual names, `train-images-idx3-ubyte` or `train-images.idx3-ubyte`, with or without `.gz`.
    They are in the folder itself or in the subfolder where torchvision puts them. Labels are int64.

    Example:
        >>> import pathlib, tempfile
        >>> image = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28]) + bytes(28 * 28)  # three axes: 1, 28, 28
        >>> label = bytes([0, 0, 8, 1, 0, 0, 0, 1, 7])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for part in ("train", "t10k"):
        ...         size = pathlib.Path(folder, f"{part}-images-idx3-ubyte").write_bytes(image)
        ...         size = pathlib.Path(folder, f"{part}-labels-idx1-ubyte").write_bytes(label)
        ...     train, test = mn.data.load_mnist(folder, max_bytes=1000)
        >>> train[0][0].shape, int(train[0][1])
        ((1, 28, 28), 7)
    """
    name, places = "load_mnist", [".", "raw", "MNIST/raw"]
    return _load_parts(name, folder, places, limits.IDX if max_bytes is None else max_bytes)


@documented({}, folder="where the files are", max_bytes=EACH_FILE)
def load_fashion_mnist(folder: FilePath, max_bytes: int | None = None) -> tuple[ArrayDataset, ArrayDataset]:
    """Read (train, test) of Fashion-MNIST from its four files in `folder`: images N x 1 x 28 x 28, float32 in 0 to 1.

    The files have the same names and sizes as those of MNIST (see `load_mnist`). Labels are int64.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as empty:
        ...     mn.data.load_fashion_mnist(empty, max_bytes=50_000_000)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        FileNotFoundError: load_fashion_mnist: found no train-images-idx3-ubyte ... put the files there
    """
    name, places = "load_fashion_mnist", [".", "raw", "FashionMNIST/raw"]
    return _load_parts(name, folder, places, limits.IDX if max_bytes is None else max_bytes)


def _load_parts(
    name: str, folder: FilePath, places: Sequence[str], max_bytes: int
) -> tuple[ArrayDataset, ArrayDataset]:
    train, test = (_load_part(name, folder, places, part, max_bytes) for part in ("train", "t10k"))
    return train, test


def _load_part(name: str, folder: FilePath, places: Sequence[str], part: str, max_bytes: int) -> ArrayDataset:
    images_path = _find(name, folder, places, f"{part}-images", "idx3-ubyte")
    labels_path = _find(name, folder, places, f"{part}-labels", "idx1-ubyte")
    images, labels = (read_idx(path, max_bytes) for path in (images_path, labels_path))
    if images.dtype != np.uint8 or images.ndim != 3 or images.shape[1:] != (28, 28):
        raise ValueError(
            f"{name}: {images_path} has {images.dtype} of shape {images.shape}; expected uint8, (N, 28, 28)"
        )
    if labels.dtype != np.uint8 or labels.shape != images.shape[:1]:
        raise ValueError(f"{name}: {labels_path} has {labels.dtype} of shape {labels.shape}; "
                         f"expected uint8, ({len(images)},), a label for each image")  # fmt: skip
    if labels.max(initial=0) > 9:
        raise ValueError(f"{name}: {labels_path} has the label {labels.max()}; expected 0 to 9")
    return ArrayDataset(images[:, np.newaxis], labels.astype(np.int64), scale=255)


def _find(name: str, folder: FilePath, places: Sequence[str], stem: str, ending: str) -> str:
    names = [f"{stem}-{ending}", f"{stem}.{ending}", f"{stem}-{ending}.gz", f"{stem}.{ending}.gz"]
    paths = [os.path.normpath(os.path.join(os.fsdecode(folder), place, file)) for place in places for file in names]
    if found := [path for path in paths if exists(path, name)]:
        return next(filter(os.path.isfile, found), found[0])  # some tools unpack a file into a folder of its name
    raise FileNotFoundError(f"{name}: found no {names[0]} or {names[2]} in {quoted(os.fsdecode(folder))} nor in its "
                            f"folders {', '.join(places[1:])}; nothing is downloaded, so put the files "
                            "there")  # fmt: skip
