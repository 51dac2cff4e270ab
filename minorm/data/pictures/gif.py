"""Reduces a GIF to the parts that its first frame needs: the screen's size, the colours and this frame.

If a decoder got the whole file, it would join all comments and look for further frames. A frame may be larger than the
screen.
"""

from __future__ import annotations

import struct

from minorm.data.pictures.picture import Picture

START = b"GIF8"
_EXTENSION, _FRAME, _CONTROL, _END = 0x21, 0x2C, 0xF9, 0x3B
_HAS_PALETTE, _TRANSPARENT = 0x80, 1


def read(contents: bytes) -> Picture:
    """Read the file's header; raise ValueError if there is no frame, and IndexError if the file breaks off."""
    width, height, flags = struct.unpack_from("<HHB", contents, 6)
    at = 13 + _palette(flags)
    colours, control = contents[13:at], b""
    while contents[at] == _EXTENSION:
        end = _after_blocks(contents, at + 2)
        if contents[at + 1] == _CONTROL and contents[at + 2] == 4:
            control = contents[at:end]
        at = end
    if contents[at] != _FRAME:
        raise ValueError("there is no frame in it")
    left, top, across, down, frame_flags = struct.unpack_from("<4HB", contents, at + 1)
    end = _after_blocks(contents, at + 11 + _palette(frame_flags))
    width, height = max(width, left + across), max(height, top + down)
    if not across or not down:
        raise ValueError(f"its frame has {across} x {down} pixels")
    screen = contents[:6] + struct.pack("<HH", width, height) + contents[10:13]
    kept = [screen, colours, _without_disposal(control), contents[at:end], bytes([_END])]
    return Picture("GIF", width, height, 1, 0, b"".join(kept))


def _palette(flags: int) -> int:
    """Return the number of bytes of the palette; the flags state this number."""
    return 3 << ((flags & 7) + 1) if flags & _HAS_PALETTE else 0


def _after_blocks(contents: bytes, at: int) -> int:
    """Return the end of the blocks that begin at `at`.

    Each block states its length, and the last block has length 0.
    """
    while length := contents[at]:
        at += 1 + length
    return at + 1


def _without_disposal(control: bytes) -> bytes:
    """Return the frame's control block without the instruction on how to remove the frame before the next one."""
    return control[:3] + bytes([control[3] & _TRANSPARENT]) + control[4:] if control else b""
