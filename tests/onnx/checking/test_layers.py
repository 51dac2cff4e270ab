from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking import layers, profiling  # noqa: E402
from minorm.onnx.checking.inspection import inspect  # noqa: E402

FLOAT = np.float32


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return F.relu(x + self.bn(self.conv(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3)
        self.blocks = nn.Sequential(Block(4), Block(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def rows_of(proto: Any, path: Path, *shapes: tuple[int, ...]) -> list[layers.LayerRow]:
    onnx.save(proto, path)
    found = inspect(path)
    if not shapes:
        return found.layers({})
    assert found.module is not None
    with mn.no_grad(), profiling.watched() as seen:
        found.module(*(mn.ones(*shape) for shape in shapes))
    return found.layers(seen)


def test_a_network_layer_by_layer(tmp_path: Path) -> None:
    net = Net().eval()
    net.blocks[1].freeze()
    rows = rows_of(mo.export(net, mn.ones(2, 1, 6, 6)), tmp_path / "m.onnx", (3, 1, 6, 6))
    told = [(r.name, dict(r.operators), r.shape, r.parameters, r.frozen, r.multiplications, r.trains) for r in rows]
    image, many = (3, 4, 4, 4), 3 * 4 * 16 * 36
    assert told[:4] == [
        ("stem", {"Conv": 1}, image, 40, 0, 3 * 4 * 16 * 9, "yes"),
        ("blocks.0.conv", {"Conv": 1}, image, 144, 0, many, "yes"),
        ("blocks.0.bn", {"BatchNormalization": 1}, image, 8, 0, 0, "yes"),
        ("blocks.0", {"Add": 1, "Relu": 1}, image, 0, 0, 0, ""),
    ]
    assert [row[6] for row in told[4:6]] == ["frozen", "frozen"]
    assert told[-1] == ("head", {"Gemm": 1}, (3, 2), 10, 0, 3 * 4 * 2, "yes")
    assert [row.statistics for row in rows[2:3]] == [8]
    assert sum(row.parameters for row in rows) == sum(p.array.size for p in net.parameters())
    assert layers.edges(rows)[:4] == [(0, 1), (0, 3), (1, 2), (2, 3)]


def test_from_afar_neighbours_below_one_module_are_one(tmp_path: Path) -> None:
    rows = rows_of(mo.export(Net().eval(), mn.ones(2, 1, 6, 6)), tmp_path / "m.onnx", (3, 1, 6, 6))
    far = layers.folded(rows, 2)
    assert [row.name for row in far] == ["stem", "blocks.0", "blocks.1", *(r.name for r in rows[7:])]
    block = far[1]
    assert dict(block.operators) == {"Conv": 1, "BatchNormalization": 1, "Add": 1, "Relu": 1}
    assert (block.parameters, block.statistics, block.shape) == (152, 8, (3, 4, 4, 4))
    assert block.multiplications == rows[1].multiplications
    assert layers.edges(far) == [(i, i + 1) for i in range(len(far) - 1)]
    assert layers.overview(rows, 100) == rows
    assert layers.overview(rows, len(far)) == far
    assert [row.name for row in layers.overview(rows, 1)][:2] == ["stem", "blocks"]


def test_weights_count_where_they_are_used_and_shapes_are_left_out(graph_of: Any, tmp_path: Path) -> None:
    nodes = [
        h.make_node("Transpose", ["w"], ["t"]),
        h.make_node("MatMul", ["x", "t"], ["a"], name="/fc/MatMul"),
        h.make_node("Shape", ["a"], ["s"]),
        h.make_node("Reshape", ["a", "s"], ["b"], name="/fc/Reshape"),
        h.make_node("MatMul", ["b", "t"], ["y"], name="/again/MatMul"),
    ]
    proto = graph_of(nodes, {"x": (FLOAT, ["n", 3])}, ["y"], {"w": np.ones((3, 3), FLOAT)})
    rows = rows_of(proto, tmp_path / "m.onnx", (2, 3))
    assert [(row.name, row.parameters, row.multiplications) for row in rows] == [("fc", 9, 18), ("again", 0, 18)]


def test_numbers_that_do_not_train_are_told_apart(graph_of: Any, tmp_path: Path) -> None:
    nodes = [
        h.make_node("Mul", ["x", "/Constant_output_0"], ["a"], name="/scale/Mul"),
        h.make_node("Resize", ["a", "", "scales"], ["b"], name="/up/Resize"),
        h.make_node("Add", ["b", "onnx::Add_3"], ["y"]),
    ]
    held = {"/Constant_output_0": np.ones((4, 4), FLOAT), "scales": np.array([1, 2], FLOAT), "onnx::Add_3": FLOAT(1e-5)}
    proto = graph_of(nodes, {"x": (FLOAT, [4, 4])}, ["y"], held)
    assert [(row.name, row.fixed, row.trains) for row in rows_of(proto, tmp_path / "m.onnx")] == [
        ("scale", 16, "no"),
        ("up", 0, ""),  # a scale is no weight
        ("y", 0, ""),
    ]


def test_a_file_that_does_not_load_is_drawn_too(graph_of: Any, tmp_path: Path) -> None:
    nodes = [h.make_node("Mul", ["x", "w"], ["a"], name="m"), h.make_node("StringNormalizer", ["a"], ["y"], name="d")]
    proto = graph_of(nodes, {"x": (FLOAT, [2, 2])}, ["y"], {"w": np.ones((2, 2), FLOAT)})
    rows = rows_of(proto, tmp_path / "m.onnx")
    assert [(row.name, row.fixed, row.shape, row.multiplications) for row in rows] == [
        ("m", 4, None, None),
        ("d", 0, None, None),
    ]


def test_many_nodes_that_compute_from_constants_take_no_time(graph_of: Any, tmp_path: Path) -> None:
    nodes = [h.make_node("Add", [f"w{i}", f"k{i}"], [f"w{i + 1}"]) for i in range(3000)]
    nodes += [h.make_node("Mul", ["x", f"w{i}"], [f"y{i}"]) for i in range(3000)]
    held = {f"k{i}": np.ones(1, FLOAT) for i in range(3000)} | {"w0": np.ones(2, FLOAT)}
    proto = graph_of(nodes, {"x": (FLOAT, [2])}, ["y2999"], held)
    rows = rows_of(proto, tmp_path / "m.onnx")
    assert len(rows) == 3000
