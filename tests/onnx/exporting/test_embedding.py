"""A loaded model inside another module: traced around it, its own nodes as its file has them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking import verification  # noqa: E402

X = mn.randn(2, 3, 8, 8)


def file() -> Any:
    """A PRelu and a Gemm-like pair that a trace would write in other words."""
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "conv.weight"], ["c"], "/conv/Conv", pads=[1, 1, 1, 1]),
            helper.make_node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"], "/bn/BatchNormalization"),
            helper.make_node("PRelu", ["n", "slope"], ["p"], "/act/PRelu"),
            helper.make_node("GlobalAveragePool", ["p"], ["y"], "/pool"),
        ],
        "graph",
        [helper.make_tensor_value_info("x", 1, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", 1, ["n", 4, 1, 1])],
        [
            numpy_helper.from_array(np.random.default_rng(i).random(size, dtype=np.float32) + 0.5, name)
            for i, (name, size) in enumerate(
                [("conv.weight", (4, 3, 3, 3)), ("s", 4), ("b", 4), ("m", 4), ("v", 4), ("slope", (4, 1, 1))]
            )
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Outer(nn.Module):
    def __init__(self, twice: bool = False) -> None:
        super().__init__()
        self.back, self.head, self.twice = mo.load(file()), nn.Linear(4, 5), twice

    def forward(self, x: Any) -> Any:
        y = self.back(x) + self.back(F.relu(x)) if self.twice else self.back(x)
        return self.head(y.flatten(1))


@pytest.mark.parametrize("opset", [9, 16, 17, 22])
@pytest.mark.parametrize("twice", [False, True])
def test_its_nodes_stand_in_the_graph(opset: int, twice: bool) -> None:
    model = Outer(twice)
    proto = mo.export(model, X, opset_version=opset, dynamic_axes={"x": {0: "n", 2: "h", 3: "w"}})
    onnx.checker.check_model(proto, full_check=True)
    inner = [node.op_type for node in proto.graph.node if node.name.startswith("back/")]
    assert inner == ["Conv", "BatchNormalization", "PRelu", "GlobalAveragePool"]
    assert sum(node.op_type == "PRelu" for node in proto.graph.node) == 1 + twice
    names = [tensor.name for tensor in proto.graph.initializer]
    assert len(set(names)) == len(names)
    assert set(model.state_dict()) <= set(names)
    session = verification.start(proto)
    model.eval()
    for size in ((2, 3, 8, 8), (3, 3, 5, 7)):
        x = mn.randn(*size)
        np.testing.assert_allclose(
            verification.run(session, {"x": x.numpy()})[0], model(x).numpy(), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("twice", [False, True])
def test_in_training_it_hands_out_its_statistics(twice: bool) -> None:
    model = Outer(twice).train()
    proto = mo.export(model, X, training=True)
    assert [entry.name for entry in proto.graph.output] == ["output", "back.m.updated", "back.v.updated"]
    again = mo.load(proto)
    model(X), again(X)
    for name in ("back.m", "back.v"):
        np.testing.assert_allclose(again.state_dict()[name].numpy(), model.state_dict()[name].numpy(), rtol=1e-6)


def test_it_goes_on_training_after_a_round_trip() -> None:
    first = Outer().train()
    second = mo.load(mo.export(first, X, training=True))
    for model in (first, second):
        optimizer = mn.optim.SGD(model.parameters(), lr=0.1)
        (model(X) ** 2).mean().backward()
        optimizer.step()
    for name, tensor in first.state_dict().items():
        np.testing.assert_allclose(second.state_dict()[name].numpy(), tensor.numpy(), rtol=1e-6, err_msg=name)


def test_functions_of_two_files_that_are_called_alike() -> None:
    def load(factor: float) -> Any:
        body = [
            helper.make_node("Constant", [], ["k"], value_float=float(factor)),
            helper.make_node("Mul", ["x", "k"], ["y"], "mul"),
        ]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
        function = helper.make_function("mine", "Scale", ["x"], ["y"], body, imports[:1])
        graph = helper.make_graph(
            [helper.make_node("Scale", ["x"], ["y"], "scale", domain="mine")],
            "graph",
            [helper.make_tensor_value_info("x", 1, ["n"])],
            [helper.make_tensor_value_info("y", 1, ["n"])],
        )
        return mo.load(helper.make_model(graph, opset_imports=imports, functions=[function], ir_version=8))

    model = nn.Sequential(load(2), load(3), load(2))
    proto = mo.export(model, mn.ones(4), opset_version=17)
    assert [function.name for function in proto.functions] == ["Scale", "Scale_2"]
    np.testing.assert_array_equal(
        verification.run(verification.start(proto), {"x": np.ones(5, np.float32)})[0], [12] * 5
    )


def test_a_file_that_declares_another_type_of_its_output() -> None:
    proto = file()
    proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    model = nn.Sequential(mo.load(proto), nn.Flatten())
    written = mo.export(model, X, opset_version=17)
    onnx.checker.check_model(written, full_check=True)
    assert written.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT


def test_what_its_file_cannot_say_is_traced() -> None:
    layer = nn.Sequential(nn.InstanceNorm2d(3, affine=True, track_running_stats=True))
    model = nn.Sequential(mo.load(mo.export(layer, X)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        proto = mo.export(model, X, training=True)
    assert len(proto.graph.output) == 3
