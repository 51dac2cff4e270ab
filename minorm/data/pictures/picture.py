"""Picture has the facts in a picture file's header, and the bytes that a decoder needs."""

from __future__ import annotations

from typing import NamedTuple

PIXEL, ROW = 4, 32  # the most bytes that Pillow takes for each pixel and, in addition, for each row


class Picture(NamedTuple):
    """A picture file. `working` is the memory, in bytes per pixel, that a decoder needs in addition to the pixels."""

    kind: str
    width: int
    height: int
    orientation: int
    working: int
    contents: bytes  # the file without notes
    checked: bool = False  # whether the file is known to have all pixels

    def decoded(self, scale: int = 1) -> int:
        """Return the number of bytes of all pixels. A JPEG may be decoded at 1/scale of its size."""
        width, height = -(-self.width // scale), -(-self.height // scale)
        return width * height * PIXEL + height * ROW

    def taken(self, scale: int = 1) -> int:
        """Return the number of bytes that a decoder needs in all: `decoded` and its working memory."""
        return self.decoded(scale) + self.width * self.height * self.working
