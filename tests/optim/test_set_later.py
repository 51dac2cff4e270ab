"""Methods that PyTorch's programs override in a schedule or an optimizer take effect, as do settings that change
later."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim
from minorm.optim import lr_scheduler


def rates(library: Any, make: Any, steps: int = 6) -> list[list[float]]:
    """The rates of two groups at each step of the schedule that `make` gives."""
    groups = [{"params": [library.nn.Parameter(library.zeros(1))]} for _ in range(2)]
    groups[1]["lr"] = 0.5
    optimizer = library.optim.SGD(groups, lr=1.0, momentum=0.9)
    schedule = make(library.optim.lr_scheduler, optimizer)
    found = [[group["lr"] for group in optimizer.param_groups]]
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        found.append([group["lr"] for group in optimizer.param_groups])
    return found


def rising(base: Any) -> Any:
    class Rising(base):  # type: ignore[misc]
        def get_lr(self) -> list[float]:
            return [0.1 * (self.last_epoch + 1) for _ in self.base_lrs]

    return Rising


def halving(base: Any) -> Any:
    class Halving(base):  # type: ignore[misc]
        def get_lr(self) -> list[float]:
            share = 0.5 if self.last_epoch else 1.0
            return [group["lr"] * share for group in self.optimizer.param_groups]

    return Halving


def lowered(base: Any) -> Any:
    class Lowered(base):  # type: ignore[misc]
        def get_lr(self) -> list[float]:
            return [rate * 0.9 for rate in super().get_lr()]

    return Lowered


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda s, o: rising(s.LRScheduler)(o),
        lambda s, o: rising(s.ExponentialLR)(o, 0.9),
        lambda s, o: halving(s.LRScheduler)(o),
        lambda s, o: lowered(s.StepLR)(o, 2),
        lambda s, o: lowered(s.CosineAnnealingLR)(o, 5),
        lambda s, o: lowered(s.LambdaLR)(o, lambda t: 1 / (1 + t)),
        lambda s, o: s.ChainedScheduler([halving(s.LRScheduler)(o), s.StepLR(o, 2)]),
        lambda s, o: s.ChainedScheduler([s.StepLR(o, 2), rising(s.LRScheduler)(o)]),
        lambda s, o: s.SequentialLR(o, [s.ConstantLR(o, 0.1, 2), rising(s.LRScheduler)(o)], [3]),
        lambda s, o: s.SequentialLR(o, [s.ExponentialLR(o, 0.5), halving(s.LRScheduler)(o)], [3]),
    ],
)
def test_get_lr_may_be_overridden(make: Any) -> None:
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(rates(mn, make), rates(torch, make), rtol=1e-6)


def test_a_get_lr_of_another_length_is_an_error_and_changes_nothing() -> None:
    class Wrong(lr_scheduler.ExponentialLR):
        def get_lr(self) -> list[float]:
            return [0.1] * (1 if self.last_epoch == 0 else 2)

    optimizer = optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0)
    schedule = Wrong(optimizer, 0.9)
    with pytest.raises(ValueError, match=r"Wrong\.get_lr: the result has 2 rates; expected 1"):
        schedule.step()
    assert (optimizer.param_groups[0]["lr"], schedule.last_epoch) == (0.1, 0)


def test_a_step_and_a_state_of_ones_own() -> None:
    class Twice(optim.SGD):
        def step(self, closure: Any = None) -> Any:
            super().step()
            return super().step(closure)

    w = nn.Parameter(mn.ones(1))
    w.grad = mn.ones(1)
    scaler = mn.amp.GradScaler("cpu", init_scale=1.0)
    Twice([w], lr=0.25).step()
    scaler.step(Twice([w], lr=0.125))
    assert w.item() == 1 - 2 * 0.25 - 2 * 0.125


# Settings

SCHEDULES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "StepLR": ({"step_size": 2}, {"step_size": 3, "gamma": 0.5}),
    "MultiStepLR": ({"milestones": [2]}, {"milestones": [4, 1], "gamma": 0.5}),
    "ConstantLR": ({}, {"factor": 0.5, "total_iters": 2}),
    "LinearLR": ({}, {"end_factor": 0.5, "total_iters": 2}),
    "ExponentialLR": ({"gamma": 0.5}, {"gamma": 0.25}),
    "CosineAnnealingLR": ({"T_max": 4}, {"T_max": 5, "eta_min": 0.5}),
    "PolynomialLR": ({}, {"total_iters": 3, "power": 2.0}),
    "CosineAnnealingWarmRestarts": ({"T_0": 4}, {"T_0": 2, "T_mult": 2, "eta_min": 0.5}),
    "OneCycleLR": (
        {"max_lr": 1.0, "total_steps": 8},
        {"total_steps": 20, "anneal_strategy": "linear", "cycle_momentum": False, "base_momentum": 0.5,
         "max_momentum": 0.6, "div_factor": 2.0, "final_div_factor": 2.0},
    ),
    "CyclicLR": (
        {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 2},
        {"mode": "triangular2", "gamma": 0.5, "cycle_momentum": False, "base_momentum": 0.5, "max_momentum": 0.6,
         "scale_fn": lambda x: 1 / x, "scale_mode": "iterations"},
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "setting"), [(name, setting) for name, (_, other) in SCHEDULES.items() for setting in other]
)
def test_a_setting_of_a_schedule_counts_from_the_next_step(name: str, setting: str) -> None:
    """Set before the first step, the rates are those of a schedule that was made so, from that step on."""
    made, other = SCHEDULES[name]
    if name == "CyclicLR" and setting in ("gamma", "scale_mode"):
        made = {**made, "mode": "exp_range"} if setting == "gamma" else {**made, "scale_fn": lambda x: 1 / (1 + x)}

    def course(later: bool) -> Any:
        optimizer = optim.SGD([nn.Parameter(mn.zeros(1))], lr=1.0, momentum=0.9)
        kind = getattr(lr_scheduler, name)
        schedule = kind(optimizer, **(made if later else {**made, setting: other[setting]}))
        if later:
            setattr(schedule, setting, other[setting])
        found = []
        for _ in range(5):
            schedule.step()
            group = optimizer.param_groups[0]
            found.append((group["lr"], group["momentum"] if setting != "cycle_momentum" else 0))
        return found

    try:
        found = course(later=True)
    except ValueError as error:
        if f"{name}.{setting} = " not in str(error):
            raise
        return
    if name in ("ConstantLR", "LinearLR", "CosineAnnealingLR"):  # they go on from the rate in force
        torch = pytest.importorskip("torch")

        def make(schedules: Any, optimizer: Any) -> Any:
            schedule = getattr(schedules, name)(optimizer, **made)
            setattr(schedule, setting, other[setting])
            return schedule

        np.testing.assert_allclose(rates(mn, make), rates(torch, make), rtol=1e-6)
        return
    np.testing.assert_allclose(found, course(later=False), rtol=1e-9)


OPTIMIZERS = [name for name in dir(optim) if inspect.isclass(kind := getattr(optim, name))
              and issubclass(kind, optim.Optimizer) and kind is not optim.Optimizer]  # fmt: skip
OTHER: dict[str, Any] = dict.fromkeys(("momentum_decay", "alpha", "rho"), 0.5) | {
    "betas": (0.5, 0.75),
    "ns_coefficients": (2.0, -1.5, 0.5),
    "ns_steps": 3,
    "adjust_lr_fn": "match_rms_adamw",
}


def stepped(optimizer: Any) -> Any:
    parameter = optimizer.param_groups[0]["params"][0]
    for i in range(3):
        parameter.grad = mn.tensor([1.0, -2.0 + i, 0.5]).reshape(parameter.shape)
        optimizer.step()
    return parameter.numpy().copy()


@pytest.mark.parametrize("name", sorted({*OPTIMIZERS} - {"LBFGS"}))  # test_lbfgs.py: it needs a closure
def test_a_setting_of_a_group_counts_from_the_next_step(name: str) -> None:
    kind = getattr(optim, name)
    shape = (3, 1) if name == "Muon" else (3,)
    base = kind([nn.Parameter(mn.ones(shape))]).defaults
    for setting, usual in base.items():
        momentum = {"momentum": 0.5} if name == "SGD" and setting in ("nesterov", "dampening") else {}
        other = OTHER.get(setting) or (not usual if isinstance(usual, bool) else (usual or 0.25) * 0.5)
        later = kind([nn.Parameter(mn.ones(shape))], **momentum)
        first = kind([nn.Parameter(mn.ones(shape))], **momentum, **{setting: other})
        later.param_groups[0][setting] = other
        np.testing.assert_array_equal(stepped(later), stepped(first), err_msg=f"{name} {setting}")
        with pytest.raises(AttributeError, match=f"{name}.{setting} = .*group\\['{setting}'\\]"):
            setattr(later, setting, other)


def test_a_users_optimizer_keeps_its_own_attributes() -> None:
    class Own(optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})
            self.lr = lr

    assert Own([nn.Parameter(mn.zeros(1))], 0.5).lr == 0.5


def test_an_optimizer_as_pytorchs_programs_write_one() -> None:
    """SGD with momentum, as a `step` that begins its state itself; saved, and loaded by another one."""

    class Heavy(optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.25) -> None:
            super().__init__(params, {"lr": lr})

        def step(self, closure: Any = None) -> Any:
            with mn.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        state = self.state[p]
                        if not state:
                            state["buffer"] = mn.zeros_like(p)
                        state["buffer"].mul_(0.5).add_(p.grad)
                        p.add_(state["buffer"], alpha=-group["lr"])

    w = nn.Parameter(mn.ones(2))
    optimizer, other = Heavy([w]), Heavy([w])
    expected, buffer = np.ones(2), np.zeros(2)
    for step in range(3):
        w.grad = w.detach() * 2
        if step == 2:
            other.load_state_dict(optimizer.state_dict())
        (optimizer if step < 2 else other).step()
        buffer = 0.5 * buffer + 2 * expected
        expected = expected - 0.25 * buffer
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-6)
