"""TensorProto to array: every type and way of storing it, and what a hostile file may say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.devices import dtypes

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402  after importorskip

from minorm.onnx.graph import tensors  # noqa: E402
from minorm.onnx.graph.errors import LoadError  # noqa: E402
from minorm.onnx.graph.model_graph import ELEMENT_TYPES  # noqa: E402
from minorm.onnx.graph.tensors import Budget  # noqa: E402


def read(tensor: Any, folder: Any = None, limit: int = 1 << 20) -> Any:
    return tensors.read(tensor, "t", None if folder is None else str(folder), Budget(limit))


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", sorted(dtypes.ALL, key=str), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0, 3), (2, 1, 3)])
def test_every_type_both_ways(dtype: Any, shape: tuple[int, ...], raw: bool) -> None:
    array = np.asarray(np.random.default_rng(1).normal(1, 2, shape) * (1 if dtypes.is_float(dtype) else 40))
    array = np.abs(array).astype(dtype) if dtype.kind == "u" else array.astype(dtype)
    if raw:
        tensor = numpy_helper.from_array(array)
    else:
        tensor = helper.make_tensor("t", ELEMENT_TYPES[dtype][0], shape, array.ravel().tolist())
    found = read(tensor)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array)
    found[...] = 0  # it is the model's own


def test_raw_bools_other_than_0_and_1_are_true() -> None:
    tensor = TensorProto(data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x00\x01\x7f")
    assert read(tensor).view(np.uint8).tolist() == [0, 1, 1]


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"dims": [2, -1], "raw_data": b""}, r"shape \(2, -1\)"),
    ({"dims": [1] * 33, "raw_data": bytes(4)}, "at most 32 lengths"),
    ({"dims": [3], "raw_data": bytes(8)}, r"shape \(3,\) of float32, which takes 12 bytes; the file holds 8"),
    ({"dims": [3], "raw_data": bytes(16)}, "12 bytes; the file holds 16"),
    ({"dims": [2**62], "raw_data": bytes(8)}, "the file holds 8"),
    ({"dims": [2**62, 2**62, 2**62]}, "the file holds 0"),
    ({"dims": [2], "float_data": [1]}, "which takes 2 elements; the file holds 1"),
    ({"dims": [1], "float_data": [1], "raw_data": bytes(4)}, "twice, in float_data and raw_data"),
    ({"dims": [1], "float_data": [1], "int64_data": [1]}, "twice, in float_data and int64_data"),
    ({"dims": [1], "int64_data": [1]}, "is float32, but stores its elements in int64_data"),
    ({"dims": [1], "string_data": [b"x"]}, "is float32, but stores its elements in string_data"),
    ({"dims": [1], "data_type": 0}, "t is UNDEFINED"),
    ({"dims": [1], "data_type": TensorProto.STRING, "string_data": [b"x"]}, "t is STRING"),
    ({"dims": [3], "data_type": TensorProto.FLOAT8E4M3FN, "raw_data": b"x"}, "which takes 3 bytes; the file holds 1"),
    ({"dims": [3], "data_type": TensorProto.INT4, "raw_data": b"x"}, "which takes 2 bytes; the file holds 1"),
    ({"dims": [2], "data_type": TensorProto.UINT4, "int32_data": [300]}, "stored as numbers outside of 0 to 255"),
    ({"dims": [2**40], "data_type": TensorProto.INT2, "raw_data": b"x"}, "more than max_bytes"),
    ({"dims": [1], "data_type": TensorProto.COMPLEX64, "float_data": [1, 1]}, "t is COMPLEX64"),
    ({"dims": [1], "data_type": 12345}, "element type 12345, which ONNX does not define"),
    ({"dims": [1], "data_type": TensorProto.UINT8, "int32_data": [256]}, "uint8, but stores elements that"),
    ({"dims": [1], "data_type": TensorProto.INT8, "int32_data": [-129]}, "int8, but stores elements that"),
    ({"dims": [1], "data_type": TensorProto.FLOAT16, "int32_data": [-1]}, "float16, but stores elements that"),
    ({"dims": [1], "data_type": TensorProto.UINT32, "uint64_data": [2**32]}, "uint32, but stores elements that"),
    ({"dims": [1 << 20], "raw_data": bytes(4 << 20)}, "more than max_bytes=1048576; pass a larger max_bytes"),
]


@pytest.mark.parametrize(("fields", "message"), HOSTILE)
def test_what_does_not_fit_is_refused_before_it_is_allocated(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(LoadError, match=message):
        read(TensorProto(**{"data_type": TensorProto.FLOAT, **fields}))


def test_segments_are_refused() -> None:
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1], raw_data=bytes(4))
    tensor.segment.begin = 0
    with pytest.raises(LoadError, match="stored in segments"):
        read(tensor)


def test_the_budget_counts_everything() -> None:
    budget = Budget(100)
    budget.take(60, "a")
    with pytest.raises(LoadError, match="b takes 41 bytes, which together with 60 bytes before it is more than"):
        budget.take(41, "b")
    budget.take(40, "c")
    budget.fits((25,), np.float32)
    with pytest.raises(ValueError, match=r"shape \(26,\) would take 104 bytes, more than max_bytes=100"):
        budget.fits((26,), np.float32)
    with pytest.raises(ValueError, match="33 axes; expected at most 32"):
        budget.fits((0,) * 33, np.float32)


# External data


def outside(location: str, dims: Any = (3,), data_type: int = TensorProto.FLOAT, **entries: Any) -> Any:
    tensor = TensorProto(data_type=data_type, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def test_external_data_is_read_from_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    contents = np.arange(5, dtype=np.float32)
    (tmp_path / "sub" / "w.bin").write_bytes(contents.tobytes())
    found = read(outside("sub/w.bin", offset=4, length=12), tmp_path)
    np.testing.assert_array_equal(found, [1, 2, 3])
    found[0] = 9
    np.testing.assert_array_equal(read(outside("sub/w.bin", (5,)), tmp_path), contents)
    assert read(outside("sub/w.bin", (2, 10), TensorProto.BOOL), tmp_path).dtype == np.bool_
    assert read(outside("sub/w.bin", (2, 0)), tmp_path).shape == (2, 0)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": ""}, "expected a file inside the model's folder"),
        ({"location": "../secret"}, "expected a file inside"),
        ({"location": "sub/../../secret"}, "expected a file inside"),
        ({"location": "/etc/passwd"}, "expected a file inside"),
        ({"location": "./w.bin"}, "expected a file inside"),
        ({"location": "sub//w.bin"}, "expected a file inside"),
        ({"location": "C:\\w.bin"}, "expected a file inside"),
        ({"location": "C:w.bin"}, "expected a file inside"),
        ({"location": "..\\w.bin"}, "expected a file inside"),
        ({"location": "w.bin\0x"}, "expected a file inside"),
        ({"location": "absent"}, "lies in another file: there is no file 'absent'"),
        ({"location": "sub"}, "'sub' is a folder; expected a regular file"),
        ({"location": "link"}, "which is a link"),
        ({"location": "linked/w.bin"}, "which is a link"),
        ({"location": "hard"}, "which is a link"),
        ({"location": "pipe"}, "'pipe' is a pipe; expected a regular file"),
        ({"location": "w.bin", "offset": -4}, "offset='-4'; expected a whole number"),
        ({"location": "w.bin", "offset": "1e3"}, "offset='1e3'"),
        ({"location": "w.bin", "offset": "٣"}, "offset='٣'"),
        ({"location": "w.bin", "offset": 12}, "bytes 12 to 24 of 'w.bin', which holds 20"),
        ({"location": "w.bin", "offset": "9" * 19}, "which holds 20"),
        ({"location": "w.bin", "length": 8}, "which takes 12 bytes; the file says 8"),
    ],
)
def test_external_data_stays_inside(entries: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(20))
    (folder / "w.bin").write_bytes(bytes(20))
    (folder / "other").write_bytes(bytes(20))
    (folder / "link").symlink_to(folder / "w.bin")
    (folder / "linked").symlink_to(folder)
    os.link(folder / "other", folder / "hard")
    os.mkfifo(folder / "pipe")
    with pytest.raises(LoadError, match=message):
        read(outside(**entries), folder)


def test_external_data_needs_a_path_and_obeys_the_budget(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="lies in another file, 'w'; expected the path of the model"):
        read(outside("w"))
    (tmp_path / "w").write_bytes(b"")
    with pytest.raises(LoadError, match="more than max_bytes"):
        read(outside("w", (1 << 40,)), tmp_path)


def test_a_model_with_external_weights(tmp_path: Path) -> None:
    import minorm.onnx as mo

    net = mn.nn.Conv2d(2, 3, 1)
    proto = mo.export(net, mn.ones(1, 2, 3, 3))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights", size_threshold=0)
    model = mo.load(path)
    x = mn.randn(2, 2, 3, 3)
    np.testing.assert_array_equal(model(x).array, net(x).array)
    with pytest.raises(LoadError, match="more than max_bytes=30"):
        mo.load(path, max_bytes=30)


def test_an_empty_tensor_of_absurd_lengths_is_refused() -> None:
    tensor = onnx.TensorProto(data_type=1, dims=[0, 2**40, 2**40])
    with pytest.raises(LoadError, match="lengths are too large, although the tensor is empty"):
        tensors.read(tensor, "w", None, Budget())
    tensor = onnx.TensorProto(data_type=1, dims=[0, 2**40])
    assert tensors.read(tensor, "w", None, Budget()).shape == (0, 2**40)


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, np.float16, np.float32, np.uint64], ids=str)
def test_numbers_of_protobuf_come_piece_by_piece(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "CHUNK", 4)
    array = (np.arange(11) % 3).astype(dtype)
    found = read(helper.make_tensor("t", helper.np_dtype_to_tensor_dtype(array.dtype), [11], array.tolist()))
    np.testing.assert_array_equal(found, array)
    tensor = helper.make_tensor("t", TensorProto.INT8, [11], [1] * 11)
    tensor.int32_data[10] = 300
    with pytest.raises(LoadError, match="stores elements that this type cannot hold"):
        read(tensor)


def test_a_long_path_is_not_walked(tmp_path: Path) -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="a/" * 100_000 + "b")
    with pytest.raises(LoadError, match="a path of 200001 characters; expected at most 4096"):
        read(tensor, tmp_path)
