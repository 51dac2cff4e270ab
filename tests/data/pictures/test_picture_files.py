"""A picture file's size and orientation agree with Pillow's; the parts that no pixel needs are left out."""

from __future__ import annotations

import io
import struct
import time
import zlib
from typing import Any

import numpy as np
import pytest

from minorm.data.pictures import picture_files
from minorm.data.pictures.picture_files import check_rows, look, oriented
from tests.adversary.bombs import chunk, png

Image = pytest.importorskip("PIL.Image")


def saved(kind: str, channels: int = 3, size: tuple[int, int] = (37, 23), **options: Any) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (*size[::-1], channels), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels if channels > 1 else pixels[..., 0]).save(file, kind, **options)
    return file.getvalue()


FILES = {
    "png": ("PNG", {}), "grey": ("PNG", {"channels": 1}), "alpha": ("PNG", {"channels": 4}), "jpeg": ("JPEG", {}),
    "progressive": ("JPEG", {"progressive": True}), "grey jpeg": ("JPEG", {"channels": 1}), "webp": ("WEBP", {}),
    "lossless": ("WEBP", {"lossless": True}), "webp with alpha": ("WEBP", {"channels": 4}),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_size_and_the_orientation(name: str) -> None:
    kind, options = FILES[name]
    exif = Image.Exif()
    exif[0x0112] = 6
    for extra, orientation in (({}, 1), ({"exif": exif}, 6)):
        picture = look(saved(kind, **options, **extra))
        assert (picture.kind, picture.width, picture.height) == (kind, 37, 23)
        assert picture.orientation == orientation
        assert picture.decoded() == 37 * 23 * 4 + 23 * 32
    assert (picture.working > 0) == (name in ("progressive", "lossless"))


@pytest.mark.parametrize("name", [name for name in FILES if "webp" not in name and name != "lossless"])
def test_the_pixels_are_the_same_without_notes(name: str) -> None:
    kind, options = FILES[name]
    extra = {"icc_profile": bytes(5000), "dpi": (300, 300), "exif": b"Exif\0\0" + bytes(3000)}
    if kind == "JPEG":
        extra["comment"] = b"words" * 1000
    raw = saved(kind, **options, **extra)
    picture = look(raw)
    assert len(picture.contents) < len(raw) - 3000
    with Image.open(io.BytesIO(raw)) as whole, Image.open(io.BytesIO(picture.contents)) as bare:
        assert np.array_equal(np.asarray(whole), np.asarray(bare))


def test_imagemagicks_orientation() -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    text = "\nexif\n      99\n" + exif.tobytes().hex()
    for kind, note in ((b"tEXt", text.encode()), (b"zTXt", b"\0" + zlib.compress(text.encode()))):
        extra = chunk(kind, b"Raw profile type exif\0" + note)
        assert look(png(4, 4, extra=extra)).orientation == 8
    for broken in (b"\0" + b"\xff" * 9, b"\0" + zlib.compress(b"\n\n\nzz")):
        assert look(png(4, 4, extra=chunk(b"zTXt", b"Raw profile type exif\0" + broken))).orientation == 1


def test_orientations_that_are_none() -> None:
    head = struct.pack("<2sHIH", b"II", 42, 8, 1)
    assert oriented(head + struct.pack("<HHIHH", 0x0112, 3, 1, 5, 0)) == 5
    assert oriented(head + struct.pack("<HHIHH", 0x0112, 4, 1, 5, 0)) == 0
    for broken in (b"", b"II", b"XX*\0" + bytes(99), head, struct.pack(">2sHI", b"MM", 42, 2**32 - 1)):
        assert oriented(broken) == 0


@pytest.mark.parametrize(
    "raw", [saved("PNG")[:20], saved("JPEG")[:9], saved("JPEG")[:-300], saved("WEBP")[:25], b"\xff\xd8" + b"\xff" * 99]
)
def test_what_breaks_off_is_a_sentence(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"breaks off|truncated"):
        look(raw)


def test_another_format_is_told_apart() -> None:
    for raw in (b"", b"8BPS", b"GIF", b"II*", b"RIFF\0\0\0\0WAVE"):
        with pytest.raises(picture_files.OtherFormatError):
            look(raw)


@pytest.mark.parametrize("interlaced", [0, 1])
@pytest.mark.parametrize(("depth", "colour"), [(1, 0), (2, 3), (4, 0), (8, 2), (8, 4), (16, 6)])
@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 2), (37, 23), (300, 2)])
def test_all_rows_of_a_png_are_looked_at(width: int, height: int, depth: int, colour: int, interlaced: int) -> None:
    """As many bytes as the specification says: of an interlaced one pixel by pixel."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    if interlaced:
        steps = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
        sizes = [(len(range(x, width, dx)), len(range(y, height, dy))) for x, y, dx, dy in steps]
    else:
        sizes = [(width, height)]
    count = sum(h * (1 + -(-w * channels * depth // 8)) for w, h in sizes if w)
    whole = {"depth": depth, "colour": colour, "interlaced": interlaced}
    check_rows(look(png(width, height, raw=bytes(count), **whole)))
    with pytest.raises(ValueError, match="truncated"):
        check_rows(look(png(width, height, raw=bytes(count - 1), **whole)))
    with pytest.raises(ValueError, match="unknown filter"):
        check_rows(look(png(width, height, raw=b"\5" + bytes(count - 1), **whole)))


def test_a_jpeg_of_many_scans_is_refused() -> None:
    raw = saved("JPEG", progressive=True)
    scan = raw[raw.rfind(b"\xff\xda") : -2]
    with pytest.raises(ValueError, match=r"has 1\d\d scans; expected at most 100"):
        look(raw[:-2] + scan * 95 + raw[-2:])


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 1}], ids=str)
def test_what_follows_the_end_of_a_jpeg_is_left_out(options: dict[str, Any]) -> None:
    """A film, as phones put it there, with what looks like scans and ends."""
    raw = saved("JPEG", size=(200, 150), **options)
    film = np.random.default_rng(1).bytes(1_000_000) + b"\xff\xda" * 200 + b"\xff\xd9"
    alone, picture = look(raw), look(raw + film)
    assert picture == alone
    assert picture.contents.endswith(b"\xff\xd9")
    with Image.open(io.BytesIO(raw)) as whole, Image.open(io.BytesIO(picture.contents)) as bare:
        assert np.array_equal(np.asarray(whole), np.asarray(bare))
    with pytest.raises(ValueError, match="truncated"):
        look(raw[:-2])


def test_an_end_within_a_segment_is_none() -> None:
    raw = saved("JPEG", progressive=True)
    second = raw.index(b"\xff\xda", raw.index(b"\xff\xda") + 2)
    note = b"\xff\xfe\x00\x06\xff\xd9\xff\xda"
    picture = look(raw[:second] + note + raw[second:])
    assert picture.contents.endswith(note + raw[second:])


def test_the_time_of_a_jpeg_of_many_markers_grows_with_its_length() -> None:
    raw = saved("JPEG")
    for word in (b"\xff", b"\xff\xd0", b"\xff\x00", b"\xff\xfe\x00\x00"):
        start = time.process_time()
        assert look(raw[:-2] + word * 100_000 + raw[-2:]).kind == "JPEG"
        assert time.process_time() - start < 1


@pytest.mark.parametrize(("subsampling", "working"), [("4:4:4", 6), ("4:2:2", 4), ("4:2:0", 3)])
def test_a_jpeg_of_several_scans_keeps_two_bytes_a_number(subsampling: str, working: int) -> None:
    assert look(saved("JPEG", progressive=True, subsampling=subsampling)).working == working
    assert look(saved("JPEG", channels=1, progressive=True)).working == 2
    assert look(saved("JPEG", subsampling=subsampling)).working == 0
