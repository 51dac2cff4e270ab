from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn


@pytest.fixture
def x(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.normal(size=(2, 3, 4)).astype(np.float32))


@pytest.fixture
def y(rng: np.random.Generator) -> mn.Tensor:
    return mn.tensor(rng.uniform(0.5, 2, (2, 3, 4)).astype(np.float32))


def test_two_operands(proved: Any, x: mn.Tensor, y: mn.Tensor, opset: int) -> None:
    proved(lambda x, y: (x + y, x - 1, 2 * x, x / y, y**1.5, 1 / y, x + y[:, :1], x @ y.mT), x, y, opset=opset)


def test_extremes_broadcast_at_every_opset(proved: Any, x: mn.Tensor, y: mn.Tensor, opset: int) -> None:
    proved(lambda x, y: (mn.maximum(x, y[:, :1]), mn.minimum(x, 0.3)), x, y, opset=opset)


def test_one_operand(proved: Any, y: mn.Tensor, opset: int) -> None:
    proved(
        lambda y: (-y, abs(y), y.exp(), y.log(), y.sqrt(), y.sin(), y.cos(), y.clip(0.7, 1), y.clip(max=1), y.clone()),
        y,
        opset=opset,
    )


def test_casts(proved: Any, x: mn.Tensor, opset: int) -> None:
    proved(lambda x: (x.double(), x.half(), x.long(), x.to(mn.bool), x.to(mn.int32) + 1), x, opset=opset)


def test_integers(proved: Any, opset: int) -> None:
    n = mn.tensor(np.arange(6).reshape(2, 3))
    proved(lambda n: (n + n, n * 2, n - 1, -n if opset >= 13 else n, n.sum(), n.float().mean()), n, opset=opset)


@pytest.mark.parametrize("dtype", [mn.float16, mn.float64, mn.bfloat16])
def test_other_float_types(proved: Any, x: mn.Tensor, dtype: Any) -> None:
    proved(lambda x: (x * 2 + x, x.mean(1), x.exp()), x.to(dtype), opset=20, must_run=False)


def test_a_scalar_that_is_the_batch_size_follows_the_batch(proved: Any, operators: Any, x: mn.Tensor) -> None:
    proto = proved(lambda x: x / x.shape[0] + x.shape[2], x)
    assert "Shape" in operators(proto)
