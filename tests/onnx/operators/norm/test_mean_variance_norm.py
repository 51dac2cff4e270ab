from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

X = mn.tensor(np.random.default_rng(3).normal(1, 2, (2, 4, 3, 5)).astype(np.float32))


@pytest.mark.parametrize("axes", [(0, 2, 3), (2, 3), (-1,), (0, 1, 2, 3)])
def test_any_axes(proved: Any, operators: Any, axes: tuple[int, ...], opset: int) -> None:
    proto = proved(nn.MeanVarianceNorm(axes), X, opset=opset, batches=(3, 5))
    assert (operators(proto) == ["MeanVarianceNormalization"]) == (opset >= 9)


def test_another_eps_takes_the_formula(proved: Any, operators: Any) -> None:
    proto = proved(nn.MeanVarianceNorm((0, 2, 3), eps=1e-3), X)
    assert "MeanVarianceNormalization" not in operators(proto)


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
def test_other_float_types_take_the_formula(proved: Any, operators: Any, dtype: Any) -> None:
    proto = proved(nn.MeanVarianceNorm(), X.to(dtype), must_run=False)
    assert "MeanVarianceNormalization" not in operators(proto)


def test_computed_in_float64(proved: Any, operators: Any) -> None:
    proto = proved(nn.MeanVarianceNorm(compute_dtype=mn.float64), X + 100, tolerance=1e-7)
    assert "MeanVarianceNormalization" not in operators(proto)


def test_single_elements_give_zero_not_nan(proved: Any, operators: Any) -> None:
    proto = proved(nn.MeanVarianceNorm((1,)), X[:, :1])
    assert "MeanVarianceNormalization" not in operators(proto)
