"""read_image: every kind of picture file comes upright, square and in bytes; an error names a file that is not a
picture."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.data import BrokenImage, read_image
from tests.adversary.bombs import chunk, png

Image = pytest.importorskip("PIL.Image")


def saved(image: Any, path: Path, **options: Any) -> str:
    image.save(path, **options)
    return str(path)


def steps(height: int, width: int) -> np.ndarray:
    """RGB that tells rows and columns apart."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 200 // height, x * 200 // width, (y + x) % 50], -1).astype(np.uint8)


def test_a_square_of_its_own_size_comes_as_it_is(tmp_path: Path) -> None:
    pixels = steps(16, 16)
    found = read_image(saved(Image.fromarray(pixels), tmp_path / "a.png"), 16)
    assert found.dtype == np.uint8
    assert np.array_equal(found, pixels.transpose(2, 0, 1))


@pytest.mark.parametrize(("height", "width"), [(16, 40), (40, 16)])
def test_the_middle_is_cut(tmp_path: Path, height: int, width: int) -> None:
    pixels = steps(height, width)
    top, left = (height - 16) // 2, (width - 16) // 2
    wanted = pixels[top : top + 16, left : left + 16].transpose(2, 0, 1)
    assert np.array_equal(read_image(saved(Image.fromarray(pixels), tmp_path / "a.png"), 16), wanted)


def test_the_shorter_side_is_scaled(tmp_path: Path) -> None:
    """Against Pillow's resize of the whole picture and a cut after it."""
    image = Image.fromarray(steps(60, 80))
    whole = np.asarray(image.resize((32, 24), Image.Resampling.BILINEAR))[:, 4:28]
    found = read_image(saved(image, tmp_path / "a.png"), 24).transpose(1, 2, 0)
    assert np.abs(found.astype(int) - whole).max() <= 2


def test_a_large_photograph_is_the_average_of_what_it_shows(tmp_path: Path) -> None:
    y, x = np.mgrid[:3000, :4000]
    plain = np.stack([y / 3000 * 255, x / 4000 * 255, np.full(y.shape, 99)], -1).astype(np.uint8)
    found = read_image(saved(Image.fromarray(plain), tmp_path / "a.jpg", quality=90), 64).astype(float)
    middle = (np.arange(64) + 0.5) / 64
    assert np.abs(found[0] - (middle * 255)[:, None]).max() < 4
    assert np.abs(found[1] - ((500 + middle * 3000) / 4000 * 255)[None]).max() < 4
    assert np.abs(found[2] - 99).max() < 4


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "webp"])
def test_exif_turns_it_upright(tmp_path: Path, orientation: int, ending: str) -> None:
    """The stored picture, read without its tag, and turned as EXIF's table says, is what comes."""
    pixels = np.kron(steps(4, 6) + 20, np.ones((8, 8, 1), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {} if ending == "png" else {"quality": 100}
    path = saved(Image.fromarray(pixels), tmp_path / f"a.{ending}", exif=exif, **options)
    with Image.open(path) as stored:
        bare = np.asarray(stored.convert("RGB"))[:, 8:40]
    turned = {
        1: bare, 2: bare[:, ::-1], 3: bare[::-1, ::-1], 4: bare[::-1], 5: bare.swapaxes(0, 1),
        6: np.rot90(bare, -1), 7: bare[::-1, ::-1].swapaxes(0, 1), 8: np.rot90(bare, 1),
    }  # fmt: skip
    assert np.array_equal(read_image(path, 32), turned[orientation].transpose(2, 0, 1))


def test_every_mode_becomes_rgb_or_grey(tmp_path: Path) -> None:
    grey = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16))
    levels = np.asarray(grey)
    path = saved(grey, tmp_path / "grey.png")
    assert np.array_equal(read_image(path, 16), np.stack([levels] * 3))
    assert np.array_equal(read_image(path, 16, channels=1), levels[None])
    wide = saved(Image.fromarray(levels.astype(np.uint16) * 257), tmp_path / "wide.png")
    assert np.array_equal(read_image(wide, 16, channels=1), levels[None])
    bits = saved(grey.convert("1"), tmp_path / "bits.png")
    assert set(np.unique(read_image(bits, 16))) == {0, 255}
    palette = saved(Image.fromarray(steps(16, 16)).quantize(8), tmp_path / "palette.png")
    assert read_image(palette, 16).shape == (3, 16, 16)


def test_16_bits_of_colour_keep_their_upper_half(tmp_path: Path) -> None:
    """A PNG of RGB with 16 bits, which Pillow does not write: chunks by hand."""
    values = np.arange(3 * 64, dtype=np.uint16).reshape(8, 8, 3) * 340
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    file = tmp_path / "deep.png"
    file.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )
    found = read_image(str(file), 8).transpose(1, 2, 0).astype(int)
    assert np.abs(found - values / 257).max() <= 1


@pytest.mark.parametrize("ending", ["png", "webp"])
def test_what_is_transparent_is_white(tmp_path: Path, ending: str) -> None:
    pixels = np.zeros((8, 8, 4), np.uint8)
    pixels[:, 4:] = (200, 10, 30, 255)
    options = {"lossless": True} if ending == "webp" else {}
    found = read_image(saved(Image.fromarray(pixels), tmp_path / f"a.{ending}", **options), 8)
    assert (found[:, :, :4] == 255).all()
    assert np.array_equal(found[:, 0, 7], [200, 10, 30])
    pixels[:, :4] = (0, 0, 0, 128)
    found = read_image(saved(Image.fromarray(pixels), tmp_path / f"b.{ending}", **options), 8)
    assert np.abs(found[:, 0, 0].astype(int) - 127).max() <= 1
    lightness = saved(Image.fromarray(pixels).convert("LA"), tmp_path / "la.png")
    assert np.abs(read_image(lightness, 8)[:, 0, 0].astype(int) - 127).max() <= 1


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    ink = np.zeros((16, 16, 4), np.uint8)
    ink[..., 1] = 255  # magenta
    found = read_image(saved(Image.fromarray(ink, "CMYK"), tmp_path / "a.jpg", quality=100), 16)
    assert np.abs(found[:, 8, 8].astype(int) - [255, 0, 255]).max() <= 6


def broken(tmp_path: Path) -> dict[str, bytes]:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)).save(stream, "jpeg")
    picture = stream.getvalue()
    return {
        "empty.png": b"",
        "text.jpg": b"these are words, and no picture",
        "cut.jpg": picture[: len(picture) // 2],
        "head.jpg": picture[:100],
        "gif.png": b"GIF89a" + bytes(100),
        "png.png": b"\x89PNG\r\n\x1a\n" + bytes(40),
    }


def test_a_file_that_is_no_picture_is_named(tmp_path: Path) -> None:
    for name, contents in broken(tmp_path).items():
        (tmp_path / name).write_bytes(contents)
        with pytest.raises(BrokenImage, match=name):
            read_image(str(tmp_path / name), 16)
    with pytest.raises(FileNotFoundError, match=r"no\.png"):
        read_image(str(tmp_path / "no.png"), 16)
    with pytest.raises(OSError, match="folder"):
        read_image(str(tmp_path), 16)


def test_a_picture_of_billions_of_pixels_is_refused_before_it_is_made(tmp_path: Path) -> None:
    header = struct.pack(">IIBBBBB", 1 << 30, 1 << 30, 8, 2, 0, 0, 0)
    contents = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header
    (tmp_path / "huge.png").write_bytes(contents + struct.pack(">I", zlib.crc32(b"IHDR" + header)))
    with pytest.raises(BrokenImage, match=r"huge\.png"):
        read_image(str(tmp_path / "huge.png"), 16)


def rows(levels: np.ndarray, depth: int) -> bytes:
    """The unfiltered rows of a PNG, levels height x width x channels."""
    flat = levels.reshape(len(levels), -1)
    if depth == 16:
        packed = [row.astype(">u2").tobytes() for row in flat]
    else:
        bits = (flat[..., None] >> np.arange(depth)[::-1] & 1).reshape(len(flat), -1)
        packed = [np.packbits(row.astype(np.uint8)).tobytes() for row in bits]
    return b"".join(b"\0" + row for row in packed)


@pytest.mark.parametrize("transparent", [False, True])
@pytest.mark.parametrize(
    ("depth", "colour"), [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (8, 2), (16, 2), (16, 4), (16, 6)]
)
def test_the_colours_of_every_depth(tmp_path: Path, depth: int, colour: int, transparent: bool) -> None:
    """Against the PNG specification's formula: level / greatest level, on white by the alpha or the one colour."""
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    greatest = (1 << depth) - 1
    levels = np.random.default_rng(depth).integers(0, greatest + 1, (8, 8, channels))
    shares = levels / greatest
    alpha, extra = np.ones((8, 8, 1)), b""
    if colour in (4, 6):
        alpha, shares = shares[..., -1:], shares[..., :-1]
    elif transparent:
        chosen = levels[3, 4]
        extra = chunk(b"tRNS", b"".join(struct.pack(">H", int(level)) for level in chosen))
        alpha = 1.0 - (levels == chosen).all(-1, keepdims=True)
    wanted = 255 * np.broadcast_to(shares * alpha + 1 - alpha, (8, 8, 3))
    (tmp_path / "a.png").write_bytes(png(8, 8, depth=depth, colour=colour, extra=extra, raw=rows(levels, depth)))
    found = read_image(str(tmp_path / "a.png"), 8).transpose(1, 2, 0)
    assert np.abs(found - wanted).max() < 2
    grey = read_image(str(tmp_path / "a.png"), 8, channels=1)[0]
    assert np.abs(grey - wanted @ [0.299, 0.587, 0.114]).max() < 2


def test_the_limit_counts_pixels_before_they_are_made(tmp_path: Path) -> None:
    path = saved(Image.fromarray(steps(40, 30)), tmp_path / "a.png")
    count = 40 * 30 * 4 + 40 * 32
    assert read_image(path, 8, max_bytes=count).shape == (3, 8, 8)
    with pytest.raises(
        BrokenImage, match=rf"30 x 40 pixels take {count:,} bytes, more than max_bytes={count - 1}; pass"
    ):
        read_image(path, 8, max_bytes=count - 1)


def test_a_jpeg_counts_as_small_as_it_is_decoded(tmp_path: Path) -> None:
    path = saved(Image.fromarray(steps(800, 800)), tmp_path / "a.jpg")
    assert read_image(path, 50, max_bytes=100 * 100 * 4 + 100 * 32).shape == (3, 50, 50)
    with pytest.raises(BrokenImage, match="800 x 800 pixels take"):
        read_image(path, 50, max_bytes=100 * 100 * 4)


@pytest.mark.parametrize(("kind", "options"), [("WEBP", {}), ("JPEG", {"progressive": True})])
def test_what_shows_late_whether_it_is_whole_needs_leave(tmp_path: Path, kind: str, options: dict[str, Any]) -> None:
    """Below 256 MiB it needs none: photographs of many megapixels and few details are honest."""
    path = saved(Image.new("RGB", (4200, 4200), "red"), tmp_path / f"a.{kind.lower()}", **options)
    found = read_image(path, 4200)
    raw = bytearray(Path(path).read_bytes())
    form, at = ("<HH", 26) if kind == "WEBP" else (">HH", raw.index(b"\xff\xc2") + 5)
    struct.pack_into(form, raw, at, 11000, 11000)
    Path(path).write_bytes(raw)
    with pytest.raises(BrokenImage, match=r"to find out whether the file is whole, decoding takes .*; pass max_bytes="):
        read_image(path, 4200)
    with pytest.raises(BrokenImage) as raised:
        read_image(path, 4200, max_bytes=11000 * 11000 * 4 - 1)
    assert "11000 x 11000 pixels take" in str(raised.value)
    assert np.abs(found[:, ::500, ::500].astype(int) - np.array([255, 0, 0])[:, None, None]).max() <= 3


def test_a_photo_with_a_film_behind_it(tmp_path: Path) -> None:
    path = Path(saved(Image.fromarray(steps(300, 400)), tmp_path / "a.jpg"))
    alone = read_image(path, 64)
    path.write_bytes(path.read_bytes() + np.random.default_rng(0).bytes(9_000_000))
    assert np.array_equal(read_image(path, 64), alone)
