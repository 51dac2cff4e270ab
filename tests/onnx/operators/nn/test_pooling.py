from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.checking import verification

RNG = np.random.default_rng(4)
LINE, IMAGE, VOLUME = (
    mn.tensor(RNG.normal(size=shape).astype(np.float32)) for shape in ((2, 3, 9), (2, 4, 8, 7), (2, 3, 4, 5, 6))
)


def test_max_pooling(proved: Any, operators: Any, opset: int) -> None:
    proto = proved(nn.MaxPool2d(3, 2, 1), IMAGE, opset=opset)
    assert operators(proto) == ["MaxPool"]
    proved(lambda x: F.max_pool2d(x, (2, 3), padding=((0, 1), (1, 0))), IMAGE, opset=opset)
    proved(nn.MaxPool1d(2, 1), LINE, opset=opset)
    proved(lambda x: F.max_pool3d(x, 2), VOLUME, opset=opset)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 3, 0), (2, 2, 0), (4, 3, 2)])
def test_a_last_window_that_hangs_over_the_end(proved: Any, opset: int, kernel: int, stride: int, padding: int) -> None:
    proved(lambda x: F.max_pool2d(x, kernel, stride, padding, ceil_mode=True), IMAGE, opset=opset)
    for counted in (True, False):
        proved(
            lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil_mode=True, count_include_pad=counted),  # noqa: B023
            IMAGE,
            opset=opset,
        )


def test_places_of_maxima_are_those_in_the_plane(proved: Any, opset: int) -> None:
    def pool(x: mn.Tensor) -> Any:
        return F.max_pool2d(x, 3, 2, 1, return_indices=True)

    if opset < 8:
        with pytest.raises(mo.ExportError, match="MaxPool 1 does not have 2 outputs"):
            mo.export(pool, IMAGE, None, opset_version=opset)
    else:
        proved(pool, IMAGE, opset=opset)


def test_dilated_maxima(proved: Any, opset: int) -> None:
    def pool(x: mn.Tensor) -> mn.Tensor:
        return F.max_pool2d(x, 2, 1, dilation=2)

    if opset < 10:
        with pytest.raises(mo.ExportError, match="has no attribute dilations"):
            mo.export(pool, IMAGE, None, opset_version=opset)
    else:
        proved(pool, IMAGE, opset=opset)


def test_average_pooling(proved: Any, operators: Any, opset: int) -> None:
    assert operators(proved(nn.AvgPool2d(3, 2, 1), IMAGE, opset=opset)) == ["AveragePool"]
    proved(nn.AvgPool2d((2, 3), count_include_pad=False, padding=1), IMAGE, opset=opset)
    proved(lambda x: F.avg_pool1d(x, 2, 1), LINE, opset=opset)
    proved(lambda x: F.avg_pool3d(x, 2, 2, 1), VOLUME, opset=opset)
    proved(lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5), IMAGE, opset=opset)
    proved(lambda x: F.avg_pool2d(x, 2, 1, dilation=2), IMAGE, opset=opset)


def test_adaptive_average_pooling(proved: Any, operators: Any, opset: int) -> None:
    assert operators(proved(nn.AdaptiveAvgPool2d(1), IMAGE, opset=opset)) == ["GlobalAveragePool"]
    assert operators(proved(nn.AdaptiveAvgPool2d((4, 7)), IMAGE, opset=opset)) == ["AveragePool"]
    proved(nn.AdaptiveAvgPool2d((3, 5)), IMAGE, opset=opset)
    proved(nn.AdaptiveAvgPool1d(4), LINE, opset=opset)
    proved(nn.AdaptiveAvgPool1d(1), LINE, opset=opset)


def test_the_global_average_takes_any_height_and_width(proved: Any) -> None:
    proto = proved(nn.AdaptiveAvgPool2d(1), IMAGE, dynamic_axes={"x": {0: "n", 2: "h", 3: "w"}})
    assert [d.dim_param or d.dim_value for d in proto.graph.output[0].type.tensor_type.shape.dim] == ["n", 4, 1, 1]


@pytest.mark.parametrize("order", [0, 1])
def test_places_through_the_whole_tensor_go_out_again_with_a_free_batch(order: int, graph_of: Any) -> None:
    from onnx import helper

    node = helper.make_node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2], strides=[2, 2], storage_order=order)
    model = mo.load(graph_of([node], {"x": (np.float32, [None, 3, 4, 6])}, ["y", "places"]))
    again = mo.load(mo.export(model, mn.randn(2, 3, 4, 6)))
    x = mn.randn(5, 3, 4, 6)
    for ours, theirs in zip(model(x), again(x), strict=True):
        np.testing.assert_array_equal(ours.array, theirs.array)
    if order == 0:
        np.testing.assert_array_equal(x.array.reshape(-1)[model(x)[1].array], model(x)[0].array)


FREE = {"x": {0: "n", 2: "h", 3: "w"}}
CEILED = [(2, 2, 0), (3, 2, 1), (3, 2, 0), (2, 3, 0), (1, 2, 0), (5, 5, 2), (7, 7, 0)]


@pytest.mark.parametrize(("kernel", "stride", "padding"), CEILED)
@pytest.mark.parametrize("opset", [7, 9, 10, 18, 22])
def test_ceil_mode_of_free_height_and_width(kernel: int, stride: int, padding: int, opset: int) -> None:
    """In onnxruntime, at sizes with and without a last window that hangs over, and smaller than the window."""
    pytest.importorskip("onnxruntime")
    pools: list[Any] = [
        lambda x: F.max_pool2d(x, kernel, stride, padding, ceil_mode=True),
        lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil_mode=True, count_include_pad=True),
        lambda x: F.avg_pool2d(x, kernel, stride, padding, ceil_mode=True, count_include_pad=False),
    ]
    for pool in pools:
        proto = mo.export(pool, mn.randn(2, 3, 16, 17), None, opset_version=opset, dynamic_axes=FREE)
        assert not any(node.op_type == "Conv" for node in proto.graph.node)
        session = verification.start(proto)
        for size in ((16, 17), (9, 10), (11, 8), (3, 2), (2, 30)):
            x = mn.randn(1, 3, *size)
            (got,) = verification.run(session, {"x": x.array})
            np.testing.assert_allclose(got, pool(x).array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("kernel", "size"), [(1280, 7), (5, 3), (64, 1)])
def test_a_window_larger_than_the_input(operator: str, kernel: int, size: int, graph_of: Any) -> None:
    """Some classifiers end in an AvgPool2d(channels, ceil_mode=True), which is the mean of a plane of any size."""
    from onnx import helper

    sides = {"kernel_shape": [kernel] * 2, "strides": [kernel] * 2}
    node = helper.make_node(operator, ["x"], ["y"], ceil_mode=1, **sides)
    model = mo.load(graph_of([node], {"x": (np.float32, ["n", 320, "h", "w"])}, ["y"], opset=18))
    x = mn.randn(2, 320, size, size, requires_grad=True)
    y = model(x)
    wide = x.array.astype(np.float64)
    formula = {
        "MaxPool": wide.max((2, 3), keepdims=True),
        "AveragePool": wide.mean((2, 3), keepdims=True),
        "LpPool": np.sqrt((wide**2).sum((2, 3), keepdims=True)),
    }[operator]
    np.testing.assert_allclose(y.array, formula, rtol=1e-5, atol=1e-6)
    y.sum().backward()
    slope = {"MaxPool": wide == formula, "AveragePool": np.full(x.shape, size**-2.0), "LpPool": wide / formula}
    np.testing.assert_allclose(x.grad.array, slope[operator], rtol=1e-5, atol=1e-6)
    node.attribute.remove(next(a for a in node.attribute if a.name == "ceil_mode"))
    refused = mo.load(graph_of([node], {"x": (np.float32, ["n", 320, "h", "w"])}, ["y"], opset=18))
    if kernel > size:
        with pytest.raises(ValueError, match="ceil_mode is 0; expected windows that"):
            refused(x)
