"""Inside the block a model evaluates; afterwards each module is in its own mode, also where something was raised."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm import nn
from minorm.nn.evaluating import evaluating


def test_modes_come_back_and_no_gradient_is_recorded() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    model[1].eval()
    with evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not model(mn.ones(1, 2)).requires_grad
    assert [module.training for module in model.modules()] == [True, True, False]
    with pytest.raises(ZeroDivisionError), evaluating(model):
        raise ZeroDivisionError
    assert [module.training for module in model.modules()] == [True, True, False]
