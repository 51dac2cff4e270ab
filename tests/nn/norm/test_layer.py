"""LayerNorm and RMSNorm: their start, errors."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm import nn


def test_reset_parameters():
    layer = nn.LayerNorm(3)
    layer.weight.array[...] = 7
    layer.reset_parameters()
    assert layer.weight.array.tolist() == [1, 1, 1]


def test_errors():
    with pytest.raises(ValueError, match=r"layer_norm: normalized_shape is \(3,\), x ends in \(4,\)"):
        nn.LayerNorm(3)(mn.randn(2, 4))
    with pytest.raises(TypeError, match=r"LayerNorm: normalized_shape\[1\] is 2\.5; expected an int"):
        nn.LayerNorm((3, 2.5))
    with pytest.raises(ValueError, match="RMSNorm: normalized_shape is empty"):
        nn.RMSNorm(())
