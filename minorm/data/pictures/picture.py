"""Picture: what a picture file says of itself, and the bytes that its decoder needs."""

from __future__ import annotations

from typing import NamedTuple

PIXEL, ROW = 4, 32  # bytes that Pillow takes for them at most


class Picture(NamedTuple):
    """A picture file. `working` is what its decoder keeps beside the pixels, in bytes for a pixel."""

    kind: str
    width: int
    height: int
    orientation: int
    working: int
    contents: bytes  # without notes
    checked: bool = False  # whether all pixels are known to be there

    def decoded(self, scale: int = 1) -> int:
        """Bytes of all pixels, where a JPEG is decoded at 1/scale of its size."""
        width, height = -(-self.width // scale), -(-self.height // scale)
        return width * height * PIXEL + height * ROW

    def taken(self, scale: int = 1) -> int:
        """These bytes, and those that the decoder needs beside them."""
        return self.decoded(scale) + self.width * self.height * self.working
