"""Reads a BMP's header.

After the header come a palette, if pixels have at most 8 bits, and the uncompressed rows of pixels.
"""

from __future__ import annotations

import struct

from minorm.data.pictures.picture import Picture

START = b"BM"
_OLD = 12  # bytes of the header of OS/2, with sizes of 16 bits
_PLAIN = {0: "none", 3: "bit fields"}
_OTHER = {1: "RLE8", 2: "RLE4", 4: "JPEG", 5: "PNG"}


def read(contents: bytes) -> Picture:
    """Read the header; raise ValueError if pixels are missing or compressed."""
    offset, length = struct.unpack_from("<II", contents, 10)
    if length == _OLD:
        width, height, _, bits = struct.unpack_from("<4H", contents, 18)
        compression = 0
    else:
        width, height, _, bits, compression = struct.unpack_from("<IIHHI", contents, 18)
        if height >= 0xFF000000:  # a negative number: rows from the top
            height = (1 << 32) - height
    if compression not in _PLAIN:
        raise ValueError(
            f"its compression is {_OTHER.get(compression, compression)}; expected a BMP without compression"
        )
    if not width or not height:
        raise ValueError(f"the header says that the picture has {width} x {height} pixels")
    row = (width * bits + 31) // 32 * 4
    if offset + row * height > len(contents):
        raise ValueError("image file is truncated")
    return Picture("BMP", width, height, 1, 0, contents, checked=True)
