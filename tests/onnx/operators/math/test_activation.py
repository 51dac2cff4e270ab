from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn


@pytest.fixture
def x(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.normal(0, 3, (2, 3, 4)).astype(np.float32))


@pytest.mark.parametrize(
    ("layer", "operator"),
    [
        (nn.ReLU(), "Relu"),
        (nn.ReLU6(), "Clip"),
        (nn.LeakyReLU(0.2), "LeakyRelu"),
        (nn.ELU(0.7), "Elu"),
        (nn.GELU(), None),
        (nn.GELU("tanh"), None),
        (nn.SiLU(), None),
        (nn.Sigmoid(), "Sigmoid"),
        (nn.Tanh(), "Tanh"),
        (nn.Hardswish(), None),
        (nn.Hardsigmoid(), "HardSigmoid"),
        (nn.Softplus(), "Softplus"),
        (nn.Softplus(2.0), None),
    ],
    ids=repr,
)
def test_activations(proved: Any, operators: Any, x: mn.Tensor, layer: nn.Module, operator: str, opset: int) -> None:
    proto = proved(layer, x, opset=opset)
    assert operator is None or operators(proto) == [operator]


@pytest.mark.parametrize(("layer", "operator", "since"), [(nn.GELU(), "Gelu", 20), (nn.Hardswish(), "HardSwish", 14)])
def test_an_operator_is_used_as_soon_as_it_exists(
    proved: Any, operators: Any, x: mn.Tensor, layer: nn.Module, operator: str, since: int
) -> None:
    assert operators(proved(layer, x, opset=since)) == [operator]
    assert operator not in operators(proved(layer, x, opset=since - 1))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax_along_any_axis_also_where_the_operator_flattens(
    proved: Any, x: mn.Tensor, opset: int, dim: int
) -> None:
    proved(lambda x: (F.softmax(x, dim), F.log_softmax(x, dim)), x, opset=opset)


def test_a_low_threshold_of_softplus_counts(proved: Any, x: mn.Tensor) -> None:
    proved(nn.Softplus(1.0, 3.0), x, opset=9)
    with pytest.raises(mo.ExportError, match="Where exists from opset 9 on"):
        mo.export(nn.Softplus(1.0, 3.0), x, None, opset_version=8)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64])
@pytest.mark.parametrize("opset", [13, 20, 26])
def test_other_float_types(proved: Any, x: mn.Tensor, dtype: Any, opset: int) -> None:
    proved(lambda x: (F.relu(x), F.gelu(x), F.softmax(x, 1), F.softplus(x)), x.to(dtype), opset=opset, must_run=False)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("layer", [nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-2, 3), nn.Threshold(1, 4)], ids=repr)
@pytest.mark.parametrize("opset", [9, 11, 12, 14])
def test_integers(proved: Any, layer: nn.Module, dtype: str, opset: int) -> None:
    """Before Clip takes them, by Where."""
    if isinstance(layer, nn.Threshold) and (dtype, opset) == ("int8", 9):
        pytest.skip("Equal 7 takes no int8")
    proved(layer, mn.tensor([[-3, 0, 1], [2, 7, 100]], dtype=getattr(mn, dtype)), opset=opset)


def test_a_list_of_einsum(proved: Any, operators: Any, x: mn.Tensor) -> None:
    proto = proved(lambda x: mn.einsum("nct,ndt->ncd", [x, x]), x, opset=13)
    assert operators(proto) == ["Einsum"]
