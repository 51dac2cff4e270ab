"""Schedules follow the rate in force: beside each other, after a change by hand, through states; PyTorch's values."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

Make = Callable[[Any, Any], Any]  # of a package's optim, and an optimizer
CASES: dict[str, Make] = {
    "StepLR": lambda m, o: m.lr_scheduler.StepLR(o, 3, 0.5),
    "MultiStepLR": lambda m, o: m.lr_scheduler.MultiStepLR(o, [2, 5, 5, 9], 0.5),
    "MultiStepLR from 0": lambda m, o: m.lr_scheduler.MultiStepLR(o, [0, 4], 0.5),
    "ConstantLR": lambda m, o: m.lr_scheduler.ConstantLR(o, 0.25, 6),
    "LinearLR": lambda m, o: m.lr_scheduler.LinearLR(o, 0.1, 0.7, 9),
    "LinearLR to 0": lambda m, o: m.lr_scheduler.LinearLR(o, 1.0, 0.0, 9),
    "ExponentialLR": lambda m, o: m.lr_scheduler.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda m, o: m.lr_scheduler.CosineAnnealingLR(o, 40),
    "CosineAnnealingLR up and down": lambda m, o: m.lr_scheduler.CosineAnnealingLR(o, 7),
    "CosineAnnealingLR to eta_min": lambda m, o: m.lr_scheduler.CosineAnnealingLR(o, 8, 0.01),
    "PolynomialLR": lambda m, o: m.lr_scheduler.PolynomialLR(o, 12, 2.0),
    "MultiplicativeLR": lambda m, o: m.lr_scheduler.MultiplicativeLR(o, lambda t: 0.9 if t % 3 else 0.5),
    "LambdaLR": lambda m, o: m.lr_scheduler.LambdaLR(o, [lambda t: 0.9**t, lambda t: 1 / (t + 1)]),
    "WarmRestarts": lambda m, o: m.lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "CyclicLR": lambda m, o: m.lr_scheduler.CyclicLR(o, 0.01, 0.2, 4, 3),
    "OneCycleLR": lambda m, o: m.lr_scheduler.OneCycleLR(o, 0.5, 40),
    "SWALR": lambda m, o: m.swa_utils.SWALR(o, [0.05, 0.3], 8),
    "SWALR linear": lambda m, o: m.swa_utils.SWALR(o, [0.05, 0.3], 4, "linear"),
    "SWALR at once": lambda m, o: m.swa_utils.SWALR(o, [0.05, 0.3], 0),
}
ABSOLUTE = {"LambdaLR", "WarmRestarts", "CyclicLR", "OneCycleLR"}  # PyTorch's overwrite what others have set
FOLLOWING = sorted(CASES.keys() - ABSOLUTE)


def optimizers() -> tuple[Any, Any]:
    made = []
    for package, tensor in ((optim, mn.ones), (torch.optim, torch.ones)):
        parameters = [(nn if package is optim else torch.nn).Parameter(tensor(1)) for _ in range(2)]
        groups = [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.5}]
        made.append(package.SGD(groups, 0.1, momentum=0.9))
    return made[0], made[1]


def rates(optimizer: Any) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


def reloaded(makes: list[Make], optimizer: Any, schedules: list[Any], optimizer_first: bool) -> tuple[Any, list[Any]]:
    """A new optimizer with new schedules that have taken the states of the old ones."""
    state = copy.deepcopy(optimizer.state_dict())
    states = [json.loads(json.dumps(schedule.state_dict())) for schedule in schedules]
    new = optimizers()[0]
    made = [make(optim, new) for make in makes]
    if optimizer_first:
        new.load_state_dict(state)
    for schedule, part in zip(made, states, strict=True):
        schedule.load_state_dict(part)
    if not optimizer_first:
        new.load_state_dict(state)
    return new, made


def same_way(names: list[str], by_hand: dict[int, float], resume: tuple[int, ...] = (), steps: int = 30) -> None:
    """Compare both packages' rates over all steps; by_hand: the factor on the rates before a step."""
    mine, other = optimizers()
    makes = [CASES[name] for name in names]
    ours, theirs = [make(optim, mine) for make in makes], [make(torch.optim, other) for make in makes]
    for step in range(steps):
        for optimizer in (mine, other):
            for group in optimizer.param_groups:
                group["lr"] *= by_hand.get(step, 1.0)
        if step in resume:
            mine, ours = reloaded(makes, mine, ours, optimizer_first=step % 2 == 0)
        np.testing.assert_allclose(rates(mine), rates(other), rtol=1e-9, atol=1e-15, err_msg=f"{names}, step {step}")
        other.step()
        for schedule in (*ours, *theirs):
            schedule.step()


@pytest.mark.parametrize("name", CASES)
def test_alone(name: str) -> None:
    same_way([name], {})
    same_way([name], {}, resume=(1, 4, 8, 13))


@pytest.mark.parametrize("name", CASES)
def test_a_rate_changed_by_hand_goes_on_from_there(name: str) -> None:
    same_way([name], {3: 0.5})
    same_way([name], {4: 0.5, 9: 3.0}, resume=(4, 5, 12))
    same_way([name], {0: 0.1, 25: 2.0}, resume=(0, 26))


@pytest.mark.parametrize("name", FOLLOWING)
def test_two_at_once(name: str) -> None:
    for other in FOLLOWING[FOLLOWING.index(name) :]:
        same_way([name, other], {5: 0.5}, resume=(3, 6), steps=20)
        same_way([other, name], {}, steps=12)


@pytest.mark.parametrize("name", ["StepLR", "CosineAnnealingLR to eta_min", "SWALR"])
def test_beside_one_that_overwrites(name: str) -> None:
    for absolute in sorted(ABSOLUTE):
        same_way([absolute, name], {5: 0.5}, resume=(3, 6), steps=12)


def test_two_multiply() -> None:
    """lr = first * 0.9^t * 0.1^(milestones passed), the pattern of PyTorch's documentation."""
    optimizer = optim.SGD([nn.Parameter(mn.zeros(1))], lr=0.1)
    a, b = (optim.lr_scheduler.ExponentialLR(optimizer, 0.9), optim.lr_scheduler.MultiStepLR(optimizer, [5, 8], 0.1))
    for t in range(12):
        np.testing.assert_allclose(rates(optimizer), [0.1 * 0.9**t * 0.1 ** ((t >= 5) + (t >= 8))], rtol=1e-12)
        a.step()
        b.step()


def test_one_that_takes_over_begins_with_the_rate_in_force() -> None:
    """PyTorch's test_swalr_linear_anneal_after_multiplicative: (1 - a) * 0.9^4 + a * 0.05 after four steps."""
    optimizer = optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0)
    first = optim.lr_scheduler.MultiplicativeLR(optimizer, lambda t: 0.9)
    then = optim.swa_utils.SWALR(optimizer, 0.05, 4, "linear")
    for t in range(10):
        a = min(1.0, max(0, t - 4) / 4)
        np.testing.assert_allclose(rates(optimizer), [(1 - a) * 0.9 ** min(t, 4) + a * 0.05], rtol=1e-12)
        (first if t < 4 else then).step()


@pytest.mark.parametrize("name", CASES)
def test_one_alone_has_the_bits_of_one_resumed(name: str) -> None:
    mine = optimizers()[0]
    ours = [CASES[name](optim, mine)]
    other, theirs = mine, ours
    for step in range(20):
        if step in (2, 9):
            other, theirs = reloaded([CASES[name]], mine, ours, optimizer_first=step == 2)
        assert rates(mine) == rates(other)
        for schedule in {*ours, *theirs}:
            schedule.step()


@pytest.mark.parametrize("name", [name for name in FOLLOWING if not name.startswith("SWALR")])
def test_going_on_by_last_epoch_leaves_the_rates_in_force(name: str) -> None:
    """As PyTorch's; there StepLR and others change them once more where the t is a milestone."""
    optimizer = optimizers()[0]
    schedule = CASES[name](optim, optimizer)
    for _ in range(6):
        schedule.step()
    before, kept = rates(optimizer), schedule.state_dict()
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    package = type("package", (), {"lr_scheduler": type("late", (), {})})
    for kind in ("StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "CosineAnnealingLR",
                 "PolynomialLR", "MultiplicativeLR"):  # fmt: skip
        late = getattr(optim.lr_scheduler, kind)
        setattr(package.lr_scheduler, kind, staticmethod(lambda *a, late=late: late(*a, last_epoch=5)))
    again = CASES[name](package, optimizer)
    assert again.last_epoch == kept["last_epoch"] == 6
    np.testing.assert_allclose(rates(optimizer), [rate / 2 for rate in before], rtol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_a_state_of_before_start_lrs_is_read(name: str) -> None:
    mine = optimizers()[0]
    schedule = CASES[name](optim, mine)
    for _ in range(5):
        schedule.step()
    state = {key: value for key, value in schedule.state_dict().items() if key not in ("start_lrs", "last_lrs")}
    other = optimizers()[0]
    CASES[name](optim, other).load_state_dict(state)
    np.testing.assert_allclose(rates(other), rates(mine), rtol=1e-12)


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    mine = optimizers()[0]
    schedule = CASES["ExponentialLR"](optim, mine)
    schedule.step()
    before = copy.deepcopy((schedule.state_dict(), rates(mine)))
    for key, value in (("start_lrs", [0.1]), ("last_lrs", [0.1, "x"]), ("last_lrs", None), ("last_epoch", -1)):
        with pytest.raises(ValueError, match=f"ExponentialLR.load_state_dict: .*{key}"):
            schedule.load_state_dict({**schedule.state_dict(), key: value})
        assert (schedule.state_dict(), rates(mine)) == before


def test_a_step_that_fails_changes_nothing() -> None:
    mine = optimizers()[0]
    parts = [CASES["ExponentialLR"](optim, mine), optim.lr_scheduler.OneCycleLR(mine, 0.5, 3)]
    schedule = optim.lr_scheduler.ChainedScheduler(parts)
    for _ in range(3):
        schedule.step()
    before = copy.deepcopy((schedule.state_dict(), rates(mine), mine.param_groups[0]["momentum"]))
    with pytest.raises(ValueError, match="OneCycleLR: step\\(\\) was called 4 times"):
        schedule.step()
    assert (schedule.state_dict(), rates(mine), mine.param_groups[0]["momentum"]) == before


@pytest.mark.parametrize("name", sorted(CASES.keys() - {name for name in CASES if name.startswith("SWALR")}))
def test_a_step_to_an_epoch(name: str) -> None:
    """By the formula, forwards and backwards, and on from there one by one."""
    mine, theirs = optimizers()
    ours, other = CASES[name](optim, mine), CASES[name](torch.optim, theirs)
    for epoch in (None, 5, None, 2, 7, 7, None):
        given = () if epoch is None else (epoch,)
        ours.step(*given)
        other.step(*given)
        np.testing.assert_allclose(rates(mine), rates(theirs), rtol=1e-9, err_msg=f"{name} {epoch}")
        assert ours.last_epoch == other.last_epoch
    assert rates(mine) == ours.get_last_lr()


def test_a_step_to_an_epoch_of_a_users_schedule() -> None:
    """get_lr is asked with that last_epoch, as in PyTorch."""
    found = []
    for package, optimizer in zip((optim, torch.optim), optimizers(), strict=True):

        class Halved(package.lr_scheduler.LRScheduler):  # type: ignore[name-defined,misc]
            def get_lr(self) -> list[float]:
                return [rate / 2**self.last_epoch for rate in self.base_lrs]

        scheduler = Halved(optimizer)
        for epoch in (3, None, 1):
            scheduler.step(*() if epoch is None else (epoch,))
            found.append(rates(optimizer))
    assert found[:3] == found[3:] == [[0.0125, 0.0625], [0.00625, 0.03125], [0.05, 0.25]]


def test_a_step_to_an_epoch_that_is_refused() -> None:
    mine, theirs = optimizers()
    for package, optimizer in ((optim, mine), (torch.optim, theirs)):
        schedules = package.lr_scheduler
        parts = [schedules.ConstantLR(optimizer, 0.5), schedules.ExponentialLR(optimizer, 0.1)]
        for combined in (schedules.SequentialLR(optimizer, parts, [2]), schedules.ChainedScheduler(parts)):
            before = rates(optimizer)
            with pytest.raises(TypeError):
                combined.step(3)
            assert rates(optimizer) == before
    scheduler = optim.lr_scheduler.StepLR(mine, 2)
    for epoch in (-1, "3"):
        with pytest.raises(ValueError, match=f"StepLR.step: epoch is {epoch!r}; expected a number of at least 0"):
            scheduler.step(epoch)  # type: ignore[arg-type]
    assert scheduler.last_epoch == 0
