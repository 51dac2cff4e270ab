"""Reads arrays of numbers in an .npz archive: first each array's header, and then its numbers piece by piece.

numpy.load is not used: it allocates an array before it checks that the file has enough bytes, and it raises errors of
many kinds.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from minorm.data.dataset import Array
from minorm.serialization.archive import Archive

ENDING = ".npy"
MAGIC = b"\x93NUMPY"
MAX_AXES = 64  # NumPy's limit
HEAD = 16_384  # the longest header that NumPy accepts
READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Stored(NamedTuple):
    """An array in an archive: the entry, the type, shape and order, and where the numbers begin in the entry."""

    entry: str
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    fortran: bool
    start: int

    @property
    def nbytes(self) -> int:
        """The bytes of the array in memory."""
        return prod(self.shape) * self.dtype.itemsize


def names(archive: Archive) -> list[str]:
    """Return the names of the arrays, without the ending .npy."""
    return [name.removesuffix(ENDING) for name in archive.entries if name.endswith(ENDING)]


def described(archive: Archive, name: str) -> Stored:
    """Read the array's header; raise ValueError unless the entry has exactly as many bytes as the header says."""
    entry = name + ENDING
    try:
        head = io.BytesIO(_beginning(archive, entry))
        version = np.lib.format.read_magic(head)
        if version not in READERS:
            raise ValueError(f"it has version {version}; expected 1.0 or 2.0")
        shape, fortran, dtype = READERS[version](head)
        if not isinstance(dtype, np.dtype) or dtype.kind not in "biuf":
            raise ValueError(f"it holds {str(dtype)[:60]}; expected numbers")
    except Exception as error:  # the header is Python text: its parser raises SyntaxError, RecursionError and more
        raise ValueError(f"{name} cannot be read: {str(error)[:200] or type(error).__name__}") from error
    if len(shape) > MAX_AXES or not all(0 <= length < 1 << 63 for length in shape):
        raise ValueError(f"{name} cannot be read: it has {len(shape)} axes, or an axis with an impossible length")
    found = Stored(entry, dtype, shape, fortran, head.tell())
    if found.nbytes != (held := archive.entries[entry].size - found.start):
        raise ValueError(
            f"{name} cannot be read: shape {shape} of {dtype} takes {found.nbytes} bytes; the file has {held}"
        )
    return found


def extremes(archive: Archive, stored: Stored) -> tuple[float, float]:
    """Return the smallest and the largest number of a stored array.

    They are NaN if the array has a NaN, and 0 if the array is empty.

    The numbers are not kept in memory.
    """
    found = [(piece.min(), piece.max()) for piece in _pieces(archive, stored)]
    return ends(np.array(found, stored.dtype))


def ends(array: Array) -> tuple[float, float]:
    """Return the smallest and the largest number of an array in memory; return (0, 0) if the array is empty."""
    return (array.min().item(), array.max().item()) if array.size else (0, 0)


def read(archive: Archive, stored: Stored) -> Array:
    """Read the numbers of the array, piece by piece."""
    numbers, at = np.empty(prod(stored.shape), stored.dtype), 0
    for piece in _pieces(archive, stored):
        numbers[at : at + len(piece)] = piece
        at += len(piece)
    return numbers.reshape(stored.shape[::-1]).T if stored.fortran else numbers.reshape(stored.shape)


def _beginning(archive: Archive, entry: str) -> bytes:
    """Return the first bytes of an entry. They contain the header."""
    head = b""
    for piece in archive.pieces(entry):
        head += piece[:HEAD]
        if len(head) >= HEAD:
            break
    return head


def _pieces(archive: Archive, stored: Stored) -> Iterator[Array]:
    """Yield the numbers piece by piece, in the order of the file."""
    skip, rest = stored.start, b""
    for piece in archive.pieces(stored.entry):
        part = rest + piece[skip:]
        skip = max(0, skip - len(piece))
        whole = len(part) // stored.dtype.itemsize * stored.dtype.itemsize
        rest = part[whole:]
        if whole:
            yield np.frombuffer(part[:whole], stored.dtype)
