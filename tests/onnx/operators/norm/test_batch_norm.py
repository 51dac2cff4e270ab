from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.checking import verification

onnx = pytest.importorskip("onnx")


def data(*shape: int) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(3).normal(1, 2, shape).astype(np.float32))


LAYERS = [
    (nn.BatchNorm1d(4), (5, 4)),
    (nn.BatchNorm1d(4, eps=1e-3, momentum=0.6), (5, 4, 7)),
    (nn.BatchNorm2d(4), (2, 4, 3, 5)),
    (nn.BatchNorm2d(4, affine=False), (2, 4, 3, 5)),
    (nn.BatchNorm3d(4), (2, 4, 3, 2, 2)),
]


def attributes(node: Any) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda value: str(value) if isinstance(value, tuple) else "")
def test_inference(
    lived_in: Any, proved: Any, operators: Any, layer: nn.Module, shape: tuple[int, ...], opset: int
) -> None:
    proto = proved(lived_in(layer), data(*shape), opset=opset)
    assert operators(proto) == ["BatchNormalization"]
    node = proto.graph.node[-1]
    assert len(node.output) == 1
    said = attributes(node)
    assert said["epsilon"] == np.float32(layer.eps)
    assert said["momentum"] == np.float32(layer.momentum)
    assert said.get("training_mode", 0) == 0
    keys = [key for key in layer.state_dict() if key != "num_batches_tracked"]
    assert [name for name in node.input if name in keys] == keys
    if layer.affine:
        assert list(node.input) == ["x", *keys]


def test_it_stays_itself_after_a_convolution(lived_in: Any, proved: Any, operators: Any, opset: int) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), lived_in(nn.BatchNorm2d(4)), nn.ReLU())
    assert operators(proved(net, data(2, 3, 6, 6), opset=opset)) == ["Conv", "BatchNormalization", "Relu"]


def train_in_onnxruntime(layer: Any, x: mn.Tensor, opset: int, steps: int) -> tuple[Any, dict[str, Any]]:
    """Export the training form and run it `steps` times, feeding the statistics that come out back in."""
    proto = mo.export(layer, x, None, opset_version=opset, training=True)
    onnx.checker.check_model(proto, full_check=True)
    names = [o.name for o in proto.graph.output]
    state = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    y = None
    for _ in range(steps):
        for tensor in proto.graph.initializer:
            tensor.CopyFrom(onnx.numpy_helper.from_array(state[tensor.name], tensor.name))
        session = verification.start(proto)
        assert not isinstance(session, str)
        results = dict(zip(names, session.run(None, {"x": x.array}), strict=True))
        y = results.pop("output")
        for name, array in results.items():
            assert name.endswith(".updated")
            state[name.removesuffix(".updated")] = array
    return y, state


@pytest.mark.parametrize("opset", [7, 9, 13, 14, 15, 26])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.6},
        {"unbiased_running_var": True},
        {"momentum": None},
        {"momentum": None, "unbiased_running_var": True},
        {"affine": False},
    ],
    ids=str,
)
def test_training_reproduces_our_running_statistics_in_onnxruntime(
    lived_in: Any, options: dict[str, Any], opset: int
) -> None:
    pytest.importorskip("onnxruntime")
    x = data(3, 4, 2, 5)
    layer = lived_in(nn.BatchNorm2d(4, **options))
    before = {key: value.array.copy() for key, value in layer.state_dict().items()}
    y, state = train_in_onnxruntime(layer, x, opset, steps=3)
    for key, value in layer.state_dict().items():
        np.testing.assert_array_equal(value.array, before[key])
    for _ in range(3):
        ours = layer.train()(x)
    np.testing.assert_allclose(y, ours.array, rtol=0, atol=1e-5)
    for key in ("running_mean", "running_var") + (("num_batches_tracked",) if layer.momentum is None else ()):
        np.testing.assert_allclose(state[key], layer.state_dict()[key].array, rtol=1e-5)


@pytest.mark.parametrize("opset", range(7, 29))
def test_how_each_version_says_that_it_trains(lived_in: Any, operators: Any, opset: int) -> None:
    layer = lived_in(nn.BatchNorm2d(4, momentum=0.7))
    proto = mo.export(layer, data(3, 4, 2, 5), None, opset_version=opset, training=True)
    onnx.checker.check_model(proto, full_check=True)
    (node,) = proto.graph.node
    assert len(node.output) == (5 if opset < 14 else 3)
    assert list(node.output[1:3]) == ["running_mean.updated", "running_var.updated"]
    assert [o.name for o in proto.graph.output] == ["output", "running_mean.updated", "running_var.updated"]
    assert attributes(node)["momentum"] == np.float32(0.7)
    assert attributes(node).get("training_mode", 0) == (opset >= 14)


def test_a_frozen_layer_is_written_in_its_inference_form() -> None:
    net = nn.Sequential(nn.BatchNorm2d(4).freeze(), nn.BatchNorm2d(4))
    proto = mo.export(net, data(3, 4, 2, 5), None, training=True)
    assert [attributes(node).get("training_mode", 0) for node in proto.graph.node] == [0, 1]
    assert [o.name for o in proto.graph.output] == ["output", "1.running_mean.updated", "1.running_var.updated"]
    assert {p.key: p.value for p in proto.metadata_props} == {"minorm.frozen": '["0"]', "minorm.training": "true"}


def test_a_layer_used_twice_updates_twice(
    lived_in: Any,
) -> None:
    pytest.importorskip("onnxruntime")

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn = lived_in(nn.BatchNorm1d(4))

        def forward(self, x: mn.Tensor) -> mn.Tensor:
            return self.bn(self.bn(x) * 3)

    net, x = Twice(), data(6, 4)
    y, state = train_in_onnxruntime(net, x, 20, 1)
    np.testing.assert_allclose(y, net(x).array, atol=1e-5)
    np.testing.assert_allclose(state["bn.running_var"], net.bn.running_var.array, rtol=1e-5)


@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 2, 5)])
def test_without_running_statistics_the_batchs_are_computed(
    lived_in: Any, proved: Any, operators: Any, shape: tuple[int, ...], opset: int
) -> None:
    layer = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(4, track_running_stats=False)
    proto = proved(lived_in(layer), data(*shape), opset=opset, batches=(2, 7))
    assert "BatchNormalization" not in operators(proto)


def test_statistics_over_the_samples_alone(proved: Any, operators: Any, opset: int) -> None:
    rng = np.random.default_rng(0)
    mean, var, weight, bias = (mn.tensor(rng.uniform(0.5, 1.5, (4, 2, 5)).astype(np.float32)) for _ in range(4))
    proto = proved(lambda x: F.batch_norm(x, mean, var, weight, bias), data(3, 4, 2, 5), opset=opset)
    assert "BatchNormalization" in operators(proto)
    proved(lambda x: F.batch_norm(x, None, None, weight, bias, training=True), data(3, 4, 2, 5), opset=opset)


@pytest.mark.parametrize("opset", [7, 9, 13, 14, 15, 26])
@pytest.mark.parametrize("dtype", [mn.float16, mn.float64])
@pytest.mark.parametrize("mixed", [False, True])
def test_other_float_types(lived_in: Any, proved: Any, dtype: Any, mixed: bool, opset: int) -> None:
    layer = lived_in(nn.BatchNorm2d(4)).to(dtype)
    if mixed:
        layer.running_mean, layer.running_var = layer.running_mean.float(), layer.running_var.float()
    proved(layer, data(2, 4, 3, 5).to(dtype), opset=opset, must_run=False, reference=False)


@pytest.mark.parametrize("opset", [7, 13, 14, 15, 26])
@pytest.mark.parametrize("dtype", [mn.float16, mn.float32])
def test_computed_in_float64(lived_in: Any, proved: Any, operators: Any, dtype: Any, opset: int) -> None:
    x = (data(2, 4, 3, 5) + 100).to(dtype)
    layer = lived_in(nn.BatchNorm2d(4, compute_dtype=mn.float64)).to(dtype)
    assert "BatchNormalization" in operators(
        proved(layer, x, opset=opset, tolerance=0 if dtype == mn.float32 else None)
    )
    proved(lived_in(nn.BatchNorm2d(4, track_running_stats=False, compute_dtype=mn.float64)).to(dtype), x, opset=opset)


@pytest.mark.parametrize("options", [{}, {"momentum": None, "unbiased_running_var": True}], ids=str)
def test_trained_in_float64(lived_in: Any, options: dict[str, Any]) -> None:
    pytest.importorskip("onnxruntime")
    x = data(3, 4, 2, 5) + 1000
    layer = lived_in(nn.BatchNorm2d(4, compute_dtype=mn.float64, **options))
    y, state = train_in_onnxruntime(layer, x, 15, steps=2)
    for _ in range(2):
        ours = layer.train()(x)
    np.testing.assert_array_equal(y, ours.array)
    for key in ("running_mean", "running_var"):
        assert state[key].dtype == np.float32
        np.testing.assert_allclose(state[key], layer.state_dict()[key].array, rtol=1e-6)


def test_bfloat16(lived_in: Any, proved: Any, operators: Any) -> None:
    layer, x = lived_in(nn.BatchNorm2d(4)).to(mn.bfloat16), data(2, 4, 3, 5).to(mn.bfloat16)
    proto = proved(layer, x, opset=13, must_run=False)
    assert operators(proto).count("BatchNormalization") == 1
    assert "Cast" in operators(proto)
    assert operators(proved(layer, x, opset=14, must_run=False)) == ["BatchNormalization"]
    with pytest.raises(mo.ExportError, match="bfloat16 exists in ONNX from opset 13 on"):
        mo.export(layer, x, None, opset_version=12)
