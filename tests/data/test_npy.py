"""Arrays in an archive: we read what NumPy writes, and compare each header with the data."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import pytest

from minorm.data import npy
from minorm.serialization.archive import Archive


def archive(raw: bytes) -> Archive:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("x.npy", raw)
    return Archive(file)


def stored(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


ARRAYS = {
    "bytes": np.arange(7, dtype=np.uint8), "no numbers": np.zeros((0, 3)), "one": np.array(5.0),
    "columns first": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)), "big-endian": np.arange(5, dtype=">i4"),
    "several pieces": np.random.default_rng(0).normal(size=400_000), "bools": np.array([True, False]),
    "not finite": np.array([1, np.nan, -np.inf], np.float16),
}  # fmt: skip


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("name", ARRAYS)
def test_what_numpy_writes_is_read(name: str, version: tuple[int, int]) -> None:
    array = ARRAYS[name]
    held = archive(stored(array, version=version))
    assert npy.names(held) == ["x"]
    found = npy.described(held, "x")
    assert (found.dtype, found.shape, found.nbytes) == (array.dtype, array.shape, array.nbytes)
    np.testing.assert_array_equal(npy.read(held, found), array)
    least, greatest = npy.extremes(held, found)
    np.testing.assert_equal([least, greatest], [array.min(), array.max()] if array.size else [0, 0])


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"words", stored(np.zeros(9))[:-1], stored(np.zeros(9)) + b"\0", stored(np.array(["text"])),
        stored(np.zeros(3, "f4,i4"), version=(1, 0)), stored(np.array([1j])), stored(np.array([{}], object)),
        stored(np.zeros((4, 4))).replace(b"(4, 4)", b"(-4, 4)"), b"\x93NUMPY\x09\x00" + bytes(99),
        stored(np.zeros(9)).replace(b"(9,)", b"(9" + b"9" * 40), b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10000,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
    ],
)  # fmt: skip
def test_anything_else_is_a_sentence(raw: bytes) -> None:
    with pytest.raises(ValueError, match="x cannot be read: "):
        npy.described(archive(raw), "x")
