"""Zip archives: we read the same as Python's zipfile, and a damaged archive raises a ValueError before it is read."""

from __future__ import annotations

import io
import random
import struct
import zipfile

import pytest

from minorm.serialization.archive import PIECE, Archive

CONTENTS = {"a": b"", "b/c": b"words" * 99, "ü": bytes(3 * PIECE + 7), "d": bytes(range(256)) * 5000}


def made(method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"", force: bool = False) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.comment = comment
        for name, content in CONTENTS.items():
            with archive.open(name, "w", force_zip64=force) as entry:
                entry.write(content)
    return file.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("comment", [b"", b"x" * 65535])
@pytest.mark.parametrize("force", [False, True])
def test_what_zipfile_writes_is_read(method: int, comment: bytes, force: bool) -> None:
    archive = Archive(io.BytesIO(made(method, comment, force)))
    assert list(archive.entries) == list(CONTENTS)
    for name, content in CONTENTS.items():
        assert archive.read(name) == content
        assert all(len(piece) <= PIECE for piece in archive.pieces(name))


def test_more_entries_than_16_bits_count() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for i in range(66_000):
            archive.writestr(zipfile.ZipInfo(str(i)), b"")
    assert len(Archive(file).entries) == 66_000


def patched(at: int, value: int, local_at: int | None = None) -> bytes:
    """Every entry of the directory with one byte changed, and the local headers'."""
    raw = bytearray(made(zipfile.ZIP_STORED))
    for sign, place in ((b"PK\x01\x02", at), (b"PK\x03\x04", local_at)):
        found = raw.find(sign)
        while place is not None and found >= 0:
            raw[found + place] = value
            found = raw.find(sign, found + 1)
    return bytes(raw)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "no directory at its end"),
        (b"PK\x03\x04", "no directory at its end"),
        (made()[:-30], "no directory at its end"),
        (patched(8, 1, 6), "is encrypted"),
        (patched(9, 0x20, 7), "is encrypted"),
        (patched(10, 14, 8), "compressed by method 14; expected stored or deflated"),
        (patched(10, 8, 8), "is damaged"),
        (patched(24, 9), "cannot unpack to 9|is damaged"),
        (patched(16, 1), "its checksum is not that of its bytes"),
        (patched(45, 1), "overlaps|not where"),
        (patched(0, 0), "the archive's directory is damaged"),
    ],
)
def test_a_damaged_archive_is_a_sentence(raw: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):  # of the directory or of the entry
        archive = Archive(io.BytesIO(raw))
        for name in archive.entries:
            archive.read(name)


def test_two_entries_of_one_name_are_refused() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", b"2")
    with pytest.raises(ValueError, match="two entries 'a'"):
        Archive(file)


def test_entries_that_overlap_are_refused() -> None:
    """Both of the directory's entries are the first one's bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", b"x" * 50)
        archive.writestr("b", b"x" * 50)
    raw = bytearray(file.getvalue())
    second = raw.rfind(b"PK\x01\x02")
    raw[second + 42 : second + 46] = struct.pack("<I", 0)
    with pytest.raises(ValueError, match="overlaps"):
        Archive(io.BytesIO(raw))


def test_an_entry_that_unpacks_further_than_it_says_is_cut_off() -> None:
    raw = bytearray(made())
    entry = raw.find(b"PK\x01\x02", raw.find("ü".encode(), raw.find(b"PK\x01\x02")) - 46)
    raw[entry + 24 : entry + 28] = struct.pack("<I", 1000)
    archive = Archive(io.BytesIO(raw))
    with pytest.raises(ValueError, match="it has more bytes; expected 1000"):
        archive.read("ü")


def test_random_changes_are_value_errors() -> None:
    draw = random.Random(0)
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        whole = made(method)
        start = whole.find(b"PK\x01\x02")
        for _ in range(150):
            raw = bytearray(whole)
            raw[draw.choice((draw.randrange(start, len(raw)), draw.randrange(100)))] = draw.randrange(256)
            try:
                archive = Archive(io.BytesIO(raw))
                archive.read(draw.choice(list(archive.entries)))
            except ValueError:
                continue
