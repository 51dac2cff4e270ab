"""Places of a loaded graph: from names of tensors, of nodes and from metadata; whatever the names are."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import optim

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402

import minorm.onnx as mo  # noqa: E402

FLOAT = np.float32


def ones(*shape: int) -> Any:
    return np.ones(shape, FLOAT)


def conv(path: str, source: str, weight: str) -> Any:
    return h.make_node("Conv", [source, weight], [f"{path}/Conv_output_0"], name=f"{path}/Conv")


def residual(graph_of: Any) -> Any:
    """As PyTorch writes a net whose BatchNorms are folded: two blocks, weights without names."""
    nodes, source = [], "x"
    for number, path in enumerate(
        (
            "/stem",
            "/layer1/layer1.0/conv1",
            "/layer1/layer1.0/conv2",
            "/layer1/layer1.1/conv1",
            "/layer2/layer2.0/conv1",
        )
    ):
        nodes.append(conv(path, source, f"onnx::Conv_{10 + number}"))
        source = nodes[-1].output[0]
    nodes.append(h.make_node("Conv", [source, "head.weight", "head.bias"], ["y"], name="/head/Conv"))
    held = {f"onnx::Conv_{10 + number}": ones(2, 2, 1, 1) for number in range(5)}
    held |= {"head.weight": ones(3, 2, 1, 1), "head.bias": ones(3)}
    return graph_of(nodes, {"x": (FLOAT, ["n", 2, 4, 4])}, ["y"], held)


def names(module: Any) -> list[str]:
    return [name for name, _ in module.named_parameters()]


def test_nodes_tell_the_place_of_weights_without_names(graph_of: Any) -> None:
    model = mo.load(residual(graph_of))
    keys = [*(f"onnx::Conv_{n}" for n in range(10, 15)), "head.weight", "head.bias"]
    assert sorted(model.state_dict()) == sorted(keys)
    assert sorted(names(model)) == sorted(keys)  # at the root each is there once, under its own name
    assert names(model.get_submodule("layer1")) == [
        "0.conv1.onnx::Conv_11",
        "0.conv2.onnx::Conv_12",
        "1.conv1.onnx::Conv_13",
    ]
    assert names(model.get_submodule("layer1.0")) == ["conv1.onnx::Conv_11", "conv2.onnx::Conv_12"]
    assert names(model.get_submodule("head")) == ["weight", "bias"]
    by_name = dict(model.named_parameters())
    assert next(model.get_submodule("layer2.0").parameters()) is by_name["onnx::Conv_14"]
    visited = [p for module in model.modules() for p in module.parameters(recurse=False)]
    assert len(visited) == len({id(p) for p in visited}) == 7


def test_freezing_and_learning_rates_by_layer(graph_of: Any) -> None:
    model = mo.load(residual(graph_of))
    model.get_submodule("layer1.0").requires_grad_(False)
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == ["onnx::Conv_11", "onnx::Conv_12"]
    model.get_submodule("layer1").unfreeze()
    model.get_submodule("layer2").freeze()
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == ["onnx::Conv_14"]
    model.unfreeze()
    before = {n: np.array(p.array) for n, p in model.named_parameters()}
    slow, fast = model.get_submodule("layer1"), model.get_submodule("head")
    groups = [{"params": slow.parameters(), "lr": 0.5}, {"params": fast.parameters(), "lr": 2.0}]
    optimizer = optim.SGD(groups, lr=1.0)
    model(mn.ones(1, 2, 4, 4)).sum().backward()
    optimizer.step()
    by_name = dict(model.named_parameters())
    for name, p in by_name.items():
        rate = 0.5 if name in ("onnx::Conv_11", "onnx::Conv_12", "onnx::Conv_13") else 2.0 * name.startswith("head.")
        np.testing.assert_allclose(p.array, before[name] - rate * p.grad.array)
    fast.zero_grad()
    assert [name for name, p in by_name.items() if p.grad is None] == ["head.weight", "head.bias"]


def test_a_place_that_was_frozen_is_so_after_a_file(graph_of: Any) -> None:
    model = mo.load(residual(graph_of))
    model.get_submodule("layer1").freeze()
    again = mo.load(mo.export(model, None))
    assert [n for n, p in again.named_parameters() if not p.requires_grad] == [f"onnx::Conv_{n}" for n in (11, 12, 13)]
    assert again.get_submodule("layer1.0").frozen
    assert not again.get_submodule("layer2").frozen


def test_a_place_has_a_state_but_no_type_of_its_own(graph_of: Any) -> None:
    model = mo.load(residual(graph_of))
    place = model.get_submodule("layer1.0")
    assert list(place.state_dict()) == names(place)
    place.load_state_dict({"conv1.onnx::Conv_11": np.full((2, 2, 1, 1), 3, FLOAT)}, strict=False)
    assert (model.state_dict()["onnx::Conv_11"].numpy() == 3).all()
    for change in (place.half, place.cpu, lambda: place.to(mn.float64)):
        with pytest.raises(TypeError, match="convert or move the whole graph"):
            change()
    model.double()
    assert {p.dtype for p in place.parameters()} == {mn.float64}
    assert model(mn.ones(1, 2, 4, 4, dtype=mn.float64)).dtype == mn.float64


def test_metadata_of_the_newer_exporter_tells_the_place_too(graph_of: Any) -> None:
    node = h.make_node("MatMul", ["x", "val_3"], ["y"], name="node_MatMul_7")
    entry = node.metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.name_scopes", "['', 'encoder', 'encoder.0', 'encoder.0.fc', 'linear']"
    model = mo.load(graph_of([node], {"x": (FLOAT, [1, 2])}, ["y"], {"val_3": ones(2, 2)}))
    assert names(model.get_submodule("encoder.0")) == ["fc.val_3"]


def test_names_of_tensorflow_tell_the_place(graph_of: Any) -> None:
    weight = "StatefulPartitionedCall/model/conv1/Conv2D/ReadVariableOp:0"
    node = h.make_node("Conv", ["x", weight], ["y"], name="StatefulPartitionedCall/model/conv1/Conv2D")
    model = mo.load(graph_of([node], {"x": (FLOAT, ["n", 2, 4, 4])}, ["y"], {weight: ones(2, 2, 1, 1)}))
    assert names(model.get_submodule("model")) == [f"conv1.{weight}"]


def test_nodes_of_functions_and_branches_are_where_the_call_is(graph_of: Any) -> None:
    body = h.make_graph([h.make_node("Mul", ["x", "w"], ["t"])], "then", [], [h.make_empty_tensor_value_info("t")])
    other = h.make_graph([h.make_node("Identity", ["x"], ["e"])], "else", [], [h.make_empty_tensor_value_info("e")])
    nodes = [
        h.make_node("If", ["c"], ["a"], name="/deep/gate/If", then_branch=body, else_branch=other),
        h.make_node("Scaled", ["a", "v"], ["y"], name="/deep/scale/Scaled", domain="ours"),
    ]
    inputs = {"x": (FLOAT, [2]), "c": (bool, [])}
    proto = graph_of(nodes, inputs, ["y"], {"w": ones(2), "v": ones(2)}, domains=["ours"])
    inner = h.make_node("Mul", ["a", "b"], ["r"], name="inner/Mul")
    proto.functions.append(h.make_function("ours", "Scaled", ["a", "b"], ["r"], [inner], [h.make_opsetid("", 17)]))
    model = mo.load(proto, trainable="*")
    assert names(model.get_submodule("deep")) == ["gate.w", "scale.v"]


def test_a_layer_lies_at_its_module_and_below_one_that_does_more(graph_of: Any) -> None:
    held = {"block.fc.weight": ones(2, 2), **{n: ones(2) for n in ("s", "b", "m", "v")}}
    nodes = [
        h.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"], name="/block/norm/BatchNormalization"),
        h.make_node("MatMul", ["n", "block.fc.weight"], ["f"], name="/block/fc/MatMul"),
        h.make_node("Dropout", ["f"], ["d"], name="/block/Dropout"),
        h.make_node("Dropout", ["d"], ["e"], name="/block/Dropout_1"),
        h.make_node("Dropout", ["e"], ["y"], name="/drop/Dropout"),
    ]
    model = mo.load(graph_of(nodes, {"x": (FLOAT, [3, 2])}, ["y"], held))
    found = {path: type(module).__name__ for path, module in model.named_modules() if path}
    assert found == {
        "block": "Layer", "block.norm": "BatchNormalization", "block.fc": "Layer",
        "block.Dropout": "Dropout", "block.Dropout_1": "Dropout", "drop": "Dropout",
    }  # fmt: skip
    norm = model.get_submodule("block.norm")
    assert (names(norm), [name for name, _ in norm.named_buffers()]) == (["s", "b"], ["m", "v"])
    assert [name for name, _ in model.named_buffers()] == ["m", "v"]


HOSTILE = [
    "/" + "a/" * 60 + "Conv", "/../Conv", "/__class__/Conv", "/forward/Conv", "/training/Conv", "/uses/Conv",
    "/a/forward/b/Conv", "/a.b..c/Conv", "/\u202e/Conv", "/a\x00b/Conv", "/_kinds/_kinds/Conv",
    "/named_parameters/Conv",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_harmless(name: str, graph_of: Any) -> None:
    node = h.make_node("Conv", ["x", "w"], ["y"], name=name)
    model = mo.load(graph_of([node], {"x": (FLOAT, ["n", 2, 4, 4])}, ["y"], {"w": ones(2, 2, 1, 1)}))
    assert (list(model.state_dict()), names(model)) == (["w"], ["w"])
    assert model.train().training
    assert not model.eval().training
    assert model(mn.ones(1, 2, 4, 4)).shape == (1, 2, 4, 4)
    assert all(path.count(".") < 16 for path, _ in model.named_modules())
    reached = [p for child in model.children() for p in child.parameters()]
    assert all(p is next(model.parameters()) for p in reached)


def test_a_path_that_stops_at_a_name_that_cannot_be_ends_there(graph_of: Any) -> None:
    node = h.make_node("Conv", ["x", "w"], ["y"], name="/a/forward/b/Conv")
    model = mo.load(graph_of([node], {"x": (FLOAT, ["n", 2, 4, 4])}, ["y"], {"w": ones(2, 2, 1, 1)}))
    assert names(model.get_submodule("a")) == ["w"]


def test_many_tensors_in_one_place_take_no_time(graph_of: Any) -> None:
    nodes = [h.make_node("Add", [f"v{i}", f"p{i}"], [f"v{i + 1}"], name="/a/forward/Add") for i in range(5000)]
    held = {f"p{i}": ones(1) for i in range(5000)}
    proto = graph_of(nodes, {"v0": (FLOAT, [1])}, ["v5000"], held)
    start = time.process_time()
    model = mo.load(proto, trainable="*")
    assert time.process_time() - start < 10
    assert len(names(model.get_submodule("a"))) == 5000


def test_places_are_in_the_order_of_the_graph_with_shapes(tmp_path: Any) -> None:
    class Net(mn.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = mn.nn.Linear(4, 2)
            self.body = mn.nn.Sequential(mn.nn.Conv2d(3, 4, 3), mn.nn.BatchNorm2d(4), mn.nn.ReLU())
            self.middle = mn.nn.Sequential(mn.nn.Conv2d(4, 4, 1, bias=False))

        def forward(self, x: Any) -> Any:
            return self.last(self.middle(self.body(x)).mean((2, 3)))

    mo.export(Net().eval(), mn.randn(2, 3, 8, 8), tmp_path / "net.onnx", training=None)
    model = mo.load(tmp_path / "net.onnx")
    lines = repr(model).splitlines()
    assert lines[1].startswith("  x float32 (batch, 3, 8, 8) -> ")
    assert [line.split("(")[1].split(")")[0] for line in lines[2:] if line.startswith("  (")] == [
        "body",
        "middle",
        "last",
    ]
    assert [name for name, _ in model.get_submodule("body").named_children()] == ["0", "1"]
    assert "(0): Layer(Conv, weight (4, 3, 3, 3), bias (4,))" in repr(model)
    assert "(1): BatchNormalization(4, eps=1e-05, " in repr(model)
    assert "(last): Layer(Gemm, weight (2, 4), bias (2,))" in repr(model)
