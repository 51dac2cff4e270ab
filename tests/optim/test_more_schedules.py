"""The schedules of more_schedules.py beside PyTorch's, step by step, and through their states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim

torch = pytest.importorskip("torch")

CASES: dict[str, Callable[[Any, Any], Any]] = {  # of the module lr_scheduler and an optimizer
    "LambdaLR": lambda s, o: s.LambdaLR(o, [lambda t: 0.9**t, lambda t: 1 / (t + 1)]),
    "MultiplicativeLR": lambda s, o: s.MultiplicativeLR(o, lambda t: 0.9 if t % 3 else 0.5),
    "PolynomialLR": lambda s, o: s.PolynomialLR(o, 12, 2.0),
    "CosineAnnealingWarmRestarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "warm restarts of one length": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4),
    "CyclicLR": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 4, 3),
    "CyclicLR triangular2": lambda s, o: s.CyclicLR(o, [0.01, 0.02], 0.2, 3, mode="triangular2"),
    "CyclicLR exp_range": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "CyclicLR scale_fn": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, scale_fn=lambda x: 1 / x, cycle_momentum=False),
    "ChainedScheduler": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.9)]),
    "SequentialLR": lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.9)], [6]),
}


def optimizers() -> tuple[Any, Any]:
    groups = [({"params": [nn.Parameter(mn.ones(1))]}, {"params": [nn.Parameter(mn.ones(1))], "lr": 0.5})]
    theirs = [
        {"params": [torch.nn.Parameter(torch.ones(1))]},
        {"params": [torch.nn.Parameter(torch.ones(1))], "lr": 0.5},
    ]
    return optim.SGD(list(groups[0]), 0.1, momentum=0.9), torch.optim.SGD(theirs, 0.1, momentum=0.9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_twins(name: str) -> None:
    mine, other = optimizers()
    ours, theirs = CASES[name](optim.lr_scheduler, mine), CASES[name](torch.optim.lr_scheduler, other)
    for step in range(20):
        np.testing.assert_allclose(ours.get_last_lr(), [g["lr"] for g in other.param_groups], rtol=1e-12, atol=1e-15)
        momenta = [[g["momentum"] for g in o.param_groups] for o in (mine, other)]
        np.testing.assert_allclose(*momenta, rtol=1e-12)
        if step == 8:  # through its state into another one
            state, settings = ours.state_dict(), mine.state_dict()
            mine = optimizers()[0]
            ours = CASES[name](optim.lr_scheduler, mine)
            mine.load_state_dict(settings)
            ours.load_state_dict(state)
        ours.step()
        theirs.step()
    assert "lr=" in repr(ours)


@pytest.mark.parametrize(
    "settings", [{}, {"mode": "max", "threshold_mode": "abs", "cooldown": 2}, {"factor": 0.5, "min_lr": [0.01, 0.2]}]
)
def test_plateau(settings: dict[str, Any], rng: np.random.Generator) -> None:
    mine, other = optimizers()
    ours = optim.lr_scheduler.ReduceLROnPlateau(mine, patience=2, **settings)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(other, patience=2, **settings)
    for loss in np.round(rng.random(40), 1):
        ours.step(mn.tensor(loss))
        theirs.step(loss)
        assert ours.get_last_lr() == [g["lr"] for g in other.param_groups]


def test_mistakes() -> None:
    optimizer = optimizers()[0]
    schedules = optim.lr_scheduler
    for make, message in (
        (lambda: schedules.LambdaLR(optimizer, [len]), "LambdaLR: lr_lambda has 1 functions"),
        (lambda: schedules.CyclicLR(optimizer, 0.1, 1.0, mode="square"), "CyclicLR: mode='square'"),
        (lambda: schedules.ChainedScheduler([]), "ChainedScheduler: schedulers is empty"),
        (
            lambda: schedules.SequentialLR(optimizer, [schedules.LinearLR(optimizer)], [1]),
            "1 schedulers and 1 milestones",
        ),
        (lambda: schedules.ReduceLROnPlateau(optimizer, factor=2), "ReduceLROnPlateau: factor=2"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
