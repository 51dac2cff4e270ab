"""An int8 model of ours, loaded: its weights train, rounded by the file's scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import models, nn
from minorm import quantization as Q
from tests.onnx.runtime import expected
from tests.quantized_models import images, mobilenet, trained

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402


@pytest.fixture(scope="module")
def proto() -> Any:
    mn.manual_seed(0)
    x = images(6, 1, 8, 8)
    return mo.export(Q.convert(trained(models.digits_cnn(), x)), x)


def test_weights_and_biases_are_parameters_on_the_files_grid(proto: Any) -> None:
    model = mo.load(proto)
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    parameters = dict(model.named_parameters())
    assert set(parameters) == {f"{i}_{kind}" for i in (0, 3, 7, 12) for kind in ("weight", "bias")}
    for name, parameter in parameters.items():
        scale = held[f"{name}_scale"].reshape(-1, *(1,) * (held[name].ndim - 1))
        np.testing.assert_allclose(parameter.array, held[name].astype(np.float64) * scale, rtol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_it_computes_what_the_integers_do(proto: Any, training: bool) -> None:
    mn.manual_seed(0)
    x = images(6, 1, 8, 8)
    int8 = Q.convert(trained(models.digits_cnn(), x))
    new = images(5, 1, 8, 8, seed=3)
    y, want = mo.load(proto).train(training)(new).array, int8(new).array
    assert (y != want).mean() <= 1e-3


class Residual(nn.Module):
    """A pooling whose result two nodes read."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.fc, self.c, self.d = nn.Linear(8 * 16, 5), nn.ReLU(), nn.ReLU()

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        x = F.max_pool2d(self.c(self.a(x)), 2)
        return self.fc(self.d(self.b(x) + x).flatten(1))


NETWORKS = {
    "digits": (models.digits_cnn, (6, 1, 8, 8)),
    "depthwise": (lambda: mobilenet(nn.ReLU), (6, 3, 8, 8)),
    "relu6": (lambda: mobilenet(nn.ReLU6), (6, 3, 8, 8)),
    "residual": (Residual, (6, 3, 8, 8)),
    "linear": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 9), nn.ReLU(), nn.Linear(9, 4)), (6, 3, 4, 4)),
}
FLOATS = {"Conv", "Gemm", "MatMul", "Add", "MaxPool", "Relu", "Clip"}


def int8_file(name: str) -> tuple[Any, mn.Tensor]:
    """A network's file, and images."""
    mn.manual_seed(0)
    make, shape = NETWORKS[name]
    x = images(*shape)
    return mo.export(Q.convert(trained(make(), x)), x), images(*shape, seed=3)


@pytest.mark.parametrize("name", NETWORKS)
def test_inference_is_on_bytes_with_onnxruntimes_integers(name: str) -> None:
    proto, x = int8_file(name)
    [want] = expected(proto, x.array, exact=True)
    model = mo.load(proto).eval()
    with mn.no_grad():
        for _ in range(4):  # the last ones by plan
            np.testing.assert_array_equal(model(x).array, want)
        assert "passes" in repr(model)
    assert model._fused_steps is not None
    floats = {name for step in model._steps for name in step.names if step.operator in FLOATS}
    assert floats
    assert not floats & {name for step in model._fused_steps for name in step.names}


@pytest.mark.parametrize("name", NETWORKS)
def test_weights_that_change_are_rounded_again(name: str) -> None:
    proto, x = int8_file(name)
    model = mo.load(proto).eval()
    with mn.no_grad():
        before = [model(x).array for _ in range(3)][-1]
        for parameter in model.parameters():
            parameter.array[:1] *= -1  # past the counter of changes
        after = model(x).array
    assert (after != before).any()
    np.testing.assert_array_equal(after, expected(mo.export(model, x), x.array, exact=True)[0])


def test_a_file_of_ours_in_another_type_and_back() -> None:
    proto, x = int8_file("digits")
    model = mo.load(proto).eval()
    with mn.no_grad():
        want = [model(x).array for _ in range(3)][-1]
        model.to(mn.float64)
        wide = [model(x.to(mn.float64)) for _ in range(3)]
        assert wide[0].dtype == mn.float64
        np.testing.assert_array_equal(wide[0].array, wide[2].array)
        assert (wide[0].array.astype(np.float32) != want).mean() < 1e-3
        model.to(mn.float32)
        np.testing.assert_array_equal(model(x).array, want)


def of_ours(w: Any, scale: Any, *zero: Any) -> Any:
    """A file of minorm: x times W, which is stored as integers."""
    arrays = dict(zip(("w", "scale", "zero"), (w, scale, *zero), strict=False))
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    nodes = [
        helper.make_node("DequantizeLinear", list(arrays), ["floats"]),
        helper.make_node("MatMul", ["x", "floats"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 2]) for n in ("x", "y"))
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, producer_name="minorm", opset_imports=opsets, ir_version=8)


def _short(proto: Any) -> None:
    proto.graph.initializer[0].raw_data = b"1"


def _huge(proto: Any) -> None:
    proto.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]


def _negative(proto: Any) -> None:
    proto.graph.initializer[0].dims[0] = -2


def _without_a_scale(proto: Any) -> None:
    del proto.graph.node[0].input[1:]


def _without_a_result(proto: Any) -> None:
    del proto.graph.node[0].output[:]


def _unknown_type(proto: Any) -> None:
    proto.graph.initializer[1].data_type = 99


def _elsewhere(proto: Any) -> None:
    scale = proto.graph.initializer[1]
    scale.ClearField("raw_data")
    scale.data_location = onnx.TensorProto.EXTERNAL
    scale.external_data.add(key="location", value="elsewhere.bin")


W = np.ones((2, 2), np.int8)
CHANGES = (_short, _huge, _negative, _without_a_scale, _without_a_result, _unknown_type, _elsewhere)


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_file_is_refused_as_any_other(change: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """load raises its usual error, and reads no file of the working directory."""
    (tmp_path / "elsewhere.bin").write_bytes(np.float32(0.5).tobytes())
    monkeypatch.chdir(tmp_path)
    proto = of_ours(W, np.float32(0.5))
    change(proto)
    with pytest.raises(mo.LoadError, match="load: "):
        mo.load(proto)


@pytest.mark.parametrize(
    "arrays",
    [(np.int8(3), np.ones(2, np.float32)), (W, np.ones(3, np.float32)), (W, np.ones((2, 2), np.float32)),
     (W, np.ones(2, np.float32), np.ones(3, np.int8)), (W, np.float32(1), np.int32(1)), (W, np.int64(2))],
)  # fmt: skip
def test_scales_that_do_not_fit_are_errors_of_the_node(arrays: Any) -> None:
    with pytest.raises(ValueError, match="DequantizeLinear"):
        mo.load(of_ours(*arrays))(mn.ones(2, 2))


def test_floats_of_the_weights_count_as_the_files() -> None:
    proto = of_ours(np.ones((2, 100_000), np.int8), np.float32(0.5))
    with pytest.raises(mo.LoadError, match=r"initializer 'w' in floats takes 800000 bytes"):
        mo.load(proto, max_bytes=900_000)


def test_a_model_of_another_producer_stays_as_it_was() -> None:
    """Integers of other producers are constants: minorm does not know what they stand for."""
    w = numpy_helper.from_array(np.array([[3, -2]], np.int8), "w")
    scale = numpy_helper.from_array(np.array(0.5, np.float32), "scale")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["floats"]),
        helper.make_node("MatMul", ["x", "floats"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, k]) for n, k in (("x", 1), ("y", 2)))
    graph = helper.make_graph(nodes, "g", [x], [y], [w, scale])
    opsets = [helper.make_opsetid("", 13)]
    other = helper.make_model(graph, producer_name="other", opset_imports=opsets, ir_version=8)
    assert not list(mo.load(other).parameters())
    ours = helper.make_model(graph, producer_name="minorm", opset_imports=opsets, ir_version=8)
    model = mo.load(ours)  # no zero point in the file: it is int8's 0
    assert [p.array.tolist() for p in model.parameters()] == [[[1.5, -1.0]]]
    np.testing.assert_array_equal(model(mn.ones(2, 1)).array, [[1.5, -1.0]] * 2)
    assert ours.graph.initializer[0].data_type == onnx.TensorProto.INT8, "the model given is left alone"
