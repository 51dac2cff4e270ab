"""BMPs: their pixels as they are, and a sentence for what is not read."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from minorm.data import BrokenImage, read_image
from minorm.data.pictures import bmp

Image = pytest.importorskip("PIL.Image")

RGB = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)


def header(width: int, height: int, bits: int, compression: int = 0, offset: int = 54) -> bytes:
    return struct.pack("<2sIII", b"BM", 0, 0, offset) + struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, bits, compression, 0, 0, 0, 0, 0
    )


@pytest.mark.parametrize("ending", ["bmp", "dib", "png"])  # what the file holds decides, not its name
def test_pixels_come_as_they_are(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    Image.fromarray(RGB).save(path, "BMP")
    assert np.array_equal(read_image(path, 8), RGB.transpose(2, 0, 1))
    Image.fromarray(RGB[..., 0]).save(path, "BMP")
    assert np.array_equal(read_image(path, 8, channels=1), RGB[None, ..., 0])


def test_rows_from_the_top_and_of_odd_lengths(tmp_path: Path) -> None:
    pixels = RGB[:5, :5]
    rows = b"".join(row[:, ::-1].tobytes() + b"\0" for row in pixels)  # blue first; 15 bytes and 1
    for height, stored in ((5, b"".join(rows[i : i + 16] for i in range(64, -1, -16))), (-5, rows)):
        (tmp_path / "a.bmp").write_bytes(header(5, height, 24) + stored)
        assert np.array_equal(read_image(tmp_path / "a.bmp", 5), pixels.transpose(2, 0, 1))


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    """Only where the header says that the fourth byte is that: otherwise it means nothing."""
    alpha = np.where(np.arange(8) < 4, 0, 255) + np.zeros((8, 1))
    stored = np.dstack([RGB[..., ::-1], alpha]).astype(np.uint8).tobytes()
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    raw = bytearray(header(8, -8, 32, 3, 70) + masks + stored)
    raw[14] = 56
    (tmp_path / "a.bmp").write_bytes(raw)
    seen = np.where(alpha[..., None] > 0, RGB, 255)
    assert np.array_equal(read_image(tmp_path / "a.bmp", 8), seen.transpose(2, 0, 1))
    (tmp_path / "a.bmp").write_bytes(header(8, -8, 32) + stored)
    assert np.array_equal(read_image(tmp_path / "a.bmp", 8), RGB.transpose(2, 0, 1))


def test_what_is_missing_or_compressed_is_said() -> None:
    whole = header(4, 4, 8) + bytes(1024 + 16)
    assert bmp.read(header(4, 4, 24) + bytes(48))[:3] == ("BMP", 4, 4)
    for raw, message in (
        (header(4, 4, 8, 1), "its compression is RLE8; expected a BMP without"),
        (header(4, 4, 24) + bytes(47), "truncated"),
        (header(1 << 30, 1 << 30, 1) + bytes(99), "truncated"),
        (header(0, 4, 24), "0 x 4 pixels"),
    ):
        with pytest.raises(ValueError, match=message):
            bmp.read(raw)
    assert bmp.read(whole).checked


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    Image.fromarray(RGB).save(tmp_path / "a.bmp")
    (tmp_path / "a.bmp").write_bytes((tmp_path / "a.bmp").read_bytes()[:-9])
    with pytest.raises(BrokenImage, match=r"a\.bmp' cannot be decoded: image file is truncated"):
        read_image(tmp_path / "a.bmp", 8)
