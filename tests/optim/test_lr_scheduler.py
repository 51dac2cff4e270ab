"""Schedules: PyTorch's values over whole schedules, state that comes back, and argument checks."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import minorm as mn
from minorm import optim
from minorm.optim import lr_scheduler

SCHEDULES = [
    ("StepLR", {"step_size": 3}),
    ("StepLR", {"step_size": 1, "gamma": 0.9}),
    ("MultiStepLR", {"milestones": [2, 5, 5, 9], "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [0, 4]}),
    ("ConstantLR", {}),
    ("ConstantLR", {"factor": 0.5, "total_iters": 7}),
    ("LinearLR", {}),
    ("LinearLR", {"start_factor": 0.1, "end_factor": 0.7, "total_iters": 9}),
    ("ExponentialLR", {"gamma": 0.8}),
    ("CosineAnnealingLR", {"T_max": 20}),
    ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.01}),  # and beyond T_max, up again
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 21}),
    ("OneCycleLR", {"max_lr": [0.5, 0.2], "epochs": 3, "steps_per_epoch": 7, "pct_start": 0.5}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 25, "three_phase": True, "anneal_strategy": "linear"}),
    ("OneCycleLR", {"max_lr": 1.0, "total_steps": 40, "cycle_momentum": False, "div_factor": 3.0}),
]
STEPS = 20


def two_groups(optimizer, tensor, **options):
    return optimizer([{"params": [tensor([1.0])], "lr": 0.1}, {"params": [tensor([1.0])], "lr": 0.03}], **options)


def ours(kind="SGD"):
    options = {"lr": 0.1, "momentum": 0.9} if kind == "SGD" else {"lr": 0.1}
    return two_groups(getattr(optim, kind), lambda v: mn.tensor(v, requires_grad=True), **options)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_values_are_pytorchs(name, options, kind):
    torch = pytest.importorskip("torch")
    a = ours(kind)
    settings = {"lr": 0.1, "momentum": 0.9} if kind == "SGD" else {"lr": 0.1}
    b = two_groups(getattr(torch.optim, kind), lambda v: torch.tensor(v, requires_grad=True), **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x, y = getattr(lr_scheduler, name)(a, **options), getattr(torch.optim.lr_scheduler, name)(b, **options)
        for step in range(STEPS + 1):
            np.testing.assert_allclose(x.get_last_lr(), y.get_last_lr(), rtol=1e-11, atol=1e-15, err_msg=f"{step}")
            for key in ("momentum", "betas"):
                for group, other in zip(a.param_groups, b.param_groups, strict=True):
                    if key in group:
                        np.testing.assert_allclose(group[key], other[key], rtol=1e-11)
            if step < STEPS:
                x.step()
                b.step()
                y.step()


@pytest.mark.parametrize(("name", "options"), SCHEDULES)
def test_state_comes_back(name, options):
    a, b = ours(), ours()
    first, second = (getattr(lr_scheduler, name)(o, **options) for o in (a, b))
    for _ in range(8):
        first.step()
    b.load_state_dict(a.state_dict())
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for _ in range(8):
        assert first.get_last_lr() == second.get_last_lr()
        assert [g["momentum"] for g in a.param_groups] == [g["momentum"] for g in b.param_groups]
        first.step()
        second.step()


def test_a_schedule_for_every_batch_may_step_after_the_last():
    scheduler = lr_scheduler.OneCycleLR(ours(), max_lr=0.5, total_steps=10)
    for _ in range(10):
        scheduler.step()
    with pytest.raises(ValueError, match="OneCycleLR: step\\(\\) was called 11 times, but the cycle has 10 steps"):
        scheduler.step()


def test_starting_in_the_middle():
    optimizer = ours()
    scheduler = lr_scheduler.StepLR(optimizer, 2)
    for _ in range(5):
        scheduler.step()
    resumed = lr_scheduler.StepLR(optimizer, 2, last_epoch=4)
    np.testing.assert_allclose(resumed.get_last_lr(), scheduler.get_last_lr())
    with pytest.raises(ValueError, match="last_epoch=3, but group 0 has no 'initial_lr'"):
        lr_scheduler.StepLR(ours(), 2, last_epoch=3)


def test_wrong_arguments():
    o = ours()
    L = lr_scheduler
    cases = [
        (lambda: L.StepLR(o.param_groups, 3), TypeError, "StepLR: optimizer is a list; expected an Optimizer"),
        (lambda: L.StepLR(o, 0), ValueError, "StepLR: step_size=0"),
        (lambda: L.CosineAnnealingLR(o, 0), ValueError, "CosineAnnealingLR: T_max=0"),
        (lambda: L.ConstantLR(o, factor=2), ValueError, "ConstantLR: factor=2"),
        (lambda: L.LinearLR(o, start_factor=0), ValueError, "LinearLR: start_factor=0"),
        (lambda: L.LinearLR(o, total_iters=0), ValueError, "LinearLR: total_iters=0"),
        (lambda: L.OneCycleLR(o, 1.0), ValueError, "expected total_steps, or both epochs and steps_per_epoch"),
        (lambda: L.OneCycleLR(o, 1.0, total_steps=0), ValueError, "0 steps in total"),
        (lambda: L.OneCycleLR(o, 1.0, total_steps=5, pct_start=2), ValueError, "pct_start=2"),
        (lambda: L.OneCycleLR(o, 1.0, total_steps=5, anneal_strategy="exp"), ValueError, "anneal_strategy='exp'"),
        (lambda: L.OneCycleLR(o, [1.0], total_steps=5), ValueError, "max_lr has 1 values; expected one for each of"),
        (lambda: L.StepLR(o, 2).load_state_dict({"gamma": 1}), ValueError, "StepLR.load_state_dict: the state has"),
    ]
    for make, error, message in cases:
        with pytest.raises(error, match=message):
            make()


def test_a_schedule_shows_its_settings_and_rates() -> None:
    optimizer = optim.SGD([mn.ones(2, requires_grad=True)], lr=0.1, momentum=0.9)
    step = optim.lr_scheduler.StepLR(optimizer, 3)
    assert repr(step) == "StepLR(step_size=3, gamma=0.1, last_epoch=0; lr=[0.1])"
    both = optim.lr_scheduler.SequentialLR(optimizer, [step, optim.lr_scheduler.ConstantLR(optimizer)], [4])
    assert repr(both).startswith("SequentialLR(StepLR(step_size=3, gamma=0.1, ")
    assert "lr=[0.004])" in repr(optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 10))
