"""GIFs: the first frame, on white where it is transparent, whatever else the file holds."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.data import BrokenImage, read_image
from minorm.data.pictures import gif

Image = pytest.importorskip("PIL.Image")

LEVELS = np.random.default_rng(0).integers(0, 256, (8, 8), np.uint8)


def saved(*frames: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], **options)
    return file.getvalue()


def test_the_first_frame_of_several(tmp_path: Path) -> None:
    frames = [Image.fromarray(LEVELS // n) for n in (1, 2, 3)]
    (tmp_path / "a.gif").write_bytes(saved(*frames, disposal=2, loop=0, comment=b"words"))
    found = read_image(tmp_path / "a.gif", 8)
    assert np.array_equal(found, np.stack([LEVELS] * 3))
    assert np.array_equal(read_image(tmp_path / "a.gif", 8, channels=1), LEVELS[None])
    kept = gif.read((tmp_path / "a.gif").read_bytes()).contents
    assert Image.open(io.BytesIO(kept)).n_frames == 1
    assert b"words" not in kept


def test_a_palette_and_what_is_transparent(tmp_path: Path) -> None:
    colours = np.array([(10, 20, 30), (200, 0, 7), (5, 250, 90), (1, 2, 3)], np.uint8)
    numbers = LEVELS % 4
    image = Image.fromarray(numbers, "P")
    image.putpalette(colours.tobytes())
    (tmp_path / "a.gif").write_bytes(saved(image))
    assert np.array_equal(read_image(tmp_path / "a.gif", 8), colours[numbers].transpose(2, 0, 1))
    (tmp_path / "a.gif").write_bytes(saved(image, transparency=1))
    colours[1] = 255
    assert np.array_equal(read_image(tmp_path / "a.gif", 8), colours[numbers].transpose(2, 0, 1))


def test_a_frame_that_is_larger_than_the_screen(tmp_path: Path) -> None:
    raw = bytearray(saved(Image.fromarray(LEVELS)))
    struct.pack_into("<HH", raw, 6, 2, 3)
    picture = gif.read(bytes(raw))
    assert (picture.width, picture.height) == (8, 8)
    (tmp_path / "a.gif").write_bytes(raw)
    assert np.array_equal(read_image(tmp_path / "a.gif", 8)[0], LEVELS)


def test_a_screen_of_billions_of_pixels_is_refused(tmp_path: Path) -> None:
    raw = bytearray(saved(Image.fromarray(LEVELS)))
    struct.pack_into("<HH", raw, 6, 65535, 65535)
    (tmp_path / "a.gif").write_bytes(raw)
    with pytest.raises(BrokenImage, match="65535 x 65535 pixels take"):
        read_image(tmp_path / "a.gif", 8)
    struct.pack_into("<HH", raw, 6, 11000, 11000)
    (tmp_path / "a.gif").write_bytes(raw)
    with pytest.raises(BrokenImage, match="to find out whether the file is whole"):
        read_image(tmp_path / "a.gif", 8)


def test_what_breaks_off_is_a_sentence(tmp_path: Path) -> None:
    raw = saved(Image.fromarray(LEVELS))
    for length in (*range(6, len(raw) - 1, 7), len(raw) - 2):
        (tmp_path / "a.gif").write_bytes(raw[:length])
        with pytest.raises(BrokenImage, match=r"a\.gif' "):
            read_image(tmp_path / "a.gif", 8)
    with pytest.raises(ValueError, match="there is no frame in it"):
        gif.read(raw[:6] + struct.pack("<HHBBB", 4, 4, 0, 0, 0) + b";")
