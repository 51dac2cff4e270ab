from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def data(*shape: int) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(3).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=(1, 2), groups=2, bias=False), (2, 4, 8, 7)),
        (nn.Conv2d(4, 5, (2, 4), padding="same", dilation=(1, 2)), (2, 4, 8, 7)),
        (nn.Conv2d(4, 8, 3, padding="valid", groups=4), (2, 4, 8, 7)),
        (nn.Conv3d(3, 6, (2, 3, 2), padding=1, stride=(1, 2, 1)), (2, 3, 4, 5, 6)),
        (nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 9)),
        (nn.ConvTranspose2d(4, 6, 3, stride=(2, 3), padding=1, output_padding=(1, 0), groups=2), (2, 4, 5, 4)),
        (nn.ConvTranspose2d(4, 6, (3, 2), dilation=2, bias=False), (2, 4, 5, 4)),
        (nn.ConvTranspose3d(3, 2, 2, stride=2), (2, 3, 3, 4, 2)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_convolutions(proved: Any, operators: Any, layer: nn.Module, shape: tuple[int, ...], opset: int) -> None:
    transposed = "Transpose" in type(layer).__name__
    # The onnx package's reference, which runs what onnxruntime refuses, cannot dilate a transposed convolution.
    proto = proved(layer, data(*shape), opset=opset, reference=not transposed)
    assert operators(proto) == ["ConvTranspose" if transposed else "Conv"]
    assert [t.name for t in proto.graph.initializer] == list(layer.state_dict())


def test_height_and_width_can_be_free(proved: Any) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.ConvTranspose2d(4, 2, 2, stride=2))
    proto = proved(net, data(2, 3, 8, 8), dynamic_axes={"x": {0: "batch", 2: "height", 3: "width"}})
    dims = [d.dim_param or d.dim_value for d in proto.graph.output[0].type.tensor_type.shape.dim]
    assert dims == ["batch", 2, "2*height", "2*width"]


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
@pytest.mark.parametrize("opset", [13, 22, 26])
def test_other_float_types(proved: Any, dtype: Any, opset: int) -> None:
    layer = nn.Conv2d(4, 3, 3).to(dtype)
    proved(layer, data(2, 4, 6, 6).to(dtype), opset=opset, must_run=dtype == mn.float16)
