"""The count of what a file takes as a model, against what protobuf itself finds in the same bytes."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm as mn
from minorm import nn
from minorm.serialization import limits

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.graph import encoding, footprint  # noqa: E402

ALL = 1 << 60
LAYERS = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
SMALL = mo.export(LAYERS, mn.Tensor(np.zeros((2, 4), np.float32))).SerializeToString()


def bare(nodes: int) -> bytes:
    """A model of so many nodes of two bytes."""
    model = onnx.ModelProto()
    model.graph.node.extend([onnx.NodeProto()] * nodes)
    return bytes(model.SerializeToString())


def independent(message: Any) -> int:
    """Count the same over the objects that protobuf has made."""
    parts, total = footprint.PARTS, 0
    for field, value in message.ListFields():
        repeated = hasattr(value, "append") or hasattr(value, "add")
        part = parts.get(f"{message.DESCRIPTOR.name}.{field.name}")
        for item in value if repeated else [value]:
            if field.message_type is not None:
                total += part or parts.get(field.message_type.name, footprint.MESSAGE)
                total += independent(item)
            elif field.type in (field.TYPE_STRING, field.TYPE_BYTES):
                raw = item.encode() if isinstance(item, str) else item
                total += (part or footprint.TEXT) + footprint.LETTER * len(raw)
            elif repeated and not _is_packed(field):
                total += footprint.NUMBER
    return total


def _is_packed(field: Any) -> bool:
    return bool(field.GetOptions().packed)


def models() -> list[Any]:
    x = mn.randn(2, 4, 6, 6)
    cnn = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.GELU(), nn.Flatten())
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "b", [], [])
    given = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    nested = helper.make_model(helper.make_graph([given], "g", [], []))
    return [mo.export(cnn, x), mo.export(cnn, x, training=True), nested]


@pytest.mark.parametrize("place", range(3))
def test_it_counts_what_protobuf_finds(place: int) -> None:
    model = models()[place]
    for tensor in model.graph.initializer:  # numbers that stand as one piece count by their bytes
        tensor.ClearField("raw_data")
    counted = footprint.footprint(model.SerializeToString(), ALL)
    assert counted == independent(model)
    assert counted > 1000 * len(model.graph.node)


def test_many_small_nodes_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = footprint.SPARE // footprint.PARTS["NodeProto"] * 11 // 10
    contents = bare(nodes)
    footprint.messages()  # the table is there
    monkeypatch.setattr(encoding.onnx, "ModelProto", None)
    with pytest.raises(mo.LoadError, match=r"this has [\d,]+ bytes, and its nodes and other parts would take"):
        encoding.parse(contents, "this", limits.ONNX)


def _varint(number: int) -> bytes:
    pieces = []
    while number > 127:
        pieces.append(number & 127 | 128)
        number >>= 7
    return bytes([*pieces, number])


def test_the_error_says_a_limit_that_will_do() -> None:
    contents = bare(60_000)
    with pytest.raises(mo.LoadError, match=r"pass max_bytes=\d+, or --max-bytes \d+ to a command if you trust it") as e:
        encoding.parse(contents, "load: this", limits.ONNX)
    enough = int(str(e.value).split("max_bytes=")[1].split(",")[0])
    assert enough > limits.ONNX
    assert len(encoding.parse(contents, "load: this", enough).graph.node) == 60_000


def test_no_count_where_no_limit_is_given() -> None:
    assert len(encoding.parse(bare(60_000), "ours").graph.node) == 60_000


def test_a_sound_model_of_10_000_nodes_passes() -> None:
    names = ["x", *(f"v{i}" for i in range(9_999)), "y"]
    nodes = [helper.make_node("Relu", [a], [b], f"Relu_{i}") for i, (a, b) in enumerate(pairwise(names))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [2])],
                              [helper.make_empty_tensor_value_info("y")])  # fmt: skip
    contents = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    footprint.check(contents, "load: this")


def test_sound_files_of_the_onnx_package_pass() -> None:
    files = list((Path(onnx.__file__).parent / "backend" / "test" / "data").rglob("model.onnx"))
    for path in files:
        footprint.check(path.read_bytes(), str(path))
    assert len(files) > 100


def test_large_tensors_are_skipped() -> None:
    model = onnx.ModelProto()
    model.graph.initializer.add(name="w", data_type=TensorProto.FLOAT, dims=[1 << 20], raw_data=bytes(1 << 22))
    contents = model.SerializeToString()
    assert footprint.footprint(contents, ALL) < 5 * len(contents)


def test_depth() -> None:
    why = "load: this is no ONNX model, or a damaged one: its messages are nested more than 100 deep"
    with pytest.raises(mo.LoadError, match=why):
        mo.load(_deep())


def _deep() -> bytes:
    """Graphs in attributes of nodes, 60 times."""
    inner = b""
    for _ in range(60):
        for tag in (b"\x32", b"\x2a", b"\x0a"):  # AttributeProto.g, NodeProto.attribute, GraphProto.node
            inner = tag + _varint(len(inner)) + inner
    return b"\x3a" + _varint(len(inner)) + inner


def fields() -> Any:
    """Bytes that look like fields: tags of a model with small numbers, lengths and contents."""
    tags = st.sampled_from(sorted({*footprint.messages(), 0x08, 0x0B, 0x0C, 0x0D, 0x11, 0x2A, 0x32}))
    piece = st.one_of(
        st.binary(max_size=6),
        st.builds(lambda tag, inner: _varint(tag) + _varint(len(inner)) + inner, tags, st.binary(max_size=9)),
    )
    return st.lists(piece, max_size=6).map(b"".join)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.one_of(st.binary(max_size=60), fields()))
def test_what_is_no_message_is_none_for_protobuf_either(contents: bytes) -> None:
    try:
        footprint.check(contents, "this")
    except mo.LoadError:
        if any(byte & 7 in (3, 4) for byte in contents):  # in groups, which ONNX does not have, it is stricter
            return
        with pytest.raises(Exception, match=r"(?i)pars"):
            onnx.ModelProto().ParseFromString(contents)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data())
def test_a_damaged_file_is_a_load_error(data: st.DataObject) -> None:
    contents = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(contents) - 1))
        if data.draw(st.booleans()):
            contents[at] = data.draw(st.integers(0, 255))
        else:
            del contents[at : at + data.draw(st.integers(1, 9))]
    with suppress(ValueError):  # LoadError, and no other
        mo.load(bytes(contents))
