from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def data(*shape: int) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(3).normal(1, 2, shape).astype(np.float32))


@pytest.mark.parametrize(
    "layer",
    [
        nn.LayerNorm(6),
        nn.LayerNorm((5, 6), eps=1e-3),
        nn.LayerNorm((4, 5, 6), bias=False),
        nn.LayerNorm(6, elementwise_affine=False),
    ],
    ids=str,
)
def test_layers(lived_in: Any, proved: Any, operators: Any, layer: nn.Module, opset: int) -> None:
    proto = proved(lived_in(layer), data(3, 4, 5, 6), opset=opset)
    assert (operators(proto) == ["LayerNormalization"]) == (opset >= 17)
    assert set(layer.state_dict()) <= {t.name for t in proto.graph.initializer}


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
@pytest.mark.parametrize("opset", [13, 17, 26])
def test_other_float_types(lived_in: Any, proved: Any, operators: Any, dtype: Any, opset: int) -> None:
    proto = proved(lived_in(nn.LayerNorm(6)).to(dtype), data(3, 5, 6).to(dtype), opset=opset, must_run=False)
    if dtype == mn.float64:  # the operator computes in float32
        assert "LayerNormalization" not in operators(proto)
