"""Picture: the facts from a picture file's header, and the bytes that its decoder needs."""

from __future__ import annotations

from typing import NamedTuple

PIXEL, ROW = 4, 32  # the most bytes that Pillow takes for each pixel and, in addition, for each row


class Picture(NamedTuple):
    """A picture file. `working` is the memory of its decoder besides the pixels, in bytes per pixel."""

    kind: str
    width: int
    height: int
    orientation: int
    working: int
    contents: bytes  # the file without notes
    checked: bool = False  # whether the file is known to have all pixels

    def decoded(self, scale: int = 1) -> int:
        """Return the number of bytes of all pixels; a JPEG may be decoded at 1/scale of its size."""
        width, height = -(-self.width // scale), -(-self.height // scale)
        return width * height * PIXEL + height * ROW

    def taken(self, scale: int = 1) -> int:
        """Return the bytes of `decoded` plus the bytes that the decoder needs in addition."""
        return self.decoded(scale) + self.width * self.height * self.working
