"""Reading a file costs memory and time in proportion to it: files that promise or unpack to far more, and random ones.

A refusal costs at most 40 times the file's length and 64 MB (280 MB for a WebP, a GIF, a compressed TIFF or a JPEG of
several scans). An accepted file costs at most 4 times its decoded size and 64 MB; for a file of texts and lists that
size is not counted, and 40 times the file's length stands for it. A file three times as long takes about three times
the time. The only exception is ValueError, and there are no warnings.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.adversary import bombs
from tests.adversary.measuring import Cost, costs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

MB = 1_000_000
LATE = (
    "WEBP",
    "WebP",
    "JPEG progressive",
    "GIF",
    "TIFF packed",
)  # names of pictures that must be decoded to see whether they are whole
Case = tuple[str, str, bytes]  # name, reader, file


def of_pt(n: int) -> Iterator[Case]:
    return ((name, "load", file) for name, file in bombs.archives(n))


def of_safetensors(n: int) -> Iterator[Case]:
    return bombs.tensorfiles(n)


def of_npz(n: int) -> Iterator[Case]:
    return ((name, "load_npz", file) for name, file in bombs.numpy_files(n))


def of_idx(n: int) -> Iterator[Case]:
    return ((name, "read_idx", file) for name, file in bombs.idx_files(n))


def of_onnx(n: int) -> Iterator[Case]:
    from tests.adversary import onnx_bombs

    return ((name, "onnx.load", file) for name, file in onnx_bombs.files(n))


def of_pictures(n: int) -> Iterator[Case]:
    for name, file in bombs.pictures(n):
        yield name, "read_image", file
        if n >= 50_000:
            yield f"{name}, whole", "read_image whole", file


FORMATS: dict[str, Callable[[int], Iterator[Case]]] = {
    "pt": of_pt, "safetensors": of_safetensors, "npz": of_npz, "idx": of_idx, "onnx": of_onnx, "pictures": of_pictures,
}  # fmt: skip
NEEDS = {"onnx": "onnx", "pictures": "PIL"}


def measured(folder: Path, cases: list[Case]) -> list[Cost]:
    paths = []
    for number, (_, reader, file) in enumerate(cases):
        paths.append((reader, folder / str(number)))
        paths[-1][1].write_bytes(file)
    return costs(paths, timeout=1800)


def check(case: Case, cost: Cost) -> str:
    """Return what is wrong with a cost, or ""."""
    name, _, file = case
    if cost.error not in ("", "ValueError"):
        return f"{name}: {cost.error}"
    most = 40 * len(file) + (280 if name.startswith(LATE) else 64) * MB
    if not cost.error:
        most = max(most, 4 * cost.decoded + 64 * MB)
    return f"{name} of {len(file)} bytes: {cost.memory // MB} MB" if cost.memory > most else ""


def check_all(cases: list[Case], found: list[Cost]) -> None:
    assert len(cases) == len(found)
    assert not list(filter(None, map(check, cases, found)))


@pytest.mark.parametrize("kind", FORMATS)
def test_small_bombs(tmp_path: Path, kind: str) -> None:
    """Every kind of file, small: errors, and what a few bytes may take."""
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    cases = list(FORMATS[kind](5_000))
    found = measured(tmp_path, cases)
    check_all(cases, found)
    assert any(cost.error for cost in found)
    assert any(not cost.error for cost in found)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", FORMATS)
def test_large_bombs_and_their_time(tmp_path: Path, kind: str) -> None:
    if kind in NEEDS:
        pytest.importorskip(NEEDS[kind])
    n = 100_000
    one, three = list(FORMATS[kind](n)), list(FORMATS[kind](3 * n))
    costs_one, costs_three = measured(tmp_path, one), measured(tmp_path, three)
    check_all(one, costs_one)
    check_all(three, costs_three)
    slow = []
    for small, large, less, more in zip(one, three, costs_one, costs_three, strict=True):
        grown = max(len(large[2]), more.decoded) / max(len(small[2]), less.decoded)
        if more.error == less.error and more.seconds > 0.5 + 3 * grown * less.seconds:
            slow.append(f"{small[0]}: {less.seconds:.2f} s and {more.seconds:.2f} s")
    assert not slow


# Random files


def whole_files() -> list[tuple[str, bytes]]:
    """A small file of each format that its reader accepts."""
    torch_file = bombs.pt(
        b"}" + bombs.text("w") + bombs.tensor(bombs.storage("0", 6), (2, 3), (3, 1)) + b"s",
        {"0": np.arange(6, dtype=np.float32).tobytes()},
    )
    tensors = bombs.safetensors(b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', bytes(8))
    tree = bombs.safetensors(
        b'{"__metadata__":{"minorm.tree":"{\\"a\\":[1,{\\"$tuple\\":[2]},{\\"$tensor\\":\\"w\\"}]}"},'
        b'"w":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\0",
    )  # fmt: skip
    found = [
        ("load", torch_file), ("load", tensors), ("load_training", tree), ("load_npz", bombs.npz(bombs.arrays(1))),
        ("load_npz", bombs.npz(bombs.arrays(1), deflated=False)),
        ("read_idx", next(file for name, file in bombs.idx_files(1) if name == "zeros")),
    ]  # fmt: skip
    try:
        from tests.adversary import onnx_bombs

        found += [("onnx.load", file) for file in onnx_bombs.whole()]
    except ImportError:  # onnx is an extra
        pass
    try:
        from PIL import Image
    except ImportError:
        return found
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 4), np.uint8)
    for kind, channels, options in (("PNG", 4, {}), ("JPEG", 3, {}), ("JPEG", 3, {"progressive": True}),
                                    ("WEBP", 4, {}), ("WEBP", 4, {"lossless": True}), ("BMP", 3, {}), ("GIF", 3, {}),
                                    ("TIFF", 4, {}), ("TIFF", 4, {"compression": "tiff_lzw"})):  # fmt: skip
        file = io.BytesIO()
        Image.fromarray(pixels[..., :channels]).save(file, kind, **options)
        found.append(("read_image", file.getvalue()))
    return found


def changed(file: bytes, draw: random.Random) -> bytes:
    """The file with some bytes changed, left out, doubled or put in."""
    raw = bytearray(file)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(len(raw) + 1)
        kind = draw.randrange(6)
        if kind == 0:
            del raw[at:]
        elif kind == 1:
            raw[at : at + draw.randrange(9)] = b""
        elif kind == 2:
            raw[at:at] = raw[at : at + draw.randrange(99)]
        elif kind == 3:
            raw[at : at + 4] = draw.choice((b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", bytes(4), b"\0\0\0\x10"))
        elif kind == 4 and at < len(raw):
            raw[at] ^= 1 << draw.randrange(8)
        elif at < len(raw):
            raw[at] = draw.randrange(256)
    return bytes(raw)


def check_random(folder: Path, each: int) -> None:
    draw = random.Random(0)
    whole = whole_files()
    assert not any(cost.error for cost in measured(folder, [("whole", *entry) for entry in whole]))
    cases: list[Case] = []
    for number, (reader, file) in enumerate(whole):
        cases += [(f"{number}: {reader} {i}", reader, changed(file, draw)) for i in range(each)]
    cases += [(f"noise {i}", reader, draw.randbytes(draw.randrange(500))) for i in range(each) for reader, _ in whole]
    found = measured(folder, cases)
    check_all(cases, found)
    assert sum(not cost.error for cost in found) < len(found)


def test_random_files(tmp_path: Path) -> None:
    check_random(tmp_path, 6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_random_files(tmp_path: Path) -> None:
    check_random(tmp_path, 300)
