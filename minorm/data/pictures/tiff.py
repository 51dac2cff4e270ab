"""Reads a TIFF's first page, and gives the file a new directory with only the entries that the pixels need.

A directory may have 65,535 entries that all point to the same bytes, and strips at any position. Here each entry is
read once, and each strip must be in the file. The decoder then sees only the new directory.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from minorm.data.pictures.picture import PIXEL, Picture

STARTS = {b"II*\0": "<", b"MM\0*": ">"}
BIG = (b"II+\0", b"MM\0+")
SHORT, LONG = 3, 4
_SIZES = {1: "u1", SHORT: "u2", LONG: "u4"}  # of numbers, by their type

WIDTH, HEIGHT, BITS, COMPRESSION, COLOURS, ORIENTATION, SAMPLES = 256, 257, 258, 259, 262, 274, 277
STRIPS, ROWS, STRIP_LENGTHS, PLANES, PREDICTOR, PALETTE = 273, 278, 279, 284, 317, 320
TILE_WIDTH, TILE_HEIGHT, TILES, TILE_LENGTHS, EXTRA, FORMAT, FILL = 322, 323, 324, 325, 338, 339, 266
_LISTS = (STRIPS, STRIP_LENGTHS, TILES, TILE_LENGTHS, PALETTE)
_NEEDED = {
    WIDTH, HEIGHT, BITS, COMPRESSION, COLOURS, SAMPLES, PLANES, PREDICTOR, EXTRA, FORMAT, FILL, ROWS, TILE_WIDTH,
    TILE_HEIGHT, ORIENTATION, *_LISTS,
}  # fmt: skip
_PLAIN = 1
_COMPRESSIONS = {_PLAIN: "none", 5: "LZW", 8: "Deflate", 32946: "Deflate", 32773: "PackBits"}
_GREY_0_WHITE, _GREY, _RGB, _BY_PALETTE, _CMYK = 0, 1, 2, 3, 5
_EXTRAS: dict[int, tuple[tuple[int, ...], ...]] = {
    _GREY_0_WHITE: ((),), _GREY: ((), (0,), (2,)), _RGB: ((), (0,), (1,), (2,)), _BY_PALETTE: ((),), _CMYK: ((),)
}  # fmt: skip
_BITS = {_GREY_0_WHITE: (1, 2, 4, 8), _GREY: (1, 2, 4, 8, 16), _RGB: (8, 16), _BY_PALETTE: (1, 2, 4, 8), _CMYK: (8, 16)}
_FORMATS = {2: "with a sign", 3: "floats"}
SMALL = 1 << 20  # pixels of a tile, which may be larger than its picture
MOST_PIECES = 1 << 16  # strips or tiles: the decoder keeps a record of each


class _Page(NamedTuple):
    """The entries of a directory, and the byte order of the file."""

    order: str
    entries: dict[int, tuple[int, Any]]  # type and numbers, by tag

    def one(self, tag: int, default: int) -> int:
        """Return the first number of an entry, or `default` if there is no such entry."""
        return int(self.entries[tag][1][0]) if tag in self.entries else default

    def all(self, tag: int, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return all numbers of an entry, or `default` if there is no such entry."""
        return tuple(self.entries[tag][1].tolist()) if tag in self.entries else default


def read(contents: bytes) -> Picture:
    """Read the first page's entries; raise ValueError if the page's kind is not supported, or if pixels are missing."""
    if contents.startswith(BIG):
        raise ValueError("it is a BigTIFF; expected a TIFF of less than 4 GB, or a PNG")
    page = _page(contents)
    width, height = page.one(WIDTH, 0), page.one(HEIGHT, 0)
    if not width or not height:
        raise ValueError(f"the file says that the picture has {width} x {height} pixels")
    bits, samples = _check_kind(page)
    compressed = page.one(COMPRESSION, _PLAIN) != _PLAIN
    page.entries.update(_pieces(page, len(contents), width, height, bits * samples, samples, compressed))
    orientation = page.one(ORIENTATION, 1)
    page.entries.pop(ORIENTATION, None)
    working = -(-bits * samples // 8) if compressed else 0
    return Picture("TIFF", width, height, orientation, working, _rewritten(contents, page), checked=not compressed)


def _page(contents: bytes) -> _Page:
    order = STARTS[contents[:4]]
    (at,) = struct.unpack_from(f"{order}I", contents, 4)
    (count,) = struct.unpack_from(f"{order}H", contents, at)
    entries: dict[int, tuple[int, Any]] = {}
    for place in range(at + 2, at + 2 + 12 * count, 12):
        tag, kind, number = struct.unpack_from(f"{order}HHI", contents, place)
        if tag not in _NEEDED or tag in entries:
            continue
        if kind not in _SIZES or not number or (number > 8 and tag not in _LISTS):
            raise ValueError(f"its entry {tag} has {number} numbers of type {kind}")
        form = np.dtype(f"{order}{_SIZES[kind]}")
        if number * form.itemsize > 4:
            (start,) = struct.unpack_from(f"{order}I", contents, place + 8)
        else:
            start = place + 8
        if start + number * form.itemsize > len(contents):
            raise ValueError("it breaks off before its pixels")
        entries[tag] = kind, np.frombuffer(contents, form, number, start)
    return _Page(order, entries)


def _check_kind(page: _Page) -> tuple[int, int]:
    """Return the bits per number and the numbers per pixel; raise ValueError for an unsupported kind."""
    compression, colours = page.one(COMPRESSION, _PLAIN), page.one(COLOURS, -1)
    if compression not in _COMPRESSIONS:
        raise ValueError(f"its compression is number {compression}; expected none, LZW, Deflate or PackBits")
    if colours not in _EXTRAS:
        raise ValueError(f"its colours are of kind {colours}; expected grey, RGB, a palette or CMYK")
    if (form := {*page.all(FORMAT, (1,))}) != {1}:
        raise ValueError(f"its numbers are {_FORMATS.get(max(form), 'of an unknown kind')}; expected whole numbers "
                         "from 0 to 255 or 65535")  # fmt: skip
    samples, bits, extra = page.one(SAMPLES, 1), {*page.all(BITS, (1,))}, page.all(EXTRA, ())
    if len(bits) != 1 or not bits <= {*_BITS[colours]}:
        raise ValueError(f"its numbers have {', '.join(map(str, sorted(bits)))} bits; expected "
                         f"{', '.join(map(str, _BITS[colours]))} for its colours")  # fmt: skip
    if extra not in _EXTRAS[colours] or (colours == _GREY and extra and bits != {8}):
        raise ValueError(f"it has {len(extra)} further numbers per pixel, of kind {extra}, beside colours of "
                         f"{max(bits)} bits; expected none, or one of transparency")  # fmt: skip
    expected = {_RGB: 3, _CMYK: 4}.get(colours, 1) + len(extra)
    if samples != expected and (colours, samples) != (_RGB, 4):  # some writers omit the entry on transparency
        raise ValueError(f"it has {samples} numbers per pixel; expected {expected}")
    if colours == _BY_PALETTE and len(page.all(PALETTE, ())) != 3 << max(bits):
        raise ValueError(f"its palette has {len(page.all(PALETTE, ())):,} numbers; expected {3 << max(bits)}")
    return bits.pop(), samples


def _pieces(
    page: _Page, length: int, width: int, height: int, bits: int, samples: int, compressed: bool
) -> dict[int, tuple[int, Any]]:
    """Return the entries of strips or tiles; `bits` is the number of bits of a pixel.

    Raises ValueError unless the file contains all strips or tiles.
    """
    layers = samples if page.one(PLANES, 1) == 2 else 1
    if layers > 1 and bits > 8 * samples:
        raise ValueError(
            "its colours are stored in separate planes and have 16 bits; expected interleaved colours, or 8 bits"
        )
    tiled = TILES in page.entries
    if tiled:
        across, down = page.one(TILE_WIDTH, 0), page.one(TILE_HEIGHT, 0)
        if not across or not down or across * down > max(PIXEL * width * height, SMALL):
            raise ValueError(f"its tiles have {across} x {down} pixels, but the picture has {width} x {height}")
        count, places = -(-height // down) * -(-width // across) * layers, (TILES, TILE_LENGTHS)
    else:
        across, down = width, max(1, min(page.one(ROWS, height), height))
        count, places = -(-height // down) * layers, (STRIPS, STRIP_LENGTHS)
    found = {len(page.entries[place][1]) for place in places if place in page.entries}
    if found != {count} or places[0] not in page.entries or count > MOST_PIECES:
        raise ValueError(f"it has {max(found, default=0):,} {'tiles' if tiled else 'strips'}; expected {count:,} for "
                         f"its size, and at most {MOST_PIECES:,}")  # fmt: skip
    starts = page.entries[places[0]][1].astype(np.int64)
    if not compressed:
        rows = np.full(count, down)
        if not tiled:
            rows[count // layers - 1 :: count // layers] = height - down * (count // layers - 1)
        lengths = rows * -(-across * bits // layers // 8)
    elif places[1] in page.entries:
        lengths = page.entries[places[1]][1].astype(np.int64)
    else:
        lengths = length - starts
    if (starts + lengths).max() > length or lengths.min() < 0:
        raise ValueError("image file is truncated")
    return {places[0]: (LONG, starts), places[1]: (LONG, lengths)}


def _rewritten(contents: bytes, page: _Page) -> bytes:
    """Return the file with a new directory of the page's entries at its end."""
    order, start = page.order, len(contents) + len(contents) % 2
    tags = sorted(page.entries)
    directory, lists = [struct.pack(f"{order}H", len(tags))], b""
    behind = start + 2 + 12 * len(tags) + 4
    for tag in tags:
        kind, numbers = page.entries[tag]
        raw = numbers.astype(f"{order}{_SIZES[kind]}").tobytes()
        if len(raw) > 4:
            raw, lists = struct.pack(f"{order}I", behind + len(lists)), lists + raw + bytes(len(raw) % 2)
        directory.append(struct.pack(f"{order}HHI4s", tag, kind, len(numbers), raw))
    head = contents[:4] + struct.pack(f"{order}I", start) + contents[8:] + bytes(len(contents) % 2)
    return b"".join([head, *directory, bytes(4), lists])
