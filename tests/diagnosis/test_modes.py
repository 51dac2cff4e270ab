"""A borrowed model comes back unchanged: modes, frozen layers, statistics, random numbers; also after an error."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm import nn, random
from minorm.diagnosis import modes


def test_everything_comes_back_after_an_error() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(), nn.BatchNorm1d(3)).train()
    model[2].freeze()
    state, numbers = {k: v.array.copy() for k, v in model.state_dict().items()}, random.get_state()
    with pytest.raises(KeyError), modes.borrowed(model):
        modes.reference(model)
        mn.rand(5)
        model[0].running_mean.fill_(9)
        raise KeyError
    assert [m.training for m in model.modules()] == [True] * 4
    assert [m.frozen for m in model.modules()] == [False, False, False, True]
    assert all((model.state_dict()[k].array == v).all() for k, v in state.items())
    assert random.get_state() == numbers
    assert mn.is_grad_enabled()


def test_the_reference_takes_statistics_of_the_batch_and_drops_nothing_out() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.9)).eval()
    model[0].freeze()
    x = 5 + 3 * mn.randn(64, 3)
    with modes.borrowed(model):
        modes.reference(model)
        y = model(x)
        modes.evaluation(model)
        assert (model(x) - x).abs().max().item() < 1e-4
    assert y.mean().abs().item() < 1e-5
    assert y.array.std() == pytest.approx(1, abs=1e-3)
    assert model[0].num_batches_tracked.item() == 0
