"""LRN and LpNormalization against onnxruntime at every opset, and the formula where the operator differs.

The reference evaluator of onnx is no oracle here: its LRN loops over N instead of C, its LpNormalization forgets abs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn


def data(*shape: int) -> mn.Tensor:
    return mn.tensor(np.random.default_rng(4).normal(0, 2, shape).astype(np.float32))


class Normalized(nn.Module):
    def __init__(self, p: float, dim: int) -> None:
        super().__init__()
        self.p, self.dim = p, dim

    def forward(self, x: mn.Tensor) -> mn.Tensor:
        return F.normalize(x, self.p, self.dim)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_lrn(proved: Any, operators: Any, size: int, opset: int) -> None:
    proto = proved(nn.LocalResponseNorm(size, alpha=0.3), data(2, 6, 3, 4), opset=opset, reference=False)
    assert ("LRN" in operators(proto)) == (size % 2 == 1)


@pytest.mark.parametrize("shape", [(3, 6), (3, 6, 4), (2, 6, 2, 3, 2)])
def test_any_rank(proved: Any, shape: tuple[int, ...]) -> None:
    proved(nn.LocalResponseNorm(4, alpha=0.3), data(*shape), opset=21)
    proved(nn.LocalResponseNorm(3, alpha=0.3), data(*shape), opset=21)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("dim", [1, -1])
def test_lp(proved: Any, operators: Any, p: float, dim: int, opset: int) -> None:
    proto = proved(Normalized(p, dim), data(3, 4, 5), opset=opset, must_run=False, reference=False)
    assert ("LpNormalization" in operators(proto)) == (p != 3)


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64])
def test_other_float_types(proved: Any, dtype: Any) -> None:
    proved(nn.LocalResponseNorm(3).to(dtype), data(2, 4, 3, 3).to(dtype), opset=21, must_run=False)
    proved(Normalized(2.0, 1), data(2, 4).to(dtype), opset=21, must_run=False)
