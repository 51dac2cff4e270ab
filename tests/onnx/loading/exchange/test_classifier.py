"""Use files of other makers as classifiers to train on: the head that is found, forms of the input, and refusals."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import minorm as mn
from minorm import nn
from minorm.onnx.loading.exchange.classifier import Classifier, whole

torch = pytest.importorskip("torch")
SIZE = 8


class Flat(torch.nn.Module):  # type: ignore[misc]
    """A module whose Reshape fixes the batch size of the example."""

    def forward(self, x: Any) -> Any:
        return x.reshape(int(x.shape[0]), -1)


class Stretched(torch.nn.Module):  # type: ignore[misc]
    """A module with one token an image, written for a batch of one image."""

    def __init__(self) -> None:
        super().__init__()
        self.token = torch.nn.Parameter(torch.ones(1, 1, SIZE, SIZE))

    def forward(self, x: Any) -> Any:
        return torch.cat([x, self.token], 1)


class ChannelsLast(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x.permute(0, 3, 1, 2))


class Two(torch.nn.Module):  # type: ignore[misc]
    """A module with two outputs: features that no layer with weights follows, and logits."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        features = self.inner[:-1](x)
        return (features * 2).abs(), self.inner[-1](features)


def layers(*last: Any, channels: int = 3) -> Any:
    torch.manual_seed(0)
    body = [torch.nn.Conv2d(channels, 6, 3, padding=1), torch.nn.BatchNorm2d(6), torch.nn.ReLU()]
    return torch.nn.Sequential(*body, *last)


def pooled(*last: Any) -> Any:
    return layers(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(6, 5), *last)


def written(model: Any, channels_last: bool = False, dtype: Any = None, **options: Any) -> bytes:
    """Return the file that PyTorch's exporter writes for one image."""
    x = torch.zeros(1, 3, SIZE, SIZE, dtype=dtype)
    x = x.permute(0, 2, 3, 1).contiguous() if channels_last else x
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.eval(), (x,), file, dynamo=False, **options)
    return file.getvalue()


def images(count: int = 3, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(count).random((count, 3, size, size), np.float32)


def made(model: Any, x: np.ndarray) -> np.ndarray:
    found: np.ndarray = model.eval()(mn.tensor(x)).detach().numpy()
    return found


CONV = torch.nn.Conv2d(6, 5, 1)
HEADS = {
    "gemm": (pooled(), "Gemm", ""),
    "softmax": (pooled(torch.nn.Softmax(1)), "Gemm", "Softmax"),
    "log_softmax": (pooled(torch.nn.LogSoftmax(1)), "Gemm", "LogSoftmax"),
    "sigmoid": (pooled(torch.nn.Sigmoid()), "Gemm", "Sigmoid"),
    "conv": (layers(CONV, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Softmax(1)), "Conv", "Softmax"),
    "pooled conv": (layers(torch.nn.AdaptiveAvgPool2d(1), CONV, torch.nn.Flatten()), "Conv", ""),
    "flat": (layers(torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(96, 5)), "Gemm", ""),
}


@pytest.mark.parametrize("name", list(HEADS))
def test_the_head_that_is_found_makes_logits_and_can_be_another_one(name: str) -> None:
    model, operator, activation = HEADS[name]
    file, x = Classifier(name, written(model)), images()
    head = file.head(3, SIZE)
    assert (head.operator, head.classes, head.activation) == (operator, 5, activation)
    with torch.no_grad():
        wanted = (model.eval()[:-1] if activation else model.eval())(torch.tensor(x)).numpy()
    assert np.allclose(made(file.build(3, SIZE, 5, keeps_head=True), x), wanted, atol=1e-5)
    other = file.build(3, SIZE, 2)
    assert made(other, x).shape == (3, 2)
    other.train()
    nn.CrossEntropyLoss()(other(mn.tensor(x)), mn.tensor([0, 1, 0])).backward()
    assert all(p.grad is not None and np.isfinite(p.grad.numpy()).all() for p in other.parameters())


@pytest.mark.parametrize("name", ["gemm", "softmax", "conv"])
def test_onnxruntime_computes_the_same_of_the_new_network(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model, x = Classifier(name, written(HEADS[name][0])).build(3, SIZE, 2), images()
    proto = mn.onnx.export(model, None)
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x})
    assert np.allclose(found, made(model, x), atol=1e-5)


@pytest.mark.parametrize("form", ["fixed", "free", "reshape", "channels last", "half", "two", "training"])
def test_forms_of_the_input(form: str) -> None:
    model, options = pooled(), {}
    if form == "free":
        options = {"input_names": ["x"], "dynamic_axes": {"x": {0: "b", 2: "h", 3: "w"}}}
    elif form == "training":
        options = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    elif form == "reshape":
        model = layers(Flat(), torch.nn.Linear(6 * SIZE**2, 5))
    network = {"channels last": ChannelsLast, "two": Two}.get(form, lambda m: m)(model)
    if form == "half":
        contents = written(pooled().half(), dtype=torch.float16)
    else:
        contents = written(network, form == "channels last", **options)
    file = Classifier(form, contents)
    given = file.input
    assert given.channels == 3
    assert given.channels_last == (form == "channels last")
    assert (given.batch, given.size) == ((None, None) if form == "free" else (1, SIZE))
    with torch.no_grad():
        wanted = model.eval()(torch.tensor(images())).numpy()
    found = made(file.build(3, SIZE, 5, keeps_head=True), images())
    assert found.dtype == np.float32
    assert np.allclose(found, wanted, atol=3e-2 if form == "half" else 1e-5)
    if form == "two":
        assert len(file.outputs) == 2
    if form == "training":
        assert len(list(file.build(3, SIZE, 2).buffers())) == 2, "its BatchNorm goes on training"


def test_another_size_where_the_graph_allows_it() -> None:
    file, x = Classifier("net.onnx", written(pooled())), images(size=12)
    with torch.no_grad():
        wanted = pooled().eval()(torch.tensor(x)).numpy()
    assert np.allclose(made(file.build(3, 12, 5, keeps_head=True), x), wanted, atol=1e-5)
    flat = Classifier("flat.onnx", written(HEADS["flat"][0]))
    with pytest.raises(ValueError, match=r"flat\.onnx: it does not run on two images of 12 x 12; the file was written "
                       "for batch 1 and size 8: "):  # fmt: skip
        flat.build(3, 12, 5)


REFUSED = {
    "grey": (pooled(), {}, 1, "net: it takes images with 3 channels, but these images have 1"),
    "no head": (layers(torch.nn.Flatten()), {}, 3, r"no head was found; .* '0', is a Conv of \(3, 3\)"),
    "two inputs": (None, {}, 3, r"the graph takes 2 inputs \(a, b\); expected one, of images"),
    "batch": (layers(Stretched(), torch.nn.Flatten(), torch.nn.Linear(7 * SIZE**2, 5)), {}, 3,
              "it does not run on two images of 8 x 8; the file was written for batch 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_cannot_be_trained_is_named(name: str) -> None:
    model, options, channels, said = REFUSED[name]
    contents = _of_two() if model is None else written(model, **options)
    with pytest.raises(ValueError, match=said):
        Classifier("net", contents).build(channels, SIZE, 2)


@pytest.mark.parametrize(
    ("kind", "shape", "said"),
    [
        (TensorProto.UINT8, [1, 3, 8, 8], "takes uint8; expected floats"),
        (TensorProto.FLOAT, [1, 3, 8], "has 3 axes; expected 4"),
        (TensorProto.FLOAT, [1, 3, 8, 9], "is 1 x 3 x 8 x 9; expected square images"),
        (TensorProto.FLOAT, [1, 4, 8, 8], "is 1 x 4 x 8 x 8; expected 1 or 3 channels"),
    ],
)
def test_inputs_that_are_no_images(kind: int, shape: list[int], said: str) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    value = [helper.make_tensor_value_info(name, kind, shape) for name in "xy"]
    graph = helper.make_graph([node], "g", value[:1], value[1:])
    with pytest.raises(ValueError, match=f"net: the input 'x' of the graph {said}"):
        Classifier("net", helper.make_model(graph).SerializeToString()).build(3, SIZE, 2)


def test_a_quantized_file_is_called_so() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3, 8, 8]) for name in "xy"]
    held = [numpy_helper.from_array(a, n) for n, a in (("scale", np.float32(0.1)), ("zero", np.uint8(0)))]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], held)
    with pytest.raises(ValueError, match=r"the last nodes are .*; the file is quantized: expected its model in floats"):
        Classifier("net", helper.make_model(graph).SerializeToString()).build(3, SIZE, 2)


def test_weights_beside_the_file_are_brought_in(tmp_path: Path) -> None:
    path, contents = str(tmp_path / "net.onnx"), written(pooled())
    onnx.save(onnx.load_from_string(contents), path, save_as_external_data=True, size_threshold=0)
    found = whole(path)
    next(p for p in tmp_path.iterdir() if p.name != "net.onnx").unlink()
    assert np.array_equal(
        made(Classifier("a", found).build(3, SIZE, 5, True), images()),
        made(Classifier("b", contents).build(3, SIZE, 5, True), images()),
    )
    with pytest.raises(ValueError, match="max_bytes=10"):
        whole(path, 10)


def _of_two() -> bytes:
    node = helper.make_node("Add", ["a", "b"], ["y"])
    value = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3, 8, 8]) for name in "aby"}
    graph = helper.make_graph([node], "g", [value["a"], value["b"]], [value["y"]])
    return bytes(helper.make_model(graph).SerializeToString())
