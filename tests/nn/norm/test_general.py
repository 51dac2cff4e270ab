"""MeanVarianceNorm and Normalization."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn


def test_mean_variance_and_normalization(rng):
    x = mn.tensor(rng.standard_normal((2, 6, 4, 5)), dtype=mn.float32)
    np.testing.assert_array_equal(nn.MeanVarianceNorm()(x).array, F.mean_variance_norm(x).array)
    assert list(nn.MeanVarianceNorm().state_dict()) == []
    layer = nn.Normalization([1, 3, 1, 1], axes=0b1100, num_groups=3)
    assert layer.weight.shape == layer.bias.shape == (1, 3, 1, 1)
    np.testing.assert_array_equal(layer(x).array, F.group_norm(x, 3).array)
    assert nn.Normalization(compute_dtype=mn.float64)(x).dtype == np.float32
    assert nn.Normalization().weight is None


def test_errors():
    with pytest.raises(TypeError, match=r"mean_variance_norm: axes is 3; expected a tuple"):
        nn.MeanVarianceNorm(3)(mn.randn(2, 4))
    assert nn.Normalization(axes=np.int64(2))(mn.randn(2, 4)).shape == (2, 4)
