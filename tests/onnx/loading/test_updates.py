from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip

OPTIONS = [{}, {"momentum": None}, {"unbiased_running_var": True}]


def network(**options: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4, **options),
        nn.ReLU(),
        nn.Conv2d(4, 2, 1),
        nn.BatchNorm2d(2, **options),
        nn.InstanceNorm2d(2, track_running_stats=True),
    )


def value_before(proto: Any, operator: str) -> str:
    node = next(n for n in proto.graph.node if n.op_type == operator)
    return str(node.input[0])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("opset", [9, 20])
def test_a_new_head_on_a_training_graph_keeps_the_statistics_going(options: Any, opset: int) -> None:
    """Where other nodes blend them, they lie beside the way to the cut: without them the last batch alone was kept."""
    net = network(**options).train()
    x = mn.randn(4, 3, 6, 6)
    proto = mo.export(net, x, training=True, opset_version=opset)
    body = mo.load(proto, outputs=[value_before(proto, "Relu")])
    names = {name for name, _ in body.named_buffers()}
    assert {"1.running_mean", "1.running_var"} <= names <= {key for key in net.state_dict() if key.startswith("1.")}
    head = nn.Sequential(body, nn.Flatten(), nn.Linear(4 * 4 * 4, 2))
    for _ in range(3):
        x = mn.randn(4, 3, 6, 6) + 2
        assert head(x).shape == (4, 2)
        net(x)
        for name in names:
            got, want = body.state_dict()[name].array, net.state_dict()[name].array
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)


def test_what_a_training_graph_returns_is_what_the_model_returned() -> None:
    net = network(momentum=None).train()
    x = mn.randn(4, 3, 6, 6)
    proto = mo.export(net, x, training=True)
    model = mo.load(proto)
    assert model.output_names == ["output"]
    np.testing.assert_allclose(model(x).array, net(x).array, rtol=1e-4, atol=1e-5)
    both = mo.load(proto, outputs=["5.running_var.updated", "output"])
    new, y = both(x)
    np.testing.assert_array_equal(new.array, both.state_dict()["5.running_var"].array)
    assert y.shape == (4, 2, 4, 4)
    assert {name for name, _ in both.named_buffers()} == {name for name, _ in model.named_buffers()}


def test_in_files_of_others_such_a_name_is_an_output_like_any(graph_of: Any) -> None:
    node = onnx.helper.make_node("Add", ["x", "w"], ["w.updated"])
    model = mo.load(graph_of([node], {"x": (np.float32, [2])}, ["w.updated"], {"w": np.ones(2, np.float32)}))
    assert model.output_names == ["w.updated"]
    assert [name for name, _ in model.named_parameters()] == ["w"]
