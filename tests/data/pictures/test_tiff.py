"""TIFFs: the first page's pixels from strips and tiles, whatever else a directory asks for; a word on other kinds."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.data import BrokenImage, read_image
from minorm.data.pictures import tiff

Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(0)
RGB = RNG.integers(0, 256, (16, 16, 3), np.uint8)
WIDE = RNG.integers(0, 65536, (16, 16), np.uint16)
BIG_END, LITTLE_END = ">", "<"


def made(order: str, entries: dict[int, Any], data: bytes) -> bytes:
    """A TIFF with its pixels at 8 and a directory behind them; lists are numbers of 32 bits."""
    start = 8 + len(data) + len(data) % 2
    directory, lists = struct.pack(f"{order}H", len(entries)), b""
    behind = start + 2 + 12 * len(entries) + 4
    for tag, value in sorted(entries.items()):
        numbers = value if isinstance(value, list) else [value]
        raw = struct.pack(f"{order}{len(numbers)}I", *numbers)
        if len(raw) > 4:
            raw, lists = struct.pack(f"{order}I", behind + len(lists)), lists + raw
        directory += struct.pack(f"{order}HHI", tag, 4, len(numbers)) + raw
    head = (b"II*\0" if order == LITTLE_END else b"MM\0*") + struct.pack(f"{order}I", start)
    return head + data + bytes(len(data) % 2) + directory + bytes(4) + lists


def plain(order: str = LITTLE_END, **changed: Any) -> bytes:
    """16 x 16 of RGB in four strips."""
    entries: dict[int, Any] = {
        tiff.WIDTH: 16, tiff.HEIGHT: 16, tiff.BITS: [8, 8, 8], tiff.COMPRESSION: 1, tiff.COLOURS: 2, tiff.SAMPLES: 3,
        tiff.STRIPS: [8 + 192 * i for i in range(4)], tiff.ROWS: 4, tiff.STRIP_LENGTHS: [192] * 4,
    }  # fmt: skip
    entries |= {getattr(tiff, name): value for name, value in changed.items()}
    return made(order, {tag: value for tag, value in entries.items() if value is not None}, RGB.tobytes())


def found(tmp_path: Path, raw: bytes, size: int = 16, **options: Any) -> np.ndarray:
    (tmp_path / "a.tif").write_bytes(raw)
    return read_image(tmp_path / "a.tif", size, **options)


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate", "tiff_deflate", "packbits"])
def test_pixels_come_as_they_are(tmp_path: Path, compression: str | None) -> None:
    path, options = tmp_path / "a.tiff", {"compression": compression} if compression else {}
    Image.fromarray(RGB).save(path, **options)
    assert np.array_equal(read_image(path, 16), RGB.transpose(2, 0, 1))
    Image.fromarray(RGB[..., 1]).save(path, **options)
    assert np.array_equal(read_image(path, 16, channels=1)[0], RGB[..., 1])
    Image.fromarray(WIDE).save(path, **options)
    assert np.array_equal(read_image(path, 16)[2], np.rint(WIDE / 257))
    bits = RGB[..., 0] > 99
    Image.fromarray(bits).save(path, **options)
    assert np.array_equal(read_image(path, 16)[0], bits * 255)
    palette = Image.fromarray(RGB[..., 0] % 4, "P")
    palette.putpalette(RGB[0, :4].tobytes())
    palette.save(path, **options)
    assert np.array_equal(read_image(path, 16), RGB[0][RGB[..., 0] % 4].transpose(2, 0, 1))
    alpha = np.where(np.arange(16) < 5, 0, 255) + np.zeros((16, 1))
    seen = np.where(alpha[..., None] > 0, RGB, 255)
    Image.fromarray(np.dstack([RGB, alpha]).astype(np.uint8)).save(path, **options)
    assert np.array_equal(read_image(path, 16), seen.transpose(2, 0, 1))
    Image.fromarray(np.dstack([RGB[..., 0], alpha]).astype(np.uint8), "LA").save(path, **options)
    assert np.array_equal(read_image(path, 16, channels=1)[0], seen[..., 0])


@pytest.mark.parametrize("order", [LITTLE_END, BIG_END])
def test_strips_tiles_and_planes(tmp_path: Path, order: str) -> None:
    wanted = RGB.transpose(2, 0, 1)
    assert np.array_equal(found(tmp_path, plain(order)), wanted)
    assert np.array_equal(found(tmp_path, plain(order, STRIP_LENGTHS=None)), wanted)
    at = {tiff.WIDTH: 16, tiff.HEIGHT: 16, tiff.BITS: 8, tiff.COMPRESSION: 1, tiff.COLOURS: 2, tiff.SAMPLES: 3}
    apart = at | {tiff.PLANES: 2, tiff.STRIPS: [8, 264, 520], tiff.ROWS: 16, tiff.STRIP_LENGTHS: [256] * 3}
    assert np.array_equal(found(tmp_path, made(order, apart, wanted.tobytes())), wanted)
    tile = np.zeros((2, 1, 16, 32, 3), np.uint8)  # 16 x 32 pixels each, of which the picture has a part
    tall = RNG.integers(0, 256, (20, 20, 3), np.uint8)
    for i in range(2):
        part = tall[16 * i : 16 * i + 16]
        tile[i, 0, : len(part), :20] = part
    tiles = at | {tiff.WIDTH: 20, tiff.HEIGHT: 20, tiff.TILE_WIDTH: 32, tiff.TILE_HEIGHT: 16, tiff.TILES: [8, 8 + 1536],
                  tiff.TILE_LENGTHS: [1536] * 2}  # fmt: skip
    assert np.array_equal(found(tmp_path, made(order, tiles, tile.tobytes()), 20), tall.transpose(2, 0, 1))
    wide = np.dstack([WIDE, WIDE[::-1], WIDE.T])
    deep = at | {tiff.BITS: 16, tiff.STRIPS: 8, tiff.STRIP_LENGTHS: 1536}
    got = found(tmp_path, made(order, deep, wide.astype(f"{order}u2").tobytes()))
    assert np.abs(got.transpose(1, 2, 0) - wide / 257).max() <= 1


def test_grey_where_0_is_white(tmp_path: Path) -> None:
    raw = made(LITTLE_END, {tiff.WIDTH: 16, tiff.HEIGHT: 16, tiff.BITS: 8, tiff.COLOURS: 0, tiff.STRIPS: 8},
               RGB[..., 0].tobytes())  # fmt: skip
    assert np.array_equal(found(tmp_path, raw, channels=1)[0], 255 - RGB[..., 0])


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw"])
def test_the_first_page_turned_upright(tmp_path: Path, compression: str) -> None:
    first, other = Image.fromarray(RGB[:8]), Image.fromarray(RGB[8:])
    first.save(tmp_path / "a.tif", save_all=True, append_images=[other], compression=compression, tiffinfo={274: 6})
    wanted = np.rot90(RGB[:8, 4:12], -1).transpose(2, 0, 1)  # turned clockwise to stand upright
    assert np.array_equal(read_image(tmp_path / "a.tif", 8), wanted)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"COMPRESSION": 7}, "its compression is number 7; expected none, LZW, Deflate or PackBits"),
        ({"COLOURS": 6}, "its colours are of kind 6; expected grey, RGB, a palette or CMYK"),
        ({"FORMAT": 3, "BITS": 32}, "its numbers are floats; expected whole numbers"),
        ({"FORMAT": [2, 2, 2]}, "its numbers are with a sign"),
        ({"BITS": 12}, "its numbers have 12 bits; expected 8, 16"),
        ({"BITS": 16, "SAMPLES": 1, "COLOURS": 0}, "its numbers have 16 bits; expected 1, 2, 4, 8"),
        ({"EXTRA": [0, 0, 0]}, "it has 3 further numbers per pixel"),
        ({"SAMPLES": 5}, "it has 5 numbers per pixel; expected 3"),
        ({"WIDTH": 0}, "the file says that the picture has 0 x 16 pixels"),
        ({"HEIGHT": 2**32 - 1}, "it has 4 strips; expected 1,073,741,824 for its size"),
        ({"ROWS": 5, "HEIGHT": 3}, "it has 4 strips; expected 1 for its size"),
        ({"STRIPS": [8, 200, 392, 800]}, "image file is truncated"),
        ({"TILES": 8, "TILE_WIDTH": 2**31, "TILE_HEIGHT": 2**31}, "its tiles have 2147483648 x 2147483648 pixels"),
        ({"COLOURS": 3, "SAMPLES": 1, "BITS": 8, "PALETTE": [0] * 9}, "its palette has 9 numbers; expected 768"),
        ({"PLANES": 2, "BITS": 16}, "its colours are stored in separate planes and have 16 bits"),
        ({"BITS": [8] * 9}, "its entry 258 has 9 numbers"),
    ],
)
def test_what_is_not_read_is_said(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(BrokenImage, match=rf"a\.tif' cannot be decoded: {message}"):
        found(tmp_path, plain(**changed))


def test_what_breaks_off_is_a_sentence(tmp_path: Path) -> None:
    raw = plain()
    for length in (6, 100, 770, 800, len(raw) - 5):
        with pytest.raises(BrokenImage, match=r"a\.tif' cannot be decoded: (it breaks off|image file is truncated)"):
            found(tmp_path, raw[:length])
    with pytest.raises(BrokenImage, match="it is a BigTIFF"):
        found(tmp_path, b"II+\0" + bytes(99))


def test_a_large_page_that_is_almost_empty_is_refused(tmp_path: Path) -> None:
    raw = plain(WIDTH=11000, HEIGHT=11000, COMPRESSION=5, STRIPS=8, STRIP_LENGTHS=9, ROWS=11000)
    with pytest.raises(BrokenImage, match="to find out whether the file is whole"):
        found(tmp_path, raw)
    with pytest.raises(BrokenImage, match="65535 x 65535 pixels take"):
        found(tmp_path, plain(WIDTH=65535, HEIGHT=65535, COMPRESSION=5, STRIPS=8, STRIP_LENGTHS=9, ROWS=65535))
