from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def data(*shape: int) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(3).normal(1, 2, shape).astype(np.float32))


@pytest.mark.parametrize(
    "layer", [nn.RMSNorm(6), nn.RMSNorm((5, 6), eps=1e-3), nn.RMSNorm(6, elementwise_affine=False)], ids=str
)
def test_rms(lived_in: Any, proved: Any, operators: Any, layer: nn.Module, opset: int) -> None:
    proto = proved(lived_in(layer), data(3, 4, 5, 6), opset=opset)
    assert (operators(proto) == ["RMSNormalization"]) == (opset >= 23)


def test_eps_none_is_the_step_of_the_type_computed_in(proved: Any) -> None:
    for dtype in (mn.float32, mn.float16, mn.bfloat16):
        proto = proved(nn.RMSNorm(6).to(dtype), data(3, 6).to(dtype), opset=23, must_run=False)
        eps = next(a.f for a in proto.graph.node[0].attribute if a.name == "epsilon")
        assert eps == np.finfo(np.float32).eps


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
@pytest.mark.parametrize("opset", [13, 22, 26])
def test_other_float_types(lived_in: Any, proved: Any, dtype: Any, opset: int) -> None:
    proved(lived_in(nn.RMSNorm(6)).to(dtype), data(3, 5, 6).to(dtype), opset=opset, must_run=False, reference=False)
