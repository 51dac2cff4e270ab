from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn

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
        np.testing.assert_array_equal(ours.data, theirs.data)
    if order == 0:
        np.testing.assert_array_equal(x.data.reshape(-1)[model(x)[1].data], model(x)[0].data)
