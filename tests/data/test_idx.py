"""IDX files: right ones, gzipped ones, and headers that lie about what follows."""

from __future__ import annotations

import errno
import gzip
import io
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minorm.data import load_fashion_mnist, load_mnist, read_idx

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array: np.ndarray[Any, Any], code: int | None = None, shape: tuple[int, ...] | None = None) -> bytes:
    """An IDX file's bytes; with `shape`, a header that says something else than what follows."""
    shape = array.shape if shape is None else shape
    code = CODES[array.dtype.str[1:]] if code is None else code
    header = bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


def images(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def labels(count: int) -> np.ndarray[Any, Any]:
    return (np.arange(count) % 10).astype(np.uint8)


def put(folder: Path, name: str, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def mnist_folder(folder: Path, pattern: str = "{part}-{kind}-{ending}") -> None:
    for part, count in (("train", 12), ("t10k", 5)):
        for kind, ending, array in (("images", "idx3-ubyte", images(count)), ("labels", "idx1-ubyte", labels(count))):
            put(folder, pattern.format(part=part, kind=kind, ending=ending), idx(array))


# read_idx


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4), (0, 3)])
def test_types_and_shapes(tmp_path: Path, zipped: bool, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    put(tmp_path, "a.gz" if zipped else "a", idx(array))
    found = read_idx(tmp_path / ("a.gz" if zipped else "a"))
    assert found.dtype == np.dtype(dtype)
    assert found.dtype.isnative
    assert np.array_equal(found, array)


def test_the_content_says_whether_it_is_gzipped_not_the_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(idx(labels(3))))
    (tmp_path / "b.gz").write_bytes(idx(labels(3)))
    assert np.array_equal(read_idx(tmp_path / "a"), read_idx(tmp_path / "b.gz"))


HUGE = (60000, 60000, 3)
LIES = {
    "empty": (b"", r"not an IDX file: it starts with b''"),
    "a text": (b"hello world", r"not an IDX file: it starts with b'hell'"),
    "no such type": (idx(labels(3), code=7), r"not an IDX file"),
    "no axes": (bytes([0, 0, 8, 0, 5]), r"not an IDX file"),
    "255 axes": (bytes([0, 0, 8, 255]) + bytes(2000), r"not an IDX file"),
    "header breaks off": (
        bytes([0, 0, 8, 3, 0, 0, 0]),
        r"the header breaks off: 3 axes take 12 bytes, but the file has only 3",
    ),
    "too few": (idx(labels(3), shape=(4,)), r"the header says shape \(4,\) of uint8, "),
    "too many": (idx(labels(3), shape=(2,)), r"the header says shape \(2,\) of uint8, "),
    "10 GB": (idx(labels(3), shape=HUGE), r"shape \(60000, 60000, 3\) of uint8, more than max_bytes=1073741824"),
    "1 GB": (idx(labels(3), shape=(1 << 30,)), r"the header says shape \(1073741824,\) of uint8, "),
    "another type": (idx(labels(3), code=14), r"the header says shape \(3,\) of float64, "),
    "empty and endless": (idx(labels(0), shape=(0,) + (2**32 - 1,) * 3), r"more than max_bytes"),
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies(tmp_path: Path, lie: str, zipped: bool) -> None:
    content, message = LIES[lie]
    path = tmp_path / ("a.gz" if zipped else "a")
    put(tmp_path, path.name, content)
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as caught:
        read_idx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(caught.value).startswith(f"read_idx: {path}: ")
    assert peak < 4 << 20


def test_the_limit_can_be_chosen(tmp_path: Path) -> None:
    put(tmp_path, "a", idx(labels(100)))
    assert len(read_idx(tmp_path / "a", max_bytes=100)) == 100
    with pytest.raises(ValueError, match="more than max_bytes=99"):
        read_idx(tmp_path / "a", max_bytes=99)


def test_a_compressed_file_that_lies_costs_no_more_than_its_content(tmp_path: Path) -> None:
    """200 MB claimed, which 400 KB of gzip might hold, and 400 KB there."""
    noise = np.random.default_rng(0).integers(0, 256, 400_000, dtype=np.uint8)
    put(tmp_path, "a.gz", idx(noise, shape=(200_000_000,)))
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"200000000 bytes; the file has only 400000 bytes"):
        read_idx(tmp_path / "a.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_decompression_bomb_is_read_no_further_than_its_header(tmp_path: Path) -> None:
    """100 MB of zeros behind a header that says 10 bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as file:
        file.write(idx(np.zeros(10, np.uint8)))
        for _ in range(100):
            file.write(bytes(1 << 20))
    (tmp_path / "a.gz").write_bytes(buffer.getvalue())
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"shape \(10,\) of uint8, 10 bytes; the file has more"):
        read_idx(tmp_path / "a.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    plain = idx(np.arange(40, dtype=np.uint8).reshape(2, 20))
    for content in (plain, gzip.compress(plain)):
        for end in range(len(content)):
            (tmp_path / "a").write_bytes(content[:end])
            with pytest.raises(ValueError, match="read_idx: "):
                read_idx(tmp_path / "a")


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), zipped=st.booleans())
def test_broken_bytes(tmp_path: Path, data: st.DataObject, zipped: bool) -> None:
    """ValueError or an array, never more memory than there is content; gzip's checksum finds what changed the data."""
    array = np.arange(60, dtype=np.int16).reshape(5, 12)
    content = bytearray(gzip.compress(idx(array)) if zipped else idx(array))
    for at in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[at] ^= data.draw(st.integers(1, 255))
    (tmp_path / "a").write_bytes(content)
    try:
        found = read_idx(tmp_path / "a")
    except ValueError:
        return
    assert np.array_equal(found, array) if zipped else found.nbytes < len(content)


# MNIST


@pytest.mark.parametrize("pattern", ["{part}-{kind}-{ending}", "{part}-{kind}.{ending}", "{part}-{kind}-{ending}.gz"])
@pytest.mark.parametrize("place", ["", "raw", "MNIST/raw"])
def test_mnist_by_its_usual_names(tmp_path: Path, pattern: str, place: str) -> None:
    mnist_folder(tmp_path / place, pattern)
    train, test = load_mnist(tmp_path)
    assert (len(train), len(test)) == (12, 5)
    pixels, classes = train[:]
    assert pixels.shape == (12, 1, 28, 28)
    assert pixels.dtype == np.float32
    assert np.array_equal(pixels[:, 0], images(12).astype(np.float32) / np.float32(255))
    assert classes.dtype == np.int64
    assert classes.tolist() == labels(12).tolist()


def test_fashion_mnist(tmp_path: Path) -> None:
    mnist_folder(tmp_path / "FashionMNIST" / "raw", "{part}-{kind}-{ending}.gz")
    train, test = load_fashion_mnist(str(tmp_path))
    assert (len(train), len(test)) == (12, 5)


@pytest.mark.timeout(10)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "pipe"), (tmp_path, "folder"), ("/dev/zero", "device")):
        with pytest.raises(OSError, match=f"^read_idx: '{path}' is a {kind}; expected a regular file$"):
            read_idx(path)
    with pytest.raises(FileNotFoundError, match=r"^read_idx: there is no file '.*absent'$"):
        read_idx(tmp_path / "absent")
    mnist_folder(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    os.mkfifo(tmp_path / "train-labels-idx1-ubyte")
    with pytest.raises(OSError, match=r"train-labels-idx1-ubyte' is a pipe; expected a regular file$"):
        load_mnist(tmp_path)


@pytest.mark.parametrize("load", [load_mnist, load_fashion_mnist])
def test_a_limit_holds_for_each_file(load: Any, tmp_path: Path) -> None:
    mnist_folder(tmp_path)
    most = 12 * 28 * 28
    assert len(load(tmp_path, max_bytes=most)[0]) == len(load(tmp_path, max_bytes=None)[0]) == 12
    with pytest.raises(ValueError, match=rf"train-images.*\(12, 28, 28\) of uint8, more than max_bytes={most - 1}"):
        load(tmp_path, max_bytes=most - 1)
    put(tmp_path, "t10k-labels-idx1-ubyte", idx(labels(5), shape=(most + 1,)))
    with pytest.raises(ValueError, match=rf"t10k-labels.* more than max_bytes={most}"):
        load(tmp_path, most)


def test_a_folder_of_the_files_name_does_not_hide_it(tmp_path: Path) -> None:
    mnist_folder(tmp_path / "raw")
    (tmp_path / "train-images-idx3-ubyte").mkdir()
    assert len(load_mnist(tmp_path)[0]) == 12


def test_a_folder_that_nobody_may_look_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Any, **_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "stat", deny)
    with pytest.raises(PermissionError, match=r"^load_mnist: cannot read '.*train-images.*': Permission denied$"):
        load_mnist(tmp_path)


def test_a_folder_without_the_files(tmp_path: Path) -> None:
    message = r"load_mnist: found no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in .*nothing is downloaded"
    with pytest.raises(FileNotFoundError, match=message):
        load_mnist(tmp_path)
    mnist_folder(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"load_mnist: found no t10k-labels-idx1-ubyte or"):
        load_mnist(tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train-images-idx3-ubyte", np.zeros((12, 9, 9), np.uint8), r"\(12, 9, 9\); expected uint8, \(N, 28, 28\)"),
        ("train-images-idx3-ubyte", np.zeros((12, 28, 28), np.float32), "float32 of shape"),
        ("train-labels-idx1-ubyte", np.zeros(11, np.uint8), r"\(11,\); expected uint8, \(12,\), a label"),
        ("t10k-labels-idx1-ubyte", np.full(5, 10, np.uint8), "the label 10; expected 0 to 9"),
    ],
)  # fmt: skip
def test_files_that_are_not_mnist(tmp_path: Path, name: str, array: np.ndarray[Any, Any], message: str) -> None:
    mnist_folder(tmp_path)
    put(tmp_path, name, idx(array))
    with pytest.raises(ValueError, match=rf"load_mnist: .*{name} has .*{message}"):
        load_mnist(tmp_path)
