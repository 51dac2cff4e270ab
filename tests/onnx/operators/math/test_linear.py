from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn


def data(*shape: int) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(3).normal(size=shape).astype(np.float32))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 5)])
def test_linear_keeps_its_weight_as_it_is(proved: Any, operators: Any, shape: Any, bias: bool, opset: int) -> None:
    layer = nn.Linear(5, 4, bias=bias)
    proto = proved(layer, data(*shape), opset=opset)
    assert {t.name: list(t.dims) for t in proto.graph.initializer} == {
        key: list(value.shape) for key, value in layer.state_dict().items()
    }
    if len(shape) == 2 and (bias or opset >= 11):
        assert operators(proto) == ["Gemm"]


def test_one_vector(proved: Any) -> None:
    weight, bias = data(4, 5), data(4)
    proved(lambda x: F.linear(x, weight, bias), data(5), dynamic_axes={}, batches=())


def test_products_of_any_rank(proved: Any, opset: int) -> None:
    vector, matrix = data(5), data(5, 2)
    proved(lambda x: (x @ vector, x @ matrix, x @ x.mT), data(2, 3, 5), opset=opset)


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
def test_other_float_types(proved: Any, dtype: Any) -> None:
    proved(nn.Linear(5, 4).to(dtype), data(2, 5).to(dtype), must_run=dtype != mn.bfloat16)
