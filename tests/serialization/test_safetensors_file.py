"""The safetensors format: read by the library, reads the library's files, and believes no header."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minorm as mn
from minorm.devices import dtypes
from minorm.serialization import safetensors_file
from minorm.serialization.safetensors_file import DTYPES, NAMES, read, write


def some(dtype: np.dtype[Any], shape: tuple[int, ...] = (2, 3)) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 2, shape).astype(dtype)


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def build(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A file's bytes, right or wrong."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


# What is written comes back


@pytest.mark.parametrize("dtype", list(NAMES), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)])
def test_every_dtype_and_shape(tmp_path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    array = some(dtype, shape)
    write({"x": array}, tmp_path / "f")
    back, metadata = read(tmp_path / "f")
    assert same(back["x"], array)
    assert metadata == {}
    assert back["x"].flags.writeable
    assert back["x"].flags.aligned


def test_every_bit_pattern_of_bfloat16(tmp_path: Path) -> None:
    array = np.arange(1 << 16, dtype=np.uint16).view(dtypes.bfloat16)
    write({"x": array}, tmp_path / "f")
    assert same(read(tmp_path / "f")[0]["x"], array)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arrays=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda name: name != "__metadata__"),
        st.sampled_from([d for d in NAMES if d != dtypes.bfloat16]).flatmap(
            lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
        ),
        max_size=6,
    ),
    metadata=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=9), st.text('aü"\\\n€', max_size=9)
    ),
)
def test_anything_comes_back_in_order_and_the_library_reads_it(tmp_path: Path, arrays: Any, metadata: Any) -> None:
    write(arrays, tmp_path / "f", metadata)
    back, texts = read(tmp_path / "f")
    assert list(back) == list(arrays)
    assert all(same(back[name], arrays[name]) for name in arrays)
    assert texts == metadata
    theirs = safetensors.numpy.load_file(tmp_path / "f")
    assert theirs.keys() == arrays.keys()
    assert all(same(theirs[name], arrays[name]) for name in arrays)
    with safetensors.safe_open(tmp_path / "f", "np") as file:
        assert (file.metadata() or {}) == metadata


LAYOUTS = {
    "transposed": lambda a: a.T,
    "fortran": np.asfortranarray,
    "negative steps": lambda a: a[::-1, ::-2],
    "broadcast": lambda a: np.broadcast_to(a[:, :1], (4, 6)),
    "read-only": lambda a: (a.setflags(write=False), a)[1],
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "big-endian, transposed": lambda a: a.astype(a.dtype.newbyteorder(">")).T,
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_layouts_are_copied(tmp_path: Path, layout: str, dtype: str) -> None:
    array = LAYOUTS[layout](np.arange(24).reshape(4, 6).astype(dtype))
    write({"x": array}, tmp_path / "f")
    back = read(tmp_path / "f")[0]["x"]
    assert back.dtype == dtype
    assert np.array_equal(back, array)
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "f")["x"], array)


def test_the_data_is_aligned_in_the_file(tmp_path: Path) -> None:
    arrays = {f"{dtype}": some(dtype, (3,)) for dtype in sorted(NAMES, key=lambda dtype: dtype.itemsize)}
    write(arrays, tmp_path / "f", {"a": "b"})
    content = (tmp_path / "f").read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    assert (8 + length) % 8 == 0
    header = json.loads(content[8 : 8 + length])
    assert all((8 + length + header[name]["data_offsets"][0]) % array.itemsize == 0 for name, array in arrays.items())


def test_the_same_arrays_give_the_same_bytes(tmp_path: Path) -> None:
    for name in "fg":
        write({"x": some(dtypes.float32), "y": some(dtypes.int8)}, tmp_path / name, {"k": "v"})
    assert (tmp_path / "f").read_bytes() == (tmp_path / "g").read_bytes()


# The library and PyTorch


def test_reads_what_the_library_writes(tmp_path: Path) -> None:
    arrays = {str(dtype): some(dtype) for dtype in NAMES if dtype != dtypes.bfloat16} | {
        "scalar": np.array(3.5),
        "none": np.zeros((0, 2)),
    }
    safetensors.numpy.save_file(arrays, tmp_path / "f", {"who": "they"})
    back, metadata = read(tmp_path / "f")
    assert back.keys() == arrays.keys()
    assert all(same(back[name], arrays[name]) for name in arrays)
    assert metadata == {"who": "they"}


def test_pytorch_both_ways(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    theirs = {"b": torch.randn(3, 4).to(torch.bfloat16), "w": torch.randn(2), "n": torch.tensor(7)}
    save_file(theirs, tmp_path / "f")
    back, _ = read(tmp_path / "f")
    assert back["b"].dtype == dtypes.bfloat16
    assert np.array_equal(back["b"].astype(np.float32), theirs["b"].float().numpy())
    write(back, tmp_path / "g")
    again = load_file(tmp_path / "g")
    assert all(torch.equal(again[name], theirs[name]) and again[name].dtype == theirs[name].dtype for name in theirs)


# What cannot be written


@pytest.mark.parametrize(
    ("arrays", "metadata", "message"),
    [
        ({"x": np.zeros(2, complex)}, None, r"entry 'x' has dtype complex128; expected one of float64, "),
        ({"x": np.array(["a"])}, None, r"entry 'x' has dtype <U1"),
        ({"x": np.array([None])}, None, r"entry 'x' has dtype object"),
        ({"__metadata__": np.zeros(2)}, None, r"'__metadata__' cannot name an entry"),
        ({3: np.zeros(2)}, None, r"3 cannot name an entry; expected a str"),
        ({"\ud800": np.zeros(2)}, None, r"not valid Unicode"),
        ({}, {"epoch": 3}, r"metadata\['epoch'\] is 3; the format holds texts only"),
    ],
)
def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path, arrays: Any, metadata: Any, message: str) -> None:
    (tmp_path / "f").write_bytes(b"old")
    with pytest.raises((TypeError, ValueError), match=message):
        write(arrays, tmp_path / "f", metadata)
    assert (tmp_path / "f").read_bytes() == b"old"


# What is not a right file

NAN = json.dumps({"x": entry()}).replace("[2]", "[NaN]").encode()
TWICE = json.dumps({"x": entry(offsets=[0, 8]), "y": entry(offsets=[8, 16])}).replace('"y"', '"x"').encode()
WRONG = {
    "empty": (b"", r"the file has 0 bytes; expected at least 8"),
    "seven bytes": (b"1234567", r"the file has 7 bytes"),
    "a text": (
        b"hello world, I am a text",
        r"but only 16 bytes follow; the file is truncated, or not a",
    ),
    "header longer than the file": (build({}, length=3), r"say that the header has 3 bytes, but only 2 bytes follow"),
    "header of 2^64-1 bytes": (
        build({}, length=(1 << 64) - 1),
        r"header has 18446744073709551615 bytes, but only 2 bytes follow",
    ),
    "no object": (build(b"[]"), r"the header starts with b'\['"),
    "no header": (build(b""), r"the header starts with b''"),
    "not JSON": (build(b"{]"), r"the header is not JSON"),
    "not UTF-8": (build(b'{"\xff": 1}'), r"the header is not JSON"),
    "deep": (build(b'{"a":' + b"[" * 100_000), r"the header is (nested too deeply|not JSON)"),
    "long integer": (build(b'{"a":' + b"1" * 5000 + b"}"), r"the header is not JSON"),
    "NaN": (build(NAN, bytes(8)), r"NaN is not JSON"),
    "name twice": (build(TWICE, bytes(16)), r"the header has the name 'x' twice"),
    "metadata of numbers": (
        build({"__metadata__": {"a": 1}}),
        r"__metadata__ is \{'a': 1\}; expected an object of texts",
    ),
    "metadata as a list": (build({"__metadata__": []}), r"__metadata__ is \[\]"),
    "entry is a number": (build({"x": 3}), r"entry 'x' is 3; expected an object with dtype, shape and data_offsets"),
    "entry lacks a shape": (
        build({"x": {"dtype": "F32", "data_offsets": [0, 8]}}, bytes(8)),
        r"entry 'x' is .*expected an object",
    ),
    "unknown key": (build({"x": entry() | {"more": 1}}, bytes(8)), r"entry 'x' is .*expected an object"),
    "unknown dtype": (build({"x": entry("F33")}, bytes(8)), r"entry 'x' has dtype 'F33'; expected one of F64, F32"),
    "dtype is a list": (build({"x": entry(["F32"])}, bytes(8)), r"entry 'x' has dtype \['F32'\]"),
    "negative shape": (build({"x": entry(shape=[-2])}, bytes(8)), r"entry 'x' has shape \[-2\]; expected a list"),
    "shape of floats": (build({"x": entry(shape=[2.0])}, bytes(8)), r"entry 'x' has shape \[2.0\]"),
    "shape of truths": (build({"x": entry(shape=[True, 2])}, bytes(8)), r"entry 'x' has shape \[True, 2\]"),
    "shape is a number": (build({"x": entry(shape=2)}, bytes(8)), r"entry 'x' has shape 2"),
    "too many axes": (build({"x": entry(shape=[1] * 65 + [2])}, bytes(8)), r"expected a list of at most 64"),
    "shape of 10^30": (build({"x": entry(shape=[10**30])}, bytes(8)), r"entry 'x' has shape \[10+\]"),
    "overflowing shape": (
        build({"x": entry(shape=[1 << 62, 1 << 62, 4, 1])}, bytes(8)),
        r"larger than any array can be",
    ),
    "overflowing empty shape": (
        build({"x": entry(shape=[0, 1 << 62, 1 << 62], offsets=[0, 0])}),
        r"larger than any array",
    ),
    "huge shape": (
        build({"x": entry(shape=[1 << 40])}, bytes(8)),
        r"span 8 bytes; expected 4398046511104 for shape \[1099511627776\] of F32",
    ),
    "huge shape and offsets": (
        build({"x": entry(shape=[1 << 40], offsets=[0, 1 << 42])}, bytes(8)),
        r"take 4398046511104 bytes, but the file has only 8, so it is truncated",
    ),
    "wrong dtype": (build({"x": entry("F64")}, bytes(8)), r"span 8 bytes; expected 16 for shape \[2\] of F64"),
    "three offsets": (
        build({"x": entry(offsets=[0, 8, 9])}, bytes(8)),
        r"data_offsets \[0, 8, 9\]; expected \[start, end\]",
    ),
    "offsets backwards": (build({"x": entry(offsets=[8, 0])}, bytes(8)), r"data_offsets \[8, 0\]; expected"),
    "offsets as texts": (build({"x": entry(offsets=["0", "8"])}, bytes(8)), r"data_offsets \['0', '8'\]"),
    "truncated data": (
        build({"x": entry()}, bytes(7)),
        r"the entries take 8 bytes, but the file has only 7, so it is truncated",
    ),
    "bytes at the end": (build({"x": entry()}, bytes(9)), r"but the file has 9; expected no bytes after"),
    "bytes and no entries": (build({}, bytes(9)), r"the entries take 0 bytes, but the file has 9"),
    "overlap": (
        build({"x": entry(), "y": entry(offsets=[4, 12])}, bytes(12)),
        r"entry 'y' overlaps .* starts at byte 4 of the data; expected byte 8",
    ),
    "same place": (build({"x": entry(), "y": entry()}, bytes(8)), r"entry 'y' overlaps"),
    "hole": (build({"x": entry(), "y": entry(offsets=[9, 17])}, bytes(17)), r"entry 'y' leaves a hole before it"),
    "hole at the start": (build({"x": entry(offsets=[1, 9])}, bytes(9)), r"entry 'x' leaves a hole"),
    "empty array far away": (build({"x": entry(shape=[0], offsets=[5, 5])}), r"entry 'x' leaves a hole"),
    "truth of 2": (
        build({"x": entry("BOOL") | {"shape": [8]}}, b"\0\1\2\0\0\0\0\0"),
        r"entry 'x' is BOOL with bytes other than 0 and 1",
    ),
    "half a letter": (
        build(b'{"\\ud800": ' + json.dumps(entry()).encode() + b"}", bytes(8)),
        r"the name is not valid Unicode",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_an_error_that_says_so(tmp_path: Path, case: str) -> None:
    content, message = WRONG[case]
    (tmp_path / "wrong.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path / "wrong.safetensors")
    assert str(caught.value).startswith(f"load: {tmp_path / 'wrong.safetensors'}: ")
    assert len(str(caught.value)) < 600


def test_folders_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path, "folder"), ("/dev/zero", "device"), (tmp_path / "pipe", "pipe")):
        with pytest.raises(OSError, match=f"load: '{path}' is a {kind}; expected a regular file"):
            read(path)
    with pytest.raises(FileNotFoundError, match=f"^load: there is no file '{tmp_path / 'none'}'$"):
        read(tmp_path / "none")


def test_a_header_cannot_make_us_allocate(tmp_path: Path) -> None:
    for case in ("header of 2^64-1 bytes", "huge shape", "huge shape and offsets", "overflowing shape"):
        (tmp_path / "f").write_bytes(WRONG[case][0])
        tracemalloc.start()
        with pytest.raises(ValueError, match="load: "):
            read(tmp_path / "f")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


def valid() -> bytes:
    text = json.dumps({
        "__metadata__": {"a": "b"},
        "w": entry("F32", [2, 3], [0, 24]), "b": entry("BF16", [2], [24, 28]), "t": entry("BOOL", [2], [28, 30]),
        "e": entry("I8", [0, 7], [30, 30]), "s": entry("U8", [], [30, 31]),
    }).encode()  # fmt: skip
    return build(text + b" " * (-len(text) % 8), np.arange(6, dtype="<f4").tobytes() + b"\1\2\3\4\1\0\5")


def survives(path: Path, content: bytes) -> None:
    """Check that reading raises a ValueError or gives exactly the library's arrays."""
    path.write_bytes(content)
    try:
        arrays, _ = read(path)
    except ValueError:
        return
    theirs = dict(safetensors.deserialize(content))
    assert arrays.keys() == theirs.keys()
    assert sum(array.nbytes for array in arrays.values()) <= len(content)
    for name, array in arrays.items():
        assert list(array.shape) == theirs[name]["shape"]
        assert array.dtype == DTYPES[theirs[name]["dtype"]]
        assert array.tobytes() == bytes(theirs[name]["data"])


def test_the_file_to_break_is_right(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(valid())
    assert [array.tolist() for array in read(tmp_path / "f")[0].values()][2:] == [[True, False], [], 5]
    survives(tmp_path / "f", valid())


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    content = valid()
    for end in range(len(content)):
        (tmp_path / "f").write_bytes(content[:end])
        with pytest.raises(ValueError, match="load: "):
            read(tmp_path / "f")


fuzz = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fuzz
@given(flips=st.lists(st.tuples(st.integers(0, len(valid()) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_flipped_bytes(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    content = bytearray(valid())
    for at, bits in flips:
        content[at] ^= bits
    survives(tmp_path / "f", bytes(content))


@fuzz
@given(
    at=st.integers(0, len(valid()) - 1),
    drop=st.integers(0, 40),
    put=st.binary(max_size=12)
    | st.sampled_from(
        [b"0", b"-", b"e9", b"[", b"]", b"{", b"}", b",", b'"', b'"w":0,', b"1e3", b"99999999999999999999"]
    ),
    fix_length=st.booleans(),
)
def test_cut_and_pasted_bytes(tmp_path: Path, at: int, drop: int, put: bytes, fix_length: bool) -> None:
    content = valid()
    header = content.index(b"}}") + 2
    changed = content[:at] + put + content[at + drop :]
    if fix_length and at >= 8 and at + drop <= header:
        changed = struct.pack("<Q", struct.unpack("<Q", content[:8])[0] + len(put) - drop) + changed[8:]
    survives(tmp_path / "f", changed)


def test_short_cuts_whatever_a_file_says() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    for value in (deep, "x" * 10_000, ["y" * 1000] * 1000, {str(i): i for i in range(1000)}):
        assert len(safetensors_file.short(value)) < 500


def other_formats() -> dict[str, tuple[bytes, str]]:
    """Return files of other formats, each with the words of its error."""

    class Trap:
        """An object whose pickle must not run."""

        def __reduce__(self) -> Any:
            return exec, ("raise SystemExit('a pickle was run')",)

    def archive(**members: bytes) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as written:
            for name, content in members.items():
                written.writestr(name.replace("__", "/"), content)
        return file.getvalue()

    magic = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
    pytorch = archive(**{"model__data.pkl": pickle.dumps(Trap()), "model__data__0": bytes(64), "model__version": b"3"})
    numpy_file = io.BytesIO()
    np.savez(numpy_file, a=np.ones(2))
    never = "minorm reads safetensors files, but no pickles"
    return {
        "PyTorch": (pytorch, f"this is a file of PyTorch (a zip archive with data.pkl in it); {never}"),
        "PyTorch, cut off": (pytorch[:-30], "this is a zip archive; expected a safetensors file"),
        "old PyTorch": (
            magic + pickle.dumps(Trap()),
            f"this is a file of PyTorch, as versions before 1.6 wrote it; {never}",
        ),
        "pickle": (pickle.dumps(Trap()), f"this is a pickle, perhaps of PyTorch; {never}"),
        "old pickle": (pickle.dumps({"a": bytes(99)}, protocol=2), f"this is a pickle, perhaps of PyTorch; {never}"),
        "npz": (
            numpy_file.getvalue(),
            "this is an .npz file of NumPy; expected safetensors; load_state_dict takes what",
        ),
        "zip": (archive(a=b"1"), "this is a zip archive; expected a safetensors file"),
    }


@pytest.mark.parametrize("case", list(other_formats()))
def test_other_formats_are_named_and_never_run(tmp_path: Path, case: str) -> None:
    content, message = other_formats()[case]
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    for reader in (mn.load, read):
        with pytest.raises(ValueError) as caught:
            reader(path)
        said = "the file names " if case == "PyTorch" and reader is mn.load else message  # test_ptfile.py
        assert str(caught.value).startswith(f"load: {path}: {said}")


def test_what_old_pytorch_writes_is_named_and_the_advice_works(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path, theirs, ours = tmp_path / "model.pt", torch.nn.Linear(3, 2), mn.nn.Linear(3, 2)
    torch.save(theirs.state_dict(), path, _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match="this is a file of PyTorch") as caught:
        mn.load(path)
    advice = str(caught.value).partition("pass its arrays to ")[2]
    eval(advice, {"model": ours, "state": torch.load(path)})
    assert np.array_equal(ours.weight.numpy(), theirs.weight.detach().numpy())


def test_a_safetensors_file_may_begin_like_a_pickle(tmp_path: Path) -> None:
    metadata = {"filler": ""}
    while True:  # a header of 0x280 bytes: the file begins with 80 02
        write({"a": np.ones(2, np.float32)}, tmp_path / "f", metadata)
        start = (tmp_path / "f").read_bytes()[:2]
        if start == bytes.fromhex("8002"):
            break
        metadata["filler"] += "x" * 8
        assert len(metadata["filler"]) < 2000
    assert read(tmp_path / "f")[0]["a"].tolist() == [1, 1]
    (tmp_path / "f").write_bytes((tmp_path / "f").read_bytes()[:-1])
    with pytest.raises(ValueError, match="it is truncated"):
        read(tmp_path / "f")
