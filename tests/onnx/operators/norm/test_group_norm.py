from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn


def data(*shape: int) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(3).normal(1, 2, shape).astype(np.float32))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.GroupNorm(2, 6), (2, 6, 3, 5)),
        (nn.GroupNorm(1, 6, eps=1e-3), (2, 6, 7)),
        (nn.GroupNorm(6, 6, affine=False), (2, 6, 3, 2, 2)),
        (nn.GroupNorm(3, 6, per_group=True), (2, 6, 3, 5)),
        (nn.GroupNorm(3, 6), (2, 6)),
    ],
    ids=str,
)
def test_groups(
    lived_in: Any, proved: Any, operators: Any, layer: nn.Module, shape: tuple[int, ...], opset: int
) -> None:
    proto = proved(lived_in(layer), data(*shape), opset=opset)
    used = operators(proto)
    assert ("GroupNormalization" in used) == (opset >= 21 and len(shape) > 2)
    assert set(layer.state_dict()) <= {t.name for t in proto.graph.initializer}
    if opset >= 21 and layer.weight is not None and layer.weight.shape == (6,) and len(shape) > 2:
        assert used == ["GroupNormalization"]


@pytest.mark.parametrize("opset", [13, 20, 21, 26])
def test_height_and_width_can_be_free(lived_in: Any, proved: Any, opset: int) -> None:
    proto = proved(
        lived_in(nn.GroupNorm(2, 6)), data(2, 6, 4, 6), opset=opset, dynamic_axes={"x": {0: "n", 2: "h", 3: "w"}}
    )
    assert [d.dim_param for d in proto.graph.output[0].type.tensor_type.shape.dim] == ["n", "", "h", "w"]


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
@pytest.mark.parametrize("opset", [13, 18, 26])
def test_other_float_types(lived_in: Any, proved: Any, dtype: Any, opset: int) -> None:
    proved(lived_in(nn.GroupNorm(2, 6)).to(dtype), data(2, 6, 4, 6).to(dtype), opset=opset, must_run=False)


def test_bias_alone(proved: Any, opset: int) -> None:
    bias = data(6)
    proved(lambda x: F.group_norm(x, 2, bias=bias), data(2, 6, 4), opset=opset)
