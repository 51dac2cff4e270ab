"""An int8 model of ours, loaded: its weights train, rounded by the file's scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import models
from minorm import quantization as Q
from tests.quantized_models import images, trained

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


def test_a_model_of_another_producer_stays_as_it_was() -> None:
    """Integers of any file are constants: what others mean by them is not ours to say."""
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
