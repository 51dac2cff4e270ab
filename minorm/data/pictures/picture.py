"""Picture: the facts in a picture file's header, and the bytes that its decoder needs."""

from __future__ import annotations

from typing import NamedTuple

PIXEL, ROW = 4, 32  # the most bytes that Pillow takes for them


class Picture(NamedTuple):
    """A picture file. `working` is the memory of its decoder besides the pixels, in bytes per pixel."""

    kind: str
    width: int
    height: int
    orientation: int
    working: int
    contents: bytes  # without notes
    checked: bool = False  # are all pixels known to be there

    def decoded(self, scale: int = 1) -> int:
        """Return the bytes of all pixels, for a JPEG decoded at 1/scale of its size."""
        width, height = -(-self.width // scale), -(-self.height // scale)
        return width * height * PIXEL + height * ROW

    def taken(self, scale: int = 1) -> int:
        """Return these bytes plus those that the decoder needs besides."""
        return self.decoded(scale) + self.width * self.height * self.working
