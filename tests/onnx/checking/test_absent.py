"""BatchNorm that is gone: real files of both exporters of PyTorch, names as tf2onnx writes them, and graphs without
any."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402

from minorm.onnx.checking.absent import folded, written_out  # noqa: E402

W = np.ones((2, 2, 1, 1), np.float32)


def model(graph_of: Any, producer: str, *names: tuple[str, ...], **more: Any) -> Any:
    nodes = [h.make_node("Conv", ["x", *pair], [f"y{i}"], name=f"c{i}") for i, pair in enumerate(names)]
    held = {name: W if place == 0 else W[:, 0, 0, 0] for pair in names for place, name in enumerate(pair)}
    proto = graph_of(nodes, {"x": (np.float32, [1, 2, 3, 3])}, [f"y{len(nodes) - 1}"], held | more)
    proto.producer_name = producer
    return proto


@pytest.mark.parametrize(
    ("producer", "weight", "bias", "expected"),
    [
        ("pytorch", "onnx::Conv_12", "onnx::Conv_13", True),
        ("pytorch", "193", "194", True),
        ("other", "193", "194", False),
        ("tf2onnx", "model/c/Conv2D_weights_fused_bn", "model/c/Conv2D_bias_fused_bn", True),
        ("pytorch", "onnx::Conv_12", "c.bias", False),  # the norm of weights, folded
        ("pytorch", "onnx::Conv_12", "onnx::Conv_20", False),
        ("pytorch", "c.weight", "c.bias", False),
        ("pytorch", "1" * 5000, "1" * 5000, False),
    ],
)
def test_names_tell(producer: str, weight: str, bias: str, expected: bool, graph_of: Any) -> None:
    proto = model(graph_of, producer, ("fc.weight", "fc.bias"), (weight, bias))
    assert folded(proto) == (["c1"] if expected else [])


def test_numbers_alone_tell_only_where_others_have_names(graph_of: Any) -> None:
    assert folded(model(graph_of, "pytorch", ("1", "2"))) == []


def test_a_convolution_that_lacks_its_weight_is_none(graph_of: Any) -> None:
    assert folded(model(graph_of, "pytorch", ())) == []


def test_files_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    tnn = torch.nn
    torch.manual_seed(0)
    net = tnn.Sequential(
        tnn.Conv2d(3, 4, 3), tnn.BatchNorm2d(4), tnn.ReLU(), tnn.Conv2d(4, 4, 1, bias=False), tnn.ReLU(),
        tnn.BatchNorm2d(4), tnn.Conv2d(4, 4, 1), tnn.BatchNorm2d(4),
    ).eval()  # fmt: skip
    x, mode = torch.randn(1, 3, 5, 5), torch.onnx.TrainingMode

    def names(**options: Any) -> list[str]:
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if options.pop("dynamo", False):
                return folded(torch.onnx.export(net, (x,), dynamo=True, verbose=False, **options).model_proto)
            torch.onnx.export(net, (x,), file, dynamo=False, **options)
        return folded(onnx.load_from_string(file.getvalue()))

    assert names() == ["/0/Conv", "/6/Conv"]
    assert names(training=mode.PRESERVE) == []
    assert names(training=mode.TRAINING) == []
    pytest.importorskip("onnxscript")
    assert len(names(dynamo=True)) == 2
    assert names(dynamo=True, optimize=False) == []


def test_keras_writes_a_batch_norm_as_a_product_and_a_sum(graph_of: Any) -> None:
    norm, plain = np.ones((1, 4, 1, 1), np.float32), np.ones(4, np.float32)
    nodes = [
        h.make_node("Mul", ["x", "scale"], ["a"], name="net/bn_1/batchnorm/mul_1"),
        h.make_node("Add", ["a", "shift"], ["net/bn_1/batchnorm/add_1:0"]),
        h.make_node("Mul", ["net/bn_1/batchnorm/add_1:0", "a"], ["b"], name="net/ln/batchnorm/mul_1"),  # a LayerNorm
        h.make_node("Mul", ["b", "gain"], ["y"], name="net/scale/mul_1"),
    ]
    held = {"scale": norm, "shift": norm, "gain": plain}
    proto = graph_of(nodes, {"x": (np.float32, [1, 4, 4, 4])}, ["y"], held)
    assert written_out(proto) == ["net/bn_1"]
