"""load_npz reads every layout and type of images, and explains why it refuses any other file."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.data import load_npz, npy
from minorm.data.npz import read_arrays
from minorm.serialization import limits


def arrays(**changed: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    whole = {
        "x_train": rng.integers(0, 256, (6, 8, 8), np.uint8), "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": rng.integers(0, 256, (2, 8, 8), np.uint8), "y_test": np.array([[2], [0]], np.uint8),
    }  # fmt: skip
    return {**whole, **changed}


def saved(tmp_path: Path, **given: Any) -> str:
    np.savez(tmp_path / "set.npz", **given)
    return str(tmp_path / "set.npz")


def test_bytes_come_out_between_0_and_1(tmp_path: Path) -> None:
    whole = arrays()
    train, test = load_npz(saved(tmp_path, **whole))
    images, labels = train[:]
    assert images.shape == (6, 1, 8, 8)
    assert images.dtype == np.float32
    assert np.array_equal(images[:, 0], whole["x_train"].astype(np.float32) / np.float32(255))
    assert labels.dtype == np.int64
    assert test[:][1].tolist() == [2, 0]


@pytest.mark.parametrize(
    ("shape", "read"),
    [((6, 8, 8), (1, 8, 8)), ((6, 8, 8, 3), (3, 8, 8)), ((6, 3, 8, 8), (3, 8, 8)), ((6, 8, 8, 1), (1, 8, 8)),
     ((6, 1, 8, 8), (1, 8, 8)), ((6, 3, 3, 3), (3, 3, 3))],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float16, np.float32, np.float64])
def test_layouts_and_types(tmp_path: Path, shape: tuple[int, ...], read: tuple[int, ...], dtype: Any) -> None:
    x = (np.arange(np.prod(shape)).reshape(shape) % 200).astype(dtype)
    train, _ = load_npz(saved(tmp_path, **arrays(x_train=x, x_test=x[:2])))
    image = train[3][0]
    assert (image.shape, image.dtype) == (read, np.float32)
    first = x[3] if x.ndim == 3 or shape[1:] == read else np.moveaxis(x[3], -1, 0)
    scale = {np.uint8: 255, np.uint16: 65535}.get(dtype, 1)
    assert np.allclose(image, first.reshape(read) / scale, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x_train": np.zeros((6, 8, 9), np.uint8)}, "x_train are 8 x 9; expected squares"),
        ({"x_train": np.zeros((6, 5, 8, 8), np.uint8)}, r"x_train has shape \(6, 5, 8, 8\)"),
        ({"x_train": np.zeros((6, 8), np.uint8)}, r"x_train has shape \(6, 8\)"),
        ({"x_train": np.zeros((0, 8, 8), np.uint8), "y_train": np.zeros(0, int)}, "at least one image"),
        ({"x_train": np.zeros((6, 8, 8), np.int64)}, "x_train is int64"),
        ({"x_train": np.full((6, 8, 8), np.nan)}, "x_train holds NaN"),
        ({"x_test": np.zeros((2, 9, 9), np.uint8)}, "1 x 8 x 8 and those of x_test 1 x 9 x 9"),
        ({"y_train": np.zeros(5, int)}, r"y_train is int64 of shape \(5,\); expected 6 integers"),
        ({"y_train": np.zeros(6)}, "y_train is float64"),
        ({"y_train": np.array([0, 1, -1, 0, 0, 0])}, "with -1 in it"),
        ({"y_train": np.zeros(6, int), "y_test": np.zeros(2, int)}, "only the label 0"),
        ({"y_test": np.array([0, 3])}, "y_test has the label 3; expected at most 2"),
        ({"x_test": np.array([{}, {}], object)}, "x_test cannot be read"),
    ],
)
def test_what_is_wrong_with_an_array_is_said(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    path = saved(tmp_path, **arrays(**changed))
    with pytest.raises(ValueError, match=said) as raised:
        load_npz(path)
    assert path in str(raised.value)


def test_what_is_no_such_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.npz"):
        load_npz(tmp_path / "no.npz")
    with pytest.raises(ValueError, match="no y_train, x_test, y_test; the file has x_train"):
        load_npz(saved(tmp_path, x_train=np.zeros(3)))
    for name, contents in (("empty", b""), ("text", b"words"), ("pickle", pickle.dumps([1])), ("zip", b"PK\3\4cut")):
        (tmp_path / name).write_bytes(contents)
        with pytest.raises(ValueError, match=name):
            load_npz(tmp_path / name)
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ValueError, match="one array"):
        load_npz(tmp_path / "one.npy")
    path = saved(tmp_path, **arrays())
    whole = Path(path).read_bytes()
    for end in range(0, len(whole), 97):
        Path(path).write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"set\.npz"):
            load_npz(path)


def test_a_limit_counts_what_the_arrays_become(tmp_path: Path) -> None:
    whole = arrays()
    path = saved(tmp_path, **whole)
    count = whole["x_train"].nbytes + whole["x_test"].nbytes + 8 * 8  # a label is an int64
    assert len(load_npz(path, max_bytes=count)[0]) == 6
    with pytest.raises(ValueError, match=rf"together take {count} bytes, more than max_bytes={count - 1}; pass max_"):
        load_npz(path, max_bytes=count - 1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"y_train": np.array([0, 1, 2, 0, 1, 10**6])}, "y_train has the label 1000000; expected less than 100000"),
        (
            {"x_train": np.full((6, 8, 8), 1e300)},
            "x_train holds numbers from 1e.300 to 1e.300; expected numbers that float32",
        ),
        ({"x_train": np.zeros((6, 8, 8), np.complex64)}, "x_train cannot be read: it holds complex64"),
    ],
)
def test_numbers_that_no_data_set_has(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_npz(saved(tmp_path, **arrays(**changed)))


def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, Any]) -> list[str]:
    """The entries that loading unpacks from start to end, in their order."""
    path, found = tmp_path / "set.npz", []
    np.savez_compressed(path, **whole)
    pieces = npy._pieces
    monkeypatch.setattr(npy, "_pieces", lambda held, stored: found.append(stored.entry) or pieces(held, stored))
    load_npz(path)
    return found


def test_an_honest_file_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{name}.npy" for name in arrays()]
    assert unpacked(tmp_path, monkeypatch, arrays()) == names


def test_a_file_that_unpacks_to_far_more_is_checked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{name}.npy" for name in arrays()]
    monkeypatch.setattr(limits, "spare", lambda length: 100)
    assert unpacked(tmp_path, monkeypatch, arrays()) == 2 * names


@pytest.mark.parametrize("spare", [0, 1 << 30])
@pytest.mark.parametrize("place", [0, -1])
def test_numbers_are_checked_in_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spare: int, place: int
) -> None:
    monkeypatch.setattr(limits, "spare", lambda length: spare)
    x = np.zeros((6, 8, 8), np.float16)
    x.reshape(-1)[place] = np.nan
    with pytest.raises(ValueError, match="x_train holds NaN"):
        load_npz(saved(tmp_path, **arrays(x_train=x)))
    y = np.array([0, 1, 2, 0, 1, 2])
    y[place] = -3
    with pytest.raises(ValueError, match="with -3 in it"):
        load_npz(saved(tmp_path, **arrays(y_train=y)))


def test_every_order_of_bytes_and_axes(tmp_path: Path) -> None:
    whole = arrays()
    turned = {"x_train": np.asfortranarray(whole["x_train"]).astype(">u2"), "x_test": whole["x_test"].astype(">u2")}
    images, _ = load_npz(saved(tmp_path, **{**whole, **turned}))[0][:]
    assert np.allclose(images[:, 0], whole["x_train"] / 65535, atol=1e-7)


def test_all_arrays_by_name_as_they_are(tmp_path: Path) -> None:
    given = {"0.weight": np.ones((2, 3)), "count": np.array(7), "wide": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    path = saved(tmp_path, **given)
    found = read_arrays(path)
    assert found.keys() == given.keys()
    for name, array in given.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    with pytest.raises(
        ValueError, match=r"load: .*set\.npz: the arrays together take 104 bytes, more than max_bytes=10"
    ):
        read_arrays(path, max_bytes=10)
    Path(path).write_bytes(Path(path).read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"load: .*set\.npz: .*expected an \.npz file of arrays"):
        read_arrays(path)
    np.savez_compressed(path, zeros=np.zeros(5 << 20))  # of which a first pass is made
    assert read_arrays(path)["zeros"].shape == (5 << 20,)
