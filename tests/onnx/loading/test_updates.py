from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

onnx = pytest.importorskip("onnx")

pytest.importorskip("onnxruntime")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.checking import verification  # noqa: E402

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


class Again(nn.Module):
    """A BatchNorm that is called several times."""

    def __init__(self, calls: int, **options: Any) -> None:
        super().__init__()
        self.bn, self.calls = nn.BatchNorm1d(2, **options), calls

    def forward(self, x: Any) -> Any:
        for _ in range(self.calls):
            x = self.bn(x) * 2 + 1
        return x


def calls_by_formula(x: Any, calls: int, mean: Any, var: Any, train: bool, unbiased: bool) -> tuple[Any, Any, Any]:
    """Computes the result of a BatchNorm without scale and bias, and its running statistics afterwards, in float64."""
    for _ in range(calls):
        used = mean, var
        if train:
            used, n = (x.mean(0), x.var(0)), len(x)
            mean = 0.9 * mean + 0.1 * used[0]
            var = 0.9 * var + 0.1 * used[1] * (n / (n - 1) if unbiased else 1)
        x = (x - used[0]) / np.sqrt(used[1] + 1e-5) * 2 + 1
    return x, mean, var


@pytest.mark.parametrize("calls", [2, 3])
@pytest.mark.parametrize("options", [{"affine": False}, {}, {"unbiased_running_var": True}])
def test_every_call_of_a_layer_follows_its_mode(calls: int, options: dict[str, Any]) -> None:
    x = np.random.default_rng(0).normal(5, 3, (8, 2)).astype(np.float32)
    proto = mo.export(Again(calls, **options), mn.tensor(x), training=True, opset_version=17)
    loaded, mean, var = mo.load(proto), np.zeros(2), np.ones(2)
    assert [name for name, _ in loaded.named_buffers()] == ["bn.running_mean", "bn.running_var"]
    unbiased = "unbiased_running_var" in options
    for train in (True, True, False, True, False):
        want, mean, var = calls_by_formula(x.astype(np.float64), calls, mean, var, train, unbiased)
        np.testing.assert_allclose(loaded.train(train)(mn.tensor(x)).array, want, rtol=1e-4, atol=1e-4)
        state = loaded.state_dict()
        np.testing.assert_allclose(state["bn.running_mean"].array, mean, rtol=1e-5)
        np.testing.assert_allclose(state["bn.running_var"].array, var, rtol=1e-5)
    np.testing.assert_array_equal(loaded(mn.tensor(x[:1])).array[0], loaded(mn.tensor(x)).array[0])
    frozen = mo.export(loaded, None, training=False)
    nodes = [node for node in frozen.graph.node if node.op_type == "BatchNormalization"]
    assert [node.input[3:5] for node in nodes] == [["bn.running_mean", "bn.running_var"]] * calls
    for proto in (frozen, mo.export(loaded, mn.tensor(x), training=False)):
        session = verification.start(proto)
        got = verification.run(session, {proto.graph.input[0].name: x})[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_the_training_form_that_is_written_back_chains_the_calls() -> None:
    x = np.random.default_rng(1).normal(5, 3, (8, 2)).astype(np.float32)
    loaded = mo.load(mo.export(Again(2), mn.tensor(x), training=True, opset_version=17))
    loaded(mn.tensor(x))
    state = {name: tensor.array.astype(np.float64) for name, tensor in loaded.named_buffers()}
    proto = mo.export(loaded, None, training=True)
    want = calls_by_formula(x.astype(np.float64), 2, *state.values(), True, False)
    outputs = [entry.name for entry in proto.graph.output]
    assert outputs[1:] == ["bn.running_mean.updated", "bn.running_var.updated"]
    results = verification.run(verification.start(proto), {proto.graph.input[0].name: x})
    for got, expected in zip(results, want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
