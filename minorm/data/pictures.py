"""A picture file becomes a square of bytes: turned upright, made RGB or grey, the shorter side scaled, the centre cut.

    file (any size, any mode)  ->  uint8, channels x size x size

Training and prediction read through this one function, so a model sees in use what it saw in training. Of a large JPEG
only as much is decoded as the square needs. Needs Pillow.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from minorm import opening
from minorm.data.dataset import Array, FilePath
from minorm.documented import documented

FORMATS = ("PNG", "JPEG", "WEBP")
ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
PAPER = (255, 255, 255)  # what shines through where a picture is transparent
GAP = 2.0  # a picture is decoded at no less than this times the size, so that scaling still has something to average
ORIENTATION = 0x0112  # the EXIF tag
EXIF = {"exif", "Raw profile type exif"}  # where Pillow puts it


class BrokenImage(ValueError):
    """A file that holds no whole picture; the message names it and says why."""


@documented(
    {},
    path="a PNG, JPEG or WebP",
    size="height and width: the shorter side is scaled to it, the centre cut",
    channels="3 for RGB, 1 for grey",
)
def read_image(path: FilePath, size: int, channels: int = 3) -> Array:
    """The picture as uint8, channels x size x size.

    EXIF's rotation is obeyed, what is transparent becomes white, 16 bits become 8, CMYK becomes RGB. BrokenImage (a
    ValueError) where the file is truncated or no PNG, JPEG or WebP; OSError where it cannot be read.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> with tempfile.NamedTemporaryFile(suffix=".png") as file:
        ...     Image.new("RGB", (9, 9), "white").save(file.name)
        ...     mn.data.read_image(file.name, size=1, channels=1)
        array([[[255]]], dtype=uint8)
    """
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ImportError("read_image: needs Pillow; install with: pip install pillow") from error
    contents = opening.contents(path, "read_image")
    try:
        return _square(contents, size, channels)
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises whatever a decoder meets: OSError, SyntaxError, struct.error
        raise BrokenImage(f"read_image: {str(path)!r} {_reason(contents, error)}") from error


def _square(contents: bytes, size: int, channels: int) -> Array:
    from PIL import Image

    with Image.open(io.BytesIO(contents), formats=FORMATS) as image:
        image.draft(None, (round(size * GAP),) * 2)  # JPEG decodes at 1/2, 1/4 or 1/8 as well
        image.load()  # a PNG may have its EXIF after the pixels
        orientation = image.getexif().get(ORIENTATION, 1) if EXIF & image.info.keys() else 1
        upright = _cut(_flat(image, "L" if channels == 1 else "RGB"), size)
        turn = _TURNS.get(orientation)
        if turn is not None:  # a centred square is turned as well after the cut as before
            upright = upright.transpose(Image.Transpose(turn))
        pixels = np.asarray(upright)
    return pixels[None].copy() if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


# How to turn a picture whose EXIF orientation is this: Pillow's numbers for mirrored, upside down, and so on.
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


def _flat(image: Any, mode: str) -> Any:
    """The image in this mode, on white paper where it is transparent."""
    if image.mode == mode and not image.has_transparency_data:
        return image
    from PIL import Image

    if image.mode in ("I", "I;16", "I;16B", "I;16L"):  # 16 bits of grey
        levels = np.asarray(image).astype(np.int64).clip(0, 65535)
        image = Image.fromarray(((levels + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, (*PAPER, 255))
        image = Image.alpha_composite(paper, image.convert("RGBA"))
    return image.convert(mode)


def _cut(image: Any, size: int) -> Any:
    """The largest square in the middle, at this size."""
    if image.size == (size, size):
        return image
    from PIL import Image

    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box, reducing_gap=GAP)


def _reason(contents: bytes, error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if not contents:
        return "is empty; expected a PNG, JPEG or WebP file"
    if isinstance(error, UnidentifiedImageError):
        return "is no picture that can be read; expected a PNG, JPEG or WebP file"
    said = str(error).rstrip(".") or type(error).__name__
    return f"cannot be decoded: {said}"
