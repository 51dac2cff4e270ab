"""Reads zip files entry by entry and piece by piece. PyTorch's .pt and NumPy's .npz files are zip archives.

Python's zipfile raises six kinds of errors for a damaged file, and takes seconds for a directory of some megabytes. It
also accepts overlapping entries, with which a small file can unpack to any number of bytes. This module checks the
whole directory before it reads an entry. Every fault is a ValueError, and no piece is larger than PIECE.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

PIECE = 1 << 20
RATIO = 1032  # the largest factor by which a deflate stream can grow
STORED, DEFLATED = 0, 8
UNREADABLE = 0x1 | 0x20 | 0x40 | 0x2000  # flags: encrypted, a patch, strongly encrypted, a hidden directory
UTF8 = 0x800

LOCAL, DIRECTORY, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
END_64, LOCATOR_64 = b"PK\x06\x06", b"PK\x06\x07"
_DIRECTORY = struct.Struct("<4s4x2H4x3L3H4x4xL")  # without versions, the time, disk numbers and attributes
_END = struct.Struct("<4s2H2H2LH")
_NARROW, _WIDE = 0xFFFF, 0xFFFFFFFF  # placeholders for numbers that zip64 holds


class Entry(NamedTuple):
    """An entry of the archive, with the description that the directory gives."""

    name: bytes
    method: int
    crc: int
    compressed: int
    size: int
    start: int  # the offset of its local header
    end: int  # the offset of the next entry or the directory


class Archive:
    """Holds a zip file's entries by name. Raises ValueError if the directory is damaged or has unreadable entries."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.length = file.seek(0, os.SEEK_END)
        start, size = self._end()
        found = list(_entries(self._bytes(start, size)))
        found.sort(key=lambda item: item[1].start)
        self.entries: dict[str, Entry] = {}
        ends = [entry.start for _, entry in found[1:]] + [start]
        for (name, entry), end in zip(found, ends, strict=True):
            if name in self.entries:
                raise ValueError(f"the archive has two entries {name[:60]!r}")
            if entry.start + 30 + len(entry.name) + entry.compressed > end:
                raise ValueError(f"entry {name[:60]!r} overlaps the data that follow it in the archive")
            self.entries[name] = entry._replace(end=end)

    def read(self, name: str) -> bytes:
        """Return the whole entry; call it only for small entries."""
        return b"".join(self.pieces(name))

    def pieces(self, name: str) -> Iterator[bytes]:
        """Yield the entry in pieces; raise ValueError, perhaps after the last piece, if size or checksum are wrong."""
        entry = self.entries[name]
        size = crc = 0
        for piece in self._inflated(entry) if entry.method == DEFLATED else self._stored(entry):
            size += len(piece)
            if size > entry.size:
                break
            crc = zlib.crc32(piece, crc)
            yield piece
        if size != entry.size:
            few = "more" if size > entry.size else f"{size}"
            raise ValueError(f"entry {name[:60]!r} is damaged: it has {few} bytes; expected {entry.size}")
        if crc != entry.crc:
            raise ValueError(f"entry {name[:60]!r} is damaged: its checksum is not that of its bytes")

    def _inflated(self, entry: Entry) -> Iterator[bytes]:
        engine = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            for raw in self._stored(entry):
                while raw and not engine.eof:
                    yield engine.decompress(raw, PIECE)
                    raw = engine.unconsumed_tail
                if engine.eof:
                    return
            yield engine.flush()
        except zlib.error as error:
            raise ValueError(f"entry {entry.name[:60]!r} is damaged: {error}") from None

    def _stored(self, entry: Entry) -> Iterator[bytes]:
        """Yield the bytes of the entry as they are stored, possibly compressed."""
        head = self._bytes(entry.start, 30)
        names, extra = struct.unpack("<2H", head[26:])
        at = entry.start + 30 + names + extra
        if head[:4] != LOCAL or self._bytes(entry.start + 30, names) != entry.name:
            raise ValueError(f"entry {entry.name[:60]!r} is not where the archive's directory says")
        if at + entry.compressed > entry.end:
            raise ValueError(f"entry {entry.name[:60]!r} overlaps the data that follow it in the archive")
        for start in range(at, at + entry.compressed, PIECE):
            yield self._bytes(start, min(PIECE, at + entry.compressed - start))

    def _bytes(self, start: int, count: int) -> bytes:
        """Return exactly `count` bytes of the file."""
        if start + count > self.length:
            raise ValueError("the archive breaks off")
        self.file.seek(start)
        found = self.file.read(count)
        if len(found) != count:
            raise ValueError("the archive became shorter while it was read")
        return found

    def _end(self) -> tuple[int, int]:
        """Return the directory's start and size."""
        room = min(self.length, _END.size + _NARROW)  # a comment may follow
        tail = self._bytes(self.length - room, room)
        found = tail.rfind(END)
        if found < 0 or found + _END.size > len(tail):
            raise ValueError("the archive has no directory at its end: it is truncated or no zip file")
        at = self.length - room + found
        _, _, _, _, count, size, start, _ = _END.unpack_from(tail, found)
        if count == _NARROW or _WIDE in (size, start):
            at, size, start = self._end_64(at, size, start)
        if start + size > at:
            raise ValueError("the archive's directory does not lie before its end")
        return start, size

    def _end_64(self, at: int, size: int, start: int) -> tuple[int, int, int]:
        """Return the directory's end, size and start: from the zip64 record if it exists, else the arguments."""
        locator = self._bytes(max(0, at - 20), 20)
        if locator[:4] != LOCATOR_64:
            return at, size, start
        (at,) = struct.unpack("<Q", locator[8:16])
        record = self._bytes(at, 56)
        if record[:4] != END_64:
            raise ValueError("the archive's directory is damaged")
        size, start = struct.unpack("<2Q", record[40:])
        return at, size, start


def _entries(directory: bytes) -> Iterator[tuple[str, Entry]]:
    """Yield every entry of the directory, with its name as text."""
    at = 0
    while at < len(directory):
        if at + _DIRECTORY.size > len(directory):
            raise ValueError("the archive's directory breaks off")
        sign, flags, method, crc, compressed, size, names, extras, comments, start = _DIRECTORY.unpack_from(
            directory, at
        )
        at += _DIRECTORY.size
        if sign != DIRECTORY or at + names + extras + comments > len(directory):
            raise ValueError("the archive's directory is damaged")
        raw, extra = directory[at : at + names], directory[at + names : at + names + extras]
        at += names + extras + comments
        name = raw.decode("utf-8" if flags & UTF8 else "cp437")  # UnicodeDecodeError is a ValueError
        if flags & UNREADABLE:
            raise ValueError(f"entry {name[:60]!r} is encrypted or a patch; expected a plain entry")
        if method not in (STORED, DEFLATED):
            raise ValueError(f"entry {name[:60]!r} is compressed by method {method}; expected stored or deflated bytes")
        if _WIDE in (size, compressed, start):
            size, compressed, start = _wide(extra, size, compressed, start)
        if size > compressed * RATIO + PIECE or (method == STORED and size != compressed):
            raise ValueError(f"entry {name[:60]!r} has {compressed} bytes, which cannot unpack to {size}")
        yield name, Entry(raw, method, crc, compressed, size, start, 0)


def _wide(extra: bytes, *numbers: int) -> list[int]:
    """Return the sizes and the start of an entry; numbers beyond 32 bits come from zip64's extra field."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            held = extra[at + 4 : at + 4 + length]
            wide = iter(struct.unpack(f"<{len(held) // 8}Q", held[: len(held) // 8 * 8]))
            return [next(wide, number) if number == _WIDE else number for number in numbers]
        at += 4 + length
    return list(numbers)
