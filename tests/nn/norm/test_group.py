"""GroupNorm: one number a group, errors."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn


def test_one_number_a_group(rng):
    layer = nn.GroupNorm(3, 6, per_group=True)
    assert layer.weight.shape == layer.bias.shape == (3,)
    layer.weight.array[...] = [1, 2, 3]
    x = mn.tensor(rng.standard_normal((2, 6, 4)), dtype=mn.float32)
    np.testing.assert_allclose(
        layer(x).array, F.group_norm(x, 3, mn.tensor([1.0, 1, 2, 2, 3, 3])).array, rtol=1e-6, atol=1e-6
    )
    assert repr(layer) == "GroupNorm(3, 6, eps=1e-05, affine=True, per_group=True)"


def test_errors():
    with pytest.raises(ValueError, match="num_groups=4 must divide num_channels=6"):
        nn.GroupNorm(4, 6)
    with pytest.raises(ValueError, match=r"x has shape \(2, 5\), the layer num_channels=6"):
        nn.GroupNorm(3, 6)(mn.randn(2, 5))
