"""The dropout layer: on in training, off in evaluation and where frozen."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm import nn


def test_modes():
    layer, x = nn.Dropout(0.5), mn.ones(1000)
    assert (layer(x).array == 0).any()
    assert layer.eval()(x) is x
    layer.train()
    assert layer.freeze()(x) is x
    assert layer.train()(x) is x
    assert (layer.unfreeze()(x).array == 0).any()
    assert repr(layer) == "Dropout(p=0.5, inplace=False)"


def test_p_is_checked_when_the_layer_is_built():
    with pytest.raises(ValueError, match=r"Dropout: p is 2; expected a probability, 0 <= p <= 1"):
        nn.Dropout(2)
