"""Decodes a picture file to a square of bytes: the middle of the picture, upright, scaled, in RGB or grey.

    file (any size, any mode)  ->  uint8, channels x size x size

Training and prediction read pictures with the same function, so a model gets the same pixels in both. A large JPEG is
decoded at a lower resolution if this is enough for the square. Pillow must be installed.
"""

from __future__ import annotations

import functools
import io
from typing import Any

import numpy as np

from minorm.data.dataset import Array, FilePath
from minorm.data.listing import FORMATS
from minorm.data.pictures import picture_files
from minorm.data.pictures.picture import Picture
from minorm.serialization import limits, opening
from minorm.support.documented import documented
from minorm.support.safe_names import quoted

PAPER = (255, 255, 255)  # the background of transparent pixels
GAP = 2.0  # a JPEG is decoded to at least this times the size, so that scaling can still average pixels
SIXTEEN = ("I", "I;16", "I;16B", "I;16L")  # Pillow's modes of 16 bits of grey
GREYS = ("1", "L", *SIXTEEN)
STRIP = 1 << 20  # pixels converted at a time
FACTOR, SPARE = 40, 56_000_000  # a file not yet known to be whole may take FACTOR * its length + SPARE bytes
# In place of SPARE if only decoding shows whether a file is whole: WebP, GIF, compressed TIFF, JPEG of several scans
LATE = 256 << 20


class BrokenImage(ValueError):
    """The file does not contain a whole picture. The message names the file and the reason."""


@documented(
    {},
    path="a PNG, JPEG, WebP, BMP, GIF or TIFF",
    size="the height and width of the result: the shorter side is scaled to this size, and the centre square is cut "
    "out; None keeps the whole picture",
    channels="3 for RGB, 1 for grey",
    max_bytes="the bytes that the decoded picture may take, at 4 bytes per value; None allows 512 MiB",
)
def read_image(path: FilePath, size: int | None, channels: int = 3, max_bytes: int | None = None) -> Array:
    """Read the picture as uint8, channels x size x size. If `size` is None, keep the picture's size.

    EXIF's rotation is applied, transparent pixels become white, 16-bit numbers become 8-bit numbers, and CMYK becomes
    RGB. Only the first frame of a GIF and the first page of a TIFF are read. Raises BrokenImage (a ValueError) if the
    file is truncated, has more pixels than `max_bytes` allows, or is of another format. Raises OSError if the file
    cannot be read.

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
        picture = picture_files.look(contents)
        scale = _scale(picture, size)
        _check(picture, scale, len(contents), max_bytes)
        return _pixels(picture, size, channels)
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds: OSError, SyntaxError, struct.error
        raise BrokenImage(f"read_image: {quoted(str(path))} {_reason(contents, error)}") from error


def _scale(picture: Picture, size: int | None) -> int:
    """Return the factor by which Pillow's draft mode shrinks a JPEG: 1, 2, 4 or 8. Return 1 for other files."""
    if picture.kind != "JPEG" or size is None:
        return 1
    least = min(picture.width, picture.height) // max(1, round(size * GAP))
    return next((scale for scale in (8, 4, 2) if least >= scale), 1)


def _check(picture: Picture, scale: int, length: int, max_bytes: int | None) -> None:
    """Raise ValueError if the picture's pixels take more than `max_bytes`, or if the picture is damaged.

    Damage is looked for only if decoding takes far more memory than the `length` bytes of the file.
    """
    most = limits.IMAGE if max_bytes is None else max_bytes
    if (decoded := picture.decoded(scale)) > most:
        raise ValueError(limits.too_large(f"{picture.width} x {picture.height} pixels take", decoded, most))
    if (taken := picture.taken(scale)) <= FACTOR * length + SPARE:
        return
    if picture.kind == "PNG":
        picture_files.check_rows(picture)
    elif picture.kind == "JPEG" and not picture.working:
        with _opened(picture) as image:
            image.draft(None, (1, 1))
            image.load()
    elif not picture.checked and max_bytes is None and taken > FACTOR * length + LATE:
        raise ValueError(f"to find out whether the file is whole, decoding takes {taken:,} bytes, far more than the "
                         f"{length:,} bytes of the file; {limits.raised(most)}")  # fmt: skip


def _opened(picture: Picture) -> Any:
    """Open the picture as an image of Pillow. Nothing is decoded yet.

    Image.open is not used, because it refuses sizes that the caller may have allowed, and reads data that follow a
    JPEG.
    """
    from PIL import BmpImagePlugin, GifImagePlugin, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

    classes: dict[str, Any] = {
        "PNG": PngImagePlugin.PngImageFile, "JPEG": JpegImagePlugin.JpegImageFile,
        "WEBP": WebPImagePlugin.WebPImageFile, "BMP": BmpImagePlugin.BmpImageFile,
        "GIF": GifImagePlugin.GifImageFile, "TIFF": _tiff(),
    }  # fmt: skip
    return classes[picture.kind](io.BytesIO(picture.contents))


@functools.cache
def _tiff() -> Any:
    """Return Pillow's TIFF class, without its own limit on the pixels."""
    from PIL import Image, ImageFile, TiffImagePlugin

    class Tiff(TiffImagePlugin.TiffImageFile):
        def load_prepare(self) -> None:
            if self._im is None:
                self.im = Image.core.new(self.mode, self._tile_size)
            ImageFile.ImageFile.load_prepare(self)

    return Tiff


def _pixels(picture: Picture, size: int | None, channels: int) -> Array:
    from PIL import Image

    with _opened(picture) as image:
        if size is not None:
            image.draft(None, (round(size * GAP),) * 2)  # a JPEG can be decoded at 1/2, 1/4 or 1/8
        image.load()
        upright = _flat(image, "L" if channels == 1 else "RGB")
        upright = upright if size is None else _cut(upright, size)
    turn = _TURNS.get(picture.orientation)
    if turn is not None:  # turning a centred square after the cut gives the same as before it
        upright = upright.transpose(Image.Transpose(turn))
    pixels = np.asarray(upright if channels == 1 else upright.convert("RGB"))
    return pixels[None].copy() if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


# From EXIF orientation to Pillow's number for the turn that makes a picture upright.
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}


def _flat(image: Any, mode: str) -> Any:
    """Return the image in the mode `mode`, with white in place of transparent pixels.

    An opaque grey image stays grey.
    """
    if image.mode in GREYS and not image.has_transparency_data:
        mode = "L"
    if image.mode == mode and not image.has_transparency_data:
        return image
    from PIL import Image

    flat = Image.new(mode, image.size)
    width, height = image.size
    rows = max(1, STRIP // width)
    for top in range(0, height, rows):  # whole copies would take several times the image's memory
        strip = image.crop((0, top, width, min(top + rows, height)))
        flat.paste(_flat_strip(strip, mode), (0, top))
    return flat


def _flat_strip(image: Any, mode: str) -> Any:
    from PIL import Image

    if image.mode in SIXTEEN:
        levels = np.asarray(image).astype(np.int64).clip(0, 65535)
        levels[levels == image.info.get("transparency", -1)] = 65535  # white, as the paper
        image = Image.fromarray(((levels + 128) // 257).astype(np.uint8))
    if image.has_transparency_data:
        paper = Image.new("RGBA", image.size, (*PAPER, 255))
        image = Image.alpha_composite(paper, image.convert("RGBA"))
    return image.convert(mode)


def _cut(image: Any, size: int) -> Any:
    """Return the largest square in the middle of the image, scaled to `size` x `size` pixels."""
    if image.size == (size, size):
        return image
    from PIL import Image

    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return image.resize((size, size), Image.Resampling.BILINEAR, box=box, reducing_gap=GAP)


def _reason(contents: bytes, error: Exception) -> str:
    if not contents:
        return f"is empty; expected a {FORMATS} file"
    if isinstance(error, picture_files.OtherFormatError):
        return f"is no readable picture; expected a {FORMATS} file"
    said = str(error).rstrip(".") or type(error).__name__
    return f"cannot be decoded: {said}"
