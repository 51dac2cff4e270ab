"""Reads the headers of PNG, JPEG and WebP files before a decoder gets the files. Other modules read other formats.

A decoder allocates as many pixels as the first bytes of a file state. It keeps text chunks that unpack to megabytes,
and it follows lists of EXIF entries that all point to the same bytes. So size and orientation are read here, and the
decoder gets the file without the parts that are not needed for pixels.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Iterator

from minorm.data.pictures import bmp, gif, tiff
from minorm.data.pictures.picture import PIXEL, Picture

PIECE = 1 << 20
MOST_SCANS = 100  # of a JPEG: each scan goes over all pixels, even if it has only a few bytes in the file
PNG, SOI, SCAN = b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"\xff\xda"
ORIENTATION = 0x0112  # the EXIF tag
RAW_EXIF = b"Raw profile type exif"  # as ImageMagick writes it into a PNG: the bytes in hexadecimal

_NEEDED = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by a PNG's type of colour
_PASSES = ((8, 8, 0, 0), (8, 8, 4, 0), (4, 8, 0, 4), (4, 4, 2, 0), (2, 4, 0, 2), (2, 2, 1, 0), (1, 2, 0, 1))
_MARKERS = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")  # these end a scan's data; 00 and D0 to D7 occur within it
_END, _SCAN = 0xD9, 0xDA
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # a JPEG's markers whose segment has the size


class OtherFormatError(ValueError):
    """The file is of another format."""


def look(contents: bytes) -> Picture:
    """Read the file's header; raise ValueError if it breaks off, and OtherFormatError if it is of another format."""
    tiffs = dict.fromkeys((*tiff.STARTS, *tiff.BIG), tiff.read)
    readers = {PNG: _png, SOI: _jpeg, b"RIFF": _webp, gif.START: gif.read, bmp.START: bmp.read, **tiffs}
    read = next((reader for start, reader in readers.items() if contents.startswith(start)), None)
    if read is None or (read is _webp and contents[8:12] != b"WEBP"):
        raise OtherFormatError
    try:
        return read(contents)
    except (struct.error, IndexError):
        raise ValueError("it breaks off before its pixels") from None


def _png(contents: bytes) -> Picture:
    width, height, depth, colour = struct.unpack_from(">IIBB", contents, 16)
    kept, orientation, at = [contents[:8]], 0, 8
    while at + 8 <= len(contents):
        length, kind = struct.unpack_from(">I4s", contents, at)
        end = at + 12 + length
        if kind == b"tRNS":
            kept.append(_transparent(contents[at + 8 : end - 4], depth, colour))
        elif kind in _NEEDED:
            kept.append(contents[at:end])
        elif not orientation and kind == b"eXIf":
            orientation = oriented(contents[at + 8 : end - 4])
        elif not orientation and kind in (b"tEXt", b"zTXt") and contents.startswith(RAW_EXIF, at + 8):
            orientation = oriented(_from_hexadecimal(contents[at + 9 + len(RAW_EXIF) : end - 4], kind == b"zTXt"))
        at = end
    return Picture("PNG", width, height, orientation or 1, 0, b"".join(kept))


def _transparent(levels: bytes, depth: int, colour: int) -> bytes:
    """Return the PNG chunk that names the transparent colour, with the levels of this colour in Pillow's pixels."""
    if colour == 0 and depth < 8:
        levels = struct.pack(">H", struct.unpack(">H", levels)[0] * 255 // ((1 << depth) - 1) & 0xFFFF)
    elif colour == 2 and depth == 16:
        levels = struct.pack(">3H", *(level >> 8 for level in struct.unpack(">3H", levels)))
    return struct.pack(">I", len(levels)) + b"tRNS" + levels + struct.pack(">I", zlib.crc32(b"tRNS" + levels))


def _from_hexadecimal(note: bytes, packed: bool) -> bytes:
    """Return the EXIF data in a text chunk of a PNG, or b"" if the chunk has no such data.

    The data are written in hexadecimal digits, after three lines of text.
    """
    try:
        note = zlib.decompressobj().decompress(note[1:], PIECE) if packed else note
        return bytes.fromhex("".join(note.decode("ascii").split("\n")[3:]))
    except (zlib.error, ValueError):
        return b""


def _jpeg(contents: bytes) -> Picture:
    kept, orientation, at = [SOI], 0, 2
    width = height = 0
    numbers = 0.0
    while not contents.startswith(SCAN, at):
        at = contents.find(b"\xff", at) % (len(contents) + 1)  # bytes between two segments mean nothing
        marker = contents[at + 1]
        if marker in (0x00, 0x01, 0xFF) or 0xD0 <= marker <= 0xD8:  # padding, or a marker without a segment
            at += 1 if marker == 0xFF else 2
            continue
        (length,) = struct.unpack_from(">H", contents, at + 2)
        segment = contents[at : at + 2 + length]
        if marker in _FRAMES:
            height, width, numbers = *struct.unpack_from(">HH", segment, 5), _numbers(segment)
        elif marker == 0xE1 and segment[4:10] == b"Exif\0\0":
            orientation = orientation or oriented(segment[10:])
        note = 0xE0 <= marker <= 0xEF or marker == 0xFE
        if not note or segment[4:9] in (b"JFIF\0", b"Adobe"):
            kept.append(segment)
        at += 2 + length
    scans, end = _scans(contents, at)
    if scans > MOST_SCANS:
        raise ValueError(f"it has {scans} scans; expected at most {MOST_SCANS}")
    working = math.ceil(2 * numbers) if scans > 1 else 0  # between two scans the numbers of all pixels are kept
    return Picture("JPEG", width, height, orientation or 1, working, b"".join([*kept, contents[at:end]]))


def _numbers(frame: bytes) -> float:
    """Return how many numbers a JPEG has per pixel. Often 2 or 4 pixels share one number of a colour component."""
    factors = [(factor >> 4, factor & 15) for factor in frame[11 : 10 + 3 * frame[9] : 3]]
    across, down = (max(1, *lengths) for lengths in zip(*factors, strict=True))
    return sum(wide * high for wide, high in factors) / (across * down)


def _scans(contents: bytes, at: int) -> tuple[int, int]:
    """Return the number of scans of a JPEG after position `at`, and the position where the JPEG ends.

    Other data, such as a video, may follow the JPEG in the file.
    """
    scans = 0
    while found := _MARKERS.search(contents, at):
        at, marker = found.end(), contents[found.end() - 1]
        if marker == _END:
            return scans, at
        scans += marker == _SCAN
        at += int.from_bytes(contents[at : at + 2], "big")  # a segment
    raise ValueError("it is truncated: the end marker of the image is missing")


def _webp(contents: bytes) -> Picture:
    first = contents[12:16]
    if first == b"VP8X":
        width, height = (1 + int.from_bytes(contents[i : i + 3], "little") for i in (24, 27))
    elif first == b"VP8L":
        sizes = int.from_bytes(contents[21:25], "little")
        width, height = 1 + (sizes & 0x3FFF), 1 + (sizes >> 14 & 0x3FFF)
    else:
        width, height = (size & 0x3FFF for size in struct.unpack_from("<HH", contents, 26))
    orientation, lossless, at = 1, False, 12
    while at + 8 <= len(contents):
        kind, length = struct.unpack_from("<4sI", contents, at)
        if kind == b"EXIF":
            orientation = oriented(contents[at + 8 : at + 8 + length])
        lossless |= kind in (b"VP8L", b"ANIM")  # frames of an animation may be of either kind
        at += 8 + length + length % 2
    return Picture("WEBP", width, height, orientation or 1, PIXEL if lossless else 0, contents)


def oriented(exif: bytes) -> int:
    """Return EXIF's orientation, or 0 if it is missing. Only the first directory's entries are read."""
    exif = exif.removeprefix(b"Exif\0\0")
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    try:
        if order is None:
            return 0
        (at,) = struct.unpack_from(f"{order}I", exif, 4)
        (count,) = struct.unpack_from(f"{order}H", exif, at)
        for entry in range(at + 2, at + 2 + 12 * count, 12):
            tag, kind, number, value = struct.unpack_from(f"{order}HHIH", exif, entry)
            if tag == ORIENTATION:
                return int(value) if kind == 3 and number == 1 else 0
    except struct.error:
        pass
    return 0


def check_rows(picture: Picture) -> None:
    """Raise ValueError unless a PNG has all bytes of its rows. The rows are unpacked piece by piece and not kept."""
    depth, colour, _, _, interlaced = struct.unpack_from("5B", picture.contents, 24)
    bits = depth * _CHANNELS.get(colour, 0)
    sizes = [(picture.width, picture.height)]
    if interlaced:
        sizes = [
            (-(-(picture.width - left) // across), -(-(picture.height - top) // down))
            for across, down, left, top in _PASSES
        ]
    rows = _Rows(picture.contents)
    for width, height in sizes:
        length = 1 + (width * bits + 7) // 8  # the first byte is the row's filter
        done = height if width <= 0 else 0
        while done < height:
            count = min(height - done, max(1, PIECE // length))
            if max(rows.take(count * length)[::length]) > 4:
                raise ValueError("a row has an unknown filter")
            done += count


class _Rows:
    """The unpacked bytes of a PNG's IDAT chunks."""

    def __init__(self, contents: bytes) -> None:
        self.pieces = self._unpacked(contents)
        self.rest = b""

    def take(self, count: int) -> bytes:
        """Return exactly the next `count` bytes; raise ValueError if there are fewer."""
        parts = [self.rest]
        held = len(self.rest)
        while held < count:
            piece = next(self.pieces, b"")
            if not piece:
                raise ValueError("image file is truncated")
            parts.append(piece)
            held += len(piece)
        whole = b"".join(parts)
        self.rest = whole[count:]
        return whole[:count]

    @staticmethod
    def _unpacked(contents: bytes) -> Iterator[bytes]:
        engine, at = zlib.decompressobj(), 8
        while at + 8 <= len(contents):
            length, kind = struct.unpack_from(">I4s", contents, at)
            raw = contents[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
            while raw and not engine.eof:
                if piece := engine.decompress(raw, PIECE):
                    yield piece
                raw = engine.unconsumed_tail
            at += 12 + length
        if piece := engine.flush():
            yield piece
