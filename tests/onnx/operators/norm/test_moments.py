"""Mean and variance that a node gives out, at offsets that a mean of float32 does not survive."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm.testing import gradcheck

pytest.importorskip("onnx")

from minorm.onnx.operators.norm.moments import moments


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6, 1e7])
def test_the_rounding_of_the_mean_is_not_left_in_the_variance(offset: float) -> None:
    x = (np.random.default_rng(0).normal(size=(4, 3, 8, 8)) + offset).astype(np.float32)
    mean, var = moments(mn.Tensor(x), (0, 2, 3))
    wide = x.astype(np.float64)
    np.testing.assert_allclose(var.array, wide.var((0, 2, 3), keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(mean.array, wide.mean((0, 2, 3), keepdims=True), rtol=1e-7, atol=1e-7)


def test_its_gradient() -> None:
    gradcheck(lambda x: sum(moments(x, (1,)), start=mn.zeros(1, dtype=mn.float64)), mn.randn(3, 4, dtype=mn.float64))
