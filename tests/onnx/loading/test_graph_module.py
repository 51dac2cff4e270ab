"""A loaded graph that is converted to another float type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402


class Net(nn.Module):
    """Constants, scalars, types that are asked for, and lengths that become numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 3)
        self.shift = mn.tensor(np.linspace(0, 1, 4, dtype=np.float32).reshape(4, 1, 1))

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        x = F.relu(self.bn(self.conv(x))) * 0.5 + self.shift.to(x.dtype)
        x = x.mean((2, 3)).clip(-1, 1) + mn.ones(4).to(x.dtype)
        return self.head(self.norm(x) * x.shape[0])


def loaded(training: bool = False) -> Any:
    mn.manual_seed(0)
    return mo.load(mo.export(Net(), mn.randn(3, 2, 6, 6), None, opset_version=13, training=training))


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64], ids=str)
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside another"])
def test_every_float_follows_the_parameters(dtype: Any, inside: bool) -> None:
    x = mn.randn(3, 2, 6, 6)
    want = loaded()(x)
    graph = loaded()
    parameters = list(graph.parameters())
    model = nn.Sequential(graph).to(dtype) if inside else graph.to(dtype)
    y = model(x.to(dtype))
    assert y.dtype == dtype
    tolerance = {"float16": 1e-2, "bfloat16": 8e-2}.get(str(np.dtype(dtype)), 1e-5)
    np.testing.assert_allclose(y.array.astype(np.float64), want.array, rtol=tolerance, atol=tolerance)
    y.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == dtype for p in parameters)
    with pytest.raises(TypeError, match=r"input 'x' is float32; the graph was converted to .*; convert it: x.to\(mn"):
        model(x)


def test_a_result_that_is_a_constant_is_the_callers_to_change(graph_of: Any) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Reshape", ["c", "shape"], ["part"])]
    constants = {"c": np.ones((2, 2), np.float32), "shape": np.array([4])}
    graph = mo.load(graph_of(nodes, {"x": (np.float32, [3])}, ["y", "c", "part"], constants))
    for _ in range(3):
        with mn.no_grad():
            _, whole, part = graph(mn.ones(3))
        assert whole.tolist() == [[1, 1], [1, 1]]
        assert part.tolist() == [1] * 4
        whole.fill_(7)
        part.fill_(7)


def test_there_and_back_is_the_same_graph() -> None:
    x, graph = mn.randn(3, 2, 6, 6), loaded()
    want = graph(x)
    again = graph.to(mn.float64).to(mn.float32)(x)
    np.testing.assert_array_equal(again.array, want.array)


def test_a_converted_graph_trains_and_is_exported(proved: Any) -> None:
    graph = loaded(training=True).to(mn.float64)
    x = mn.randn(3, 2, 6, 6).to(mn.float64)
    before = {name: buffer.array.copy() for name, buffer in graph.named_buffers()}
    y, *_ = graph(x)
    y.sum().backward()
    assert any((buffer.array != before[name]).any() for name, buffer in graph.named_buffers())
    graph.eval()
    proto = mo.export(graph, x, None)
    assert {t.data_type for t in proto.graph.initializer} <= {onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64}
    np.testing.assert_allclose(mo.load(proto)(x)[0].array, graph(x)[0].array, rtol=1e-12)


def test_scales_keep_the_precision_that_they_need(graph_of: Any) -> None:
    """1025 / 1024 is 1 in float16: the result would be one element short."""
    scales = np.array([1, 1, 1025 / 1024], np.float32)
    proto = graph_of(
        [
            helper.make_node("Mul", ["x", "w"], ["h"]),
            helper.make_node("Resize", ["h", "", "scales"], ["y"], mode="nearest"),
        ],
        {"x": (np.float32, [1, 1, 1024])},
        ["y"],
        {"w": np.ones(1, np.float32), "scales": scales},
    )
    model = mo.load(proto).to(mn.float16)
    y = model(mn.ones(1, 1, 1024).to(mn.float16))
    assert (y.shape, y.dtype) == ((1, 1, 1025), mn.float16)


def test_numbers_made_of_lengths_and_casts_follow(graph_of: Any) -> None:
    proto = graph_of(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Cast", ["shape"], ["lengths"], to=1),
            helper.make_node("Greater", ["x", "w"], ["mask"]),
            helper.make_node("Cast", ["mask"], ["zero_one"], to=1),
            helper.make_node("Mul", ["zero_one", "w"], ["h"]),
            helper.make_node("Div", ["h", "lengths"], ["y"]),
        ],
        {"x": (np.float32, ["n"])},
        ["y"],
        {"w": np.full(1, 2, np.float32)},
    )
    model = mo.load(proto).to(mn.float64)
    y = model(mn.tensor(np.array([1.0, 3.0, 5.0])))
    assert y.dtype == np.float64
    np.testing.assert_allclose(y.array, np.array([0, 2, 2]) / 3)


def test_a_cast_of_data_gives_the_type_that_the_graph_was_converted_to(graph_of: Any) -> None:
    """To float32, in a file of float32, it changes nothing: in float64 neither. Outputs are of the type too."""
    proto = graph_of(
        [
            helper.make_node("Cast", ["x"], ["c"], to=1),
            helper.make_node("Mul", ["c", "w"], ["h"]),
            helper.make_node("Cast", ["h"], ["y"], to=1),
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Cast", ["shape"], ["n"], to=1),
        ],
        {"x": (np.float32, ["n"])},
        ["y", "n"],
        {"w": np.full(1, 3, np.float32)},
    )
    x = np.array([0.1, 1 / 3])
    y, n = mo.load(proto).to(mn.float64)(mn.tensor(x))
    assert (y.dtype, n.dtype, n.tolist()) == (mn.float64, mn.float64, [2])
    np.testing.assert_array_equal(y.array, x * 3)
    half = mo.load(proto).to(mn.float16)(mn.tensor(x.astype(np.float16)))
    assert [t.dtype for t in half] == [mn.float16, mn.float16]


FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
TYPES = pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64], ids=str)


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def same_padding(graph_of: Any) -> Any:
    """Padding as TensorFlow's SAME has it at run time: (ceil(n / 2) - 1) * 2 + 3 - n, in floats."""
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape places", "hw"), node("Cast", "hw", "n", to=FLOAT),
        node("Div", "n two", "half"), node("Ceil", "half", "m"), node("Sub", "m one", "steps"),
        node("Mul", "steps two", "first"), node("Add", "first three", "end"), node("Sub", "end n", "missing"),
        node("Cast", "missing", "total", to=INT64), node("Div", "total 2", "low"), node("Sub", "total low", "high"),
        node("Concat", "00 low 00 high", "pads", axis=0), node("Pad", "x pads", "wide"),
        node("Conv", "wide w", "y", strides=[2, 2]),
    ]  # fmt: skip
    held = {"two": np.float32(2), "one": np.float32(1), "three": np.float32(3), "2": np.int64(2)}
    places = {"places": np.array([2, 3]), "00": np.array([0, 0])}
    w = {"w": np.random.default_rng(2).normal(size=(4, 3, 3, 3)).astype(np.float32)}
    return graph_of(nodes, {"x": (np.float32, ["n", 3, "h", "w"])}, ["y"], held | places | w)


@TYPES
@pytest.mark.parametrize("size", [(9, 12), (4097, 2)])
def test_padding_computed_in_floats_of_a_converted_graph(dtype: Any, size: tuple[int, int], graph_of: Any) -> None:
    """4097 is no number of float16 or bfloat16: lengths are computed in the types of the file."""
    proto = same_padding(graph_of)
    x = mn.randn(1, 3, *size)
    model = mo.load(proto).to(dtype)
    y = model(x.to(dtype))
    w = model.state_dict()["w"].array.astype(np.float64)
    missing = [(-(-n // 2) - 1) * 2 + 3 - n for n in size]
    wide = np.pad(x.to(dtype).array.astype(np.float64), [(0, 0), (0, 0), *((m // 2, m - m // 2) for m in missing)])
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2]
    want = np.einsum("nchwij,ocij->nohw", windows, w)
    assert (y.dtype, y.shape) == (dtype, want.shape)
    unit = {"float16": 2e-3, "bfloat16": 2e-2}.get(str(np.dtype(dtype)), 1e-12)
    np.testing.assert_allclose(y.array.astype(np.float64), want, rtol=unit, atol=unit * abs(want).max())
    y.sum().backward()
    assert [p.grad.dtype for p in model.parameters() if p.grad is not None] == [dtype]


@TYPES
def test_a_scale_made_of_a_length_in_a_converted_graph(dtype: Any, graph_of: Any) -> None:
    """softmax(x x^T / sqrt(width)), the width a Shape, as attention is exported."""
    nodes = [
        node("Shape", "x", "shape"), node("Slice", "shape last end", "width"), node("Cast", "width", "wide", to=FLOAT),
        node("Sqrt", "wide", "root"), node("Div", "one root", "scale"), node("Sqrt", "scale", "each"),
        node("MatMul", "x w", "q"), node("Mul", "q each", "a"), node("Transpose", "a", "b", perm=[0, 2, 1]),
        node("MatMul", "a b", "scores"), node("Softmax", "scores", "y"),
    ]  # fmt: skip
    held = {"last": np.array([-1]), "end": np.array([2**62]), "w": np.eye(5, dtype=np.float32)}
    one = node("Constant", "", "one", value=onnx.numpy_helper.from_array(np.ones(1, np.float32)))
    model = mo.load(graph_of([one, *nodes], {"x": (np.float32, ["n", "l", 5])}, ["y"], held)).to(dtype)
    x = mn.randn(2, 7, 5).to(dtype)
    y = model(x)
    wide = x.array.astype(np.float64)
    powers = np.exp(wide @ wide.transpose(0, 2, 1) / np.sqrt(5))
    assert y.dtype == dtype
    unit = {"float16": 5e-3, "bfloat16": 5e-2}.get(str(np.dtype(dtype)), 1e-6)
    np.testing.assert_allclose(y.array.astype(np.float64), powers / powers.sum(-1, keepdims=True), rtol=unit, atol=unit)
    (y * y).sum().backward()
    assert [p.grad.dtype for p in model.parameters() if p.grad is not None] == [dtype]
