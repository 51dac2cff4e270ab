"""Layers that hold the arguments of a function."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def test_a_subclass_may_keep_attributes_under_any_name():
    class Weighted(nn.CrossEntropyLoss):
        def __init__(self, options):
            super().__init__()
            self.options, self.shown, self.as_buffers = options, True, None

    loss, x = Weighted({"a": 1}), mn.tensor([[2.0, 0.0]])
    assert loss(x, mn.tensor([0])).item() == pytest.approx(np.log1p(np.exp(-2.0)), rel=1e-6)
    assert len(list(loss.buffers())) == 0
    assert repr(loss) == "Weighted()"


def test_buffers_move_and_are_saved():
    loss = nn.BCEWithLogitsLoss(mn.tensor([1.0, 3.0]), pos_weight=mn.tensor([2.0, 1.0]))
    assert list(loss.state_dict()) == ["weight", "pos_weight"]
    assert loss.double().weight.dtype == mn.float64
    x, y = np.array([0.5, -1.0]), np.array([1.0, 0.0])
    p = 1 / (1 + np.exp(-x))
    expected = -(np.array([1, 3]) * (np.array([2, 1]) * y * np.log(p) + (1 - y) * np.log(1 - p))).mean()
    assert loss(mn.tensor(x), mn.tensor(y)).item() == pytest.approx(expected, rel=1e-12)


def test_an_option_that_is_a_module_is_a_child():
    class Distance(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(mn.ones(1))

        def forward(self, x, y):
            return ((x - y) * self.scale).abs().sum(-1)

    loss = nn.TripletMarginWithDistanceLoss(distance_function=Distance())
    assert [name for name, _ in loss.named_parameters()] == ["distance_function.scale"]


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.ELU(0.5), nn.Softplus(2.0), nn.Softmax(1), nn.MaxPool2d(2)])
def test_x_may_be_named_and_a_copy_does_the_same(layer):
    x = mn.randn(2, 3, 4, 4)
    assert layer(x=x).tolist() == layer(x).tolist() == pickle.loads(pickle.dumps(layer))(x).tolist()
