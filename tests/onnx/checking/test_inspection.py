"""`inspect` describes files that load and files that do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.checking.inspection import inspect

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.bn = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * 36, 2)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        x = F.relu(self.bn(self.conv(x)))
        return self.head(x.reshape(x.shape[0], -1))


def test_every_node_with_version_parameters_and_gradient(tmp_path: Path) -> None:
    mo.export(Net(), mn.ones(2, 1, 8, 8), tmp_path / "m.onnx", opset_version=17)
    found = inspect(tmp_path / "m.onnx")
    rows = {row.operator: row for row in found.rows}
    assert [row.operator for row in found.rows] == ["Conv", "BatchNormalization", "Relu", "Reshape", "Gemm"]
    assert [row.since for row in found.rows] == [11, 15, 14, 14, 13]
    assert all(row.runs and row.trains for row in found.rows)
    assert [row.parameters for row in found.rows] == [40, 8, 0, 0, 4 * 36 * 2 + 2]
    assert rows["Conv"].node == "conv/Conv"
    assert found.module is not None
    assert found.facts["parameters"] == sum(p.array.size for p in Net().parameters())
    assert found.facts["inputs"] == ["x: float32 [batch, 1, 8, 8]"]
    assert found.facts["outputs"] == ["output: float32 [batch, 2]"]
    assert found.facts["opset"] == "ai.onnx 17"
    assert found.facts["producer"].startswith("minorm")
    json.dumps(found.facts)


def test_gradient_stops_at_shapes_and_comparisons(tmp_path: Path, graph_of: Any) -> None:
    graph = graph_of(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Cast", ["shape"], ["lengths"], to=1),
            helper.make_node("Mul", ["x", "w"], ["a"]),
            helper.make_node("Greater", ["a", "w"], ["larger"]),
            helper.make_node("Where", ["larger", "a", "w"], ["y"]),
            helper.make_node("Relu", ["lengths"], ["z"]),
        ],
        {"x": (np.float32, [2])},
        ["y", "z"],
        {"w": np.ones(2, np.float32)},
    )
    onnx.save(graph, tmp_path / "m.onnx")
    rows = {row.operator: row for row in inspect(tmp_path / "m.onnx").rows}
    assert {name for name, row in rows.items() if row.trains} == {"Mul", "Where"}
    assert rows["Mul"].parameters == 2
    assert rows["Where"].parameters == 0  # counted once


def test_every_node_that_minorm_lacks_is_listed_with_a_reason(tmp_path: Path, graph_of: Any) -> None:
    graph = graph_of(
        [
            helper.make_node("Relu", ["x"], ["a"]),
            helper.make_node("StringNormalizer", ["a"], ["b"], name="det"),
            helper.make_node("Foo", ["a"], ["c"], name="foo", domain="com.acme"),
            helper.make_node("Add", ["b", "c"], ["y"]),
            helper.make_node("Resize", ["x", "", "", "sizes"], ["z"], mode="cubic", axes=[0]),
        ],
        {"x": (np.float32, [2, 2])},
        ["y", "z"],
        {"w": np.ones((2, 2), np.float32), "sizes": np.array([3])},
        opset=18,
        domains=["com.acme"],
    )
    onnx.save(graph, tmp_path / "m.onnx")
    found = inspect(tmp_path / "m.onnx")
    assert found.module is None
    assert "minorm does not run 2 of 5 nodes" in found.error
    reasons = {row.node: row.why for row in found.unsupported}
    assert reasons["det"] == "minorm does not have the operator StringNormalizer"
    assert reasons["foo"] == "domain 'com.acme' is not ONNX's own, and the file defines no such function"
    assert found.cuts == ("a", "z")
    rows = {row.operator: row for row in found.rows}
    assert rows["StringNormalizer"].since == 10
    assert rows["com.acme.Foo"].since == 0
    assert rows["Relu"].runs


def test_a_node_that_nothing_needs_is_listed_too(tmp_path: Path, graph_of: Any) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("StringNormalizer", ["x"], ["unread"])]
    onnx.save(graph_of(nodes, {"x": (np.float32, [2, 2])}, ["y"]), tmp_path / "m.onnx")
    found = inspect(tmp_path / "m.onnx")
    assert found.module is not None
    assert [row.runs for row in found.rows] == [True, False]


def test_a_damaged_model_is_described_as_far_as_it_goes(tmp_path: Path, graph_of: Any) -> None:
    graph = graph_of([helper.make_node("Relu", ["nowhere"], ["y"])], {"x": (np.float32, [2])}, ["y"])
    onnx.save(graph, tmp_path / "m.onnx")
    found = inspect(tmp_path / "m.onnx")
    assert found.module is None
    assert "reads 'nowhere'" in found.error
    assert found.unsupported == []
    assert [row.operator for row in found.rows] == ["Relu"]


def test_a_loop_is_one_node_behind_those_of_its_body(tmp_path: Path, graph_of: Any) -> None:
    entries = [[helper.make_empty_tensor_value_info(n) for n in names] for names in (["i", "c", "v"], ["c", "v2"])]
    inside = helper.make_graph([helper.make_node("MatMul", ["v", "w"], ["v2"])], "body", *entries)
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=inside, name="loop")
    held = {"n": np.array(2), "w": np.ones((2, 2), np.float32)}
    onnx.save(graph_of([node], {"x": (np.float32, [2, 2])}, ["y"], held), tmp_path / "m.onnx")
    found = inspect(tmp_path / "m.onnx")
    assert [(row.operator, row.node, row.parameters, row.trains) for row in found.rows] == [
        ("MatMul", "loop/body/MatMul_0", 4, True), ("Loop", "loop", 0, True),
    ]  # fmt: skip


@pytest.mark.parametrize("damage", ["attribute", "groups", "name", "type", "opset"])
def test_damaged_nodes_and_types_are_described(damage: str, tmp_path: Path, graph_of: Any) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], to=[1, 1] if damage == "attribute" else 1),
        helper.make_node("GroupNormalization", ["a", "w", "w"], ["y"], num_groups=0 if damage == "groups" else 2),
    ]
    proto = graph_of(nodes, {"x": (np.float32, [1, 4])}, ["y"], {"w": np.ones(4, np.float32)}, opset=21)
    if damage == "type":
        proto.graph.output[0].type.tensor_type.elem_type = 99
    if damage == "opset":
        proto.opset_import[0].version = 2**40
    contents = proto.SerializeToString()
    if damage == "name":
        contents = contents.replace(b"Cast", b"Ca\xffst"[:4])
    (tmp_path / "m.onnx").write_bytes(contents)
    found = inspect(tmp_path / "m.onnx")
    assert found.module is None or damage == "type"
    assert len(found.rows) == 2
    if damage == "type":
        assert found.facts["outputs"] == ["y: element type 99"]


def test_what_is_no_model(tmp_path: Path) -> None:
    for contents in (b"", b"nothing of the kind"):
        (tmp_path / "m.onnx").write_bytes(contents)
        with pytest.raises(mo.LoadError, match="no ONNX model"):
            inspect(tmp_path / "m.onnx")
    mo.export(nn.Linear(100, 100), mn.ones(1, 100), tmp_path / "m.onnx")
    with pytest.raises(mo.LoadError, match=r"takes [0-9]+ bytes, more than max_bytes=1000"):
        inspect(tmp_path / "m.onnx", max_bytes=1000)


def test_weights_outside_and_mixed_modes(tmp_path: Path) -> None:
    net = nn.Sequential(nn.BatchNorm2d(600), nn.BatchNorm2d(600))
    net[0].running_mean.data += 1
    mo.export(net, mn.ones(2, 600, 2, 2), tmp_path / "m.onnx", external_data=True)
    found = inspect(tmp_path / "m.onnx")
    assert found.facts["external"] == ["m.onnx.data"]
    assert [bool(norm.odd) for norm in found.norms] == [False, True]  # the second was never trained
    proto = mo.export(net, mn.ones(2, 600, 2, 2), training=True)
    del proto.metadata_props[:]
    del proto.graph.node[-1].output[1:]
    del proto.graph.node[-1].attribute[:]
    keep = [entry for entry in proto.graph.output if not entry.name.startswith("1.")]
    del proto.graph.output[:]
    proto.graph.output.extend(keep)
    onnx.save(proto, tmp_path / "n.onnx")
    assert any("it trains, while 1 other" in s for s in inspect(tmp_path / "n.onnx").norms[0].odd)


def test_a_damaged_attribute_is_no_crash(tmp_path: Path, graph_of: Any) -> None:
    graph = graph_of([helper.make_node("Cast", ["x"], ["y"], to=[1, 2])], {"x": (np.float32, [2])}, ["y"])
    onnx.save(graph, tmp_path / "m.onnx")
    found = inspect(tmp_path / "m.onnx")
    assert "attribute 'to' is [1, 2]; expected int" in found.error
    assert [row.name for row in found.layers({})] == ["y"]


def test_names_that_are_no_text_are_shown_all_the_same(tmp_path: Path, graph_of: Any) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["mid"]), helper.make_node("Relu", ["mid"], ["y"], name="second")]
    contents = graph_of(nodes, {"x": (np.float32, [2])}, ["y"]).SerializeToString()
    for name in (b"second", b"mid", b"Relu"):
        (tmp_path / "m.onnx").write_bytes(contents.replace(name, name[:-1] + b"\x80"))
        found = inspect(tmp_path / "m.onnx")
        assert found.module is None
        assert "no UTF-8 text" in found.error
        shown = [text for row in found.rows for text in (row.node, row.operator)]
        assert any(name[:-1].decode() + "\\x80" == text for text in shown)
        assert len(found.layers({})) == 2


def test_files_of_weights_whose_names_are_no_text_are_listed(tmp_path: Path) -> None:
    mo.export(nn.Linear(40, 40), mn.ones(2, 40), tmp_path / "m.onnx", external_data=True)
    contents = (tmp_path / "m.onnx").read_bytes()
    first, rest = contents.split(b"m.onnx.data", 1)  # one of two: text and no text are sorted together
    (tmp_path / "m.onnx").write_bytes(first + b"m.onnx.dat\xff" + rest)
    assert "m.onnx.dat\ufffd" in inspect(tmp_path / "m.onnx").facts["external"]
