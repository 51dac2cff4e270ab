"""`load(path, dtype=...)`: the network in another float type, or an error that says why not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn, optim

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

from minorm.onnx.checking import verification  # noqa: E402

TYPES = pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32, mn.float64], ids=str)


class Net(nn.Module):
    """Convolutions with BatchNorm, attention's products, a LayerNorm, a GELU, a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm, self.wide, self.head = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        x = self.first(x)
        x = F.relu(self.second(x) + x) * 0.75
        x = self.norm(x.flatten(2).transpose(1, 2))
        x = F.softmax(x @ x.transpose(1, 2) * 0.125, -1) @ x
        return self.head(F.gelu(self.wide(x)).mean(1))


def images() -> mn.Tensor:
    return mn.from_numpy(np.random.default_rng(0).standard_normal((2, 3, 8, 8), np.float32))


def written(training: bool = False) -> Any:
    mn.manual_seed(0)
    model = Net()
    for _ in range(3):
        model(mn.randn(8, 3, 8, 8))
    return mo.export(model.train(training), images(), None, opset_version=22, training=training)


@TYPES
def test_it_is_the_network_in_that_type(dtype: Any, proved: Any) -> None:
    """As `to` gives it; close to the network in float64; and what is exported is that again, to the bit."""
    proto = written()
    model = mo.load(proto, dtype=dtype).eval()
    assert {tensor.dtype for tensor in (*model.parameters(), *model.buffers()) if tensor.ndim} == {dtype}
    x = images().to(dtype)
    with mn.no_grad():
        y = model(x)
        np.testing.assert_array_equal(y.array, mo.load(proto).eval().to(dtype)(x).array)
        exact = mo.load(proto, dtype=mn.float64).eval()(images().double()).array
        assert y.dtype == dtype
        scale = max(1, abs(exact).max())
        assert abs(y.array.astype(np.float64) - exact).max() / scale < verification.TOLERANCE[dtype]
        again = mo.load(mo.export(model, None, None)).eval()
        np.testing.assert_array_equal(again(x).array, y.array)
        assert again.converted_to() is None


@TYPES
def test_it_trains_in_that_type(dtype: Any) -> None:
    model = mo.load(written(training=True), dtype=dtype).train()
    x, labels = images().to(dtype), mn.tensor(np.array([1, 3]))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.7 * losses[0]
    assert {p.dtype for p in model.parameters()} == {p.grad.dtype for p in model.parameters()} == {dtype}


def test_sizes_stay_exact(graph_of: Any) -> None:
    """1025 / 1024 is 1 in 16 bits: the result would be one element short."""
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["h"]), helper.make_node("Mul", ["h", "w"], ["y"])]
    held = {"scales": np.float32([1, 1, 1025 / 1024]), "w": np.ones(1, np.float32)}
    proto = graph_of(nodes, {"x": (np.float32, [1, 1, 1024])}, ["y"], held)
    y = mo.load(proto, dtype=mn.bfloat16)(mn.ones(1, 1, 1024).to(mn.bfloat16))
    assert (y.shape, y.dtype) == ((1, 1, 1025), mn.bfloat16)


@pytest.mark.parametrize("wrong", [mn.int32, mn.bool, "int64"], ids=str)
def test_a_type_that_is_no_float(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"load: dtype is \w+; expected a float type \(float16, bfloat16, float32"):
        mo.load(b"nothing is read before", dtype=wrong)
    with pytest.raises(TypeError, match="load: 3 is no dtype; expected one of"):
        mo.load(b"", dtype=3)


def test_a_graph_of_integers(graph_of: Any) -> None:
    said = r"load: dtype is bfloat16, but the graph computes only with integers \(x int64 \(n\)\); leave dtype out"
    nodes = [helper.make_node("Add", ["x", "one"], ["y"])]
    proto = graph_of(nodes, {"x": (np.int64, ["n"])}, ["y"], {"one": np.int64([1])})
    with pytest.raises(mo.LoadError, match=said):
        mo.load(proto, dtype=mn.bfloat16)
    assert mo.load(proto)(mn.tensor([1, 2])).tolist() == [2, 3]
    resize = helper.make_node("Resize", ["x", "", "scales"], ["y"])
    proto = graph_of([resize], {"x": (np.uint8, [4])}, ["y"], {"scales": np.float32([2])})
    with pytest.raises(mo.LoadError, match="computes only with integers"):  # the scales are no data
        mo.load(proto, dtype=mn.float16)


def test_integers_outside_and_floats_inside(graph_of: Any) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT), helper.make_node("Sqrt", ["h"], ["r"]),
        helper.make_node("Cast", ["r"], ["y"], to=TensorProto.INT64),
    ]  # fmt: skip
    model = mo.load(graph_of(nodes, {"x": (np.int64, [2])}, ["y"], {}), dtype=mn.bfloat16)
    seen: list[Any] = []
    with model.watching(lambda step, arguments, results, work: seen.extend(results)):
        assert model(mn.tensor([4, 9])).tolist() == [2, 3]
    assert [result.dtype for result in seen] == [mn.bfloat16, mn.bfloat16, mn.int64]


def test_a_weight_that_would_be_infinite(graph_of: Any) -> None:
    """Numbers that are infinite in the file may stay so, and constants may become infinite, as masks do."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "mask"], ["y"])]
    w = np.float32([[1e5, np.inf], [1, 2]])
    held = {"w": w, "mask": np.float32([[-3e38, 0]])}
    proto = graph_of(nodes, {"x": (np.float32, [1, 2])}, ["y"], held)
    with pytest.raises(mo.LoadError, match="load: dtype is float16, but w holds 100000; expected at most 65504"):
        mo.load(proto, dtype=mn.float16, trainable=["w"])
    assert mo.load(proto, dtype=mn.bfloat16, trainable=["w"]).state_dict()["w"].dtype == mn.bfloat16
    w[0, 0] = 1
    proto = graph_of(nodes, {"x": (np.float32, [1, 2])}, ["y"], {**held, "w": w})
    y = mo.load(proto, dtype=mn.float16, trainable=["w"])(mn.ones(1, 2).half())
    assert y.tolist() == [[-np.inf, np.inf]]
