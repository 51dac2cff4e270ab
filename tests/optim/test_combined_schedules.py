"""SequentialLR and ChainedScheduler, each within the other: products of formulas, PyTorch's values, states."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim

S = optim.lr_scheduler
Factor = Callable[[int], float]
PARTS: dict[str, tuple[Callable[[Any], Any], Factor]] = {  # the schedule, and the factor of its first rate at t
    "exponential": (lambda o: S.ExponentialLR(o, 0.9), lambda t: 0.9**t),
    "step": (lambda o: S.StepLR(o, 2, 0.5), lambda t: 0.5 ** (t // 2)),
    "milestones": (lambda o: S.MultiStepLR(o, [3, 3, 8], 0.3), lambda t: 0.3 ** (2 * (t >= 3) + (t >= 8))),
    "constant": (lambda o: S.ConstantLR(o, 0.25, 4), lambda t: 0.25 if t < 4 else 1),
    "linear": (lambda o: S.LinearLR(o, 0.1, 0.8, 5), lambda t: 0.1 + 0.7 * min(t, 5) / 5),
    "cosine": (lambda o: S.CosineAnnealingLR(o, 4), lambda t: (1 + math.cos(math.pi * t / 4)) / 2),
    "polynomial": (lambda o: S.PolynomialLR(o, 12, 2.0), lambda t: max(0, 1 - t / 12) ** 2),
    "lambda": (lambda o: S.LambdaLR(o, lambda t: 1 / (1 + t)), lambda t: 1 / (1 + t)),
    "restarts": (
        lambda o: S.CosineAnnealingWarmRestarts(o, 3),
        lambda t: (1 + math.cos(math.pi * (t % 3) / 3)) / 2,
    ),
    "multiplicative": (
        lambda o: S.MultiplicativeLR(o, lambda t: 0.9 if t % 3 else 0.5),
        lambda t: math.prod(0.9 if k % 3 else 0.5 for k in range(1, t + 1)),
    ),
}
NAMES = sorted(PARTS)


def optimizer() -> Any:
    groups = [{"params": [nn.Parameter(mn.ones(1))]}, {"params": [nn.Parameter(mn.ones(1))], "lr": 0.5}]
    return optim.SGD(groups, lr=0.1)


def goes(make: Callable[[Any], Any], factor: Factor, steps: int = 14, by_hand: dict[int, float] | None = None) -> None:
    """lr = first rate * factor(t) * what was multiplied by hand; every third step in a resumed run."""
    o, changed = optimizer(), 1.0
    schedule = make(o)
    for t in range(steps):
        change = (by_hand or {}).get(t, 1.0)
        changed *= change
        for group in o.param_groups:
            group["lr"] *= change
        expected = [first * factor(t) * changed for first in (0.1, 0.5)]
        np.testing.assert_allclose(schedule.get_last_lr(), expected, rtol=1e-10, atol=1e-17, err_msg=f"t = {t}")
        if t % 3 == 2:
            states = copy.deepcopy(o.state_dict()), json.loads(json.dumps(schedule.state_dict()))
            o = optimizer()
            schedule = make(o)
            o.load_state_dict(states[0])
            schedule.load_state_dict(states[1])
            assert schedule.get_last_lr() == [group["lr"] for group in states[0]["param_groups"]]
        schedule.step()


@pytest.mark.parametrize("name", NAMES)
def test_a_chain_is_the_product(name: str) -> None:
    make, factor = PARTS[name]
    goes(lambda o: S.ChainedScheduler([make(o)]), factor)
    for other in NAMES:
        then, times = PARTS[other]
        goes(lambda o, then=then: S.ChainedScheduler([make(o), then(o)]), lambda t, f=times: factor(t) * f(t))


@pytest.mark.parametrize("name", NAMES)
def test_a_chain_in_a_chain_and_in_a_sequence(name: str) -> None:
    make, factor = PARTS[name]

    def chain(o: Any) -> Any:
        return S.ChainedScheduler([S.ExponentialLR(o, 0.9), make(o)])

    goes(lambda o: S.ChainedScheduler([chain(o), S.StepLR(o, 3, 0.5)]),
         lambda t: 0.9**t * factor(t) * 0.5 ** (t // 3))  # fmt: skip
    goes(lambda o: S.SequentialLR(o, [chain(o)], []), lambda t: 0.9**t * factor(t))
    goes(lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.1, 1.0, 3), chain(o)], [3]),
         lambda t: 0.1 + 0.3 * t if t < 3 else 0.9 ** (t - 3) * factor(t - 3))  # fmt: skip
    goes(lambda o: S.SequentialLR(o, [chain(o), S.SequentialLR(o, [S.ConstantLR(o, 0.5, 9), chain(o)], [2])], [4]),
         lambda t: 0.9**t * factor(t) if t < 4 else 0.5 if t < 6 else 0.9 ** (t - 6) * factor(t - 6))  # fmt: skip


@pytest.mark.parametrize("name", ["exponential", "step", "linear", "multiplicative"])
def test_a_rate_changed_by_hand_goes_on_from_there(name: str) -> None:
    make, factor = PARTS[name]
    goes(lambda o: S.ChainedScheduler([make(o), S.StepLR(o, 3, 0.5)]), lambda t: factor(t) * 0.5 ** (t // 3),
         by_hand={2: 0.5, 7: 3.0})  # fmt: skip
    goes(lambda o: S.SequentialLR(o, [make(o)], []), factor, by_hand={2: 0.5, 7: 3.0})
    # a schedule whose turn comes begins with the first rate, as PyTorch's
    goes(lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.5, 9), S.ChainedScheduler([make(o), S.StepLR(o, 3, 0.5)])],
                                  [2]),
         lambda t: 0.5 if t < 2 else 0.5 ** ((t - 2) // 3) * factor(t - 2), by_hand={5: 0.5})  # fmt: skip


def test_what_takes_over_begins_with_the_rate_in_force() -> None:
    goes(lambda o: S.SequentialLR(o, [S.ExponentialLR(o, 0.8), PARTS["multiplicative"][0](o)], [3]),
         lambda t: 0.8**t if t < 3 else 0.8**2 * PARTS["multiplicative"][1](t - 3), by_hand={2: 0.5})  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("combined", ["chain", "sequence"])
@pytest.mark.parametrize("name", ["cosine to eta_min", "swa", "exponential", "linear", "polynomial"])
def test_values_are_pytorchs(combined: str, name: str) -> None:
    """Also where a schedule is no mere factor: each starts from the rate that the one before it has set."""
    torch = pytest.importorskip("torch")
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    mine = optimizer()
    other = torch.optim.SGD([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.5}], lr=0.1)

    def make(m: Any, o: Any) -> Any:
        s = m.lr_scheduler
        part = {
            "cosine to eta_min": lambda: s.CosineAnnealingLR(o, 40, 0.01),
            "swa": lambda: m.swa_utils.SWALR(o, 0.05, 6, "linear"),
            "exponential": lambda: s.ExponentialLR(o, 0.7),
            "linear": lambda: s.LinearLR(o, 0.2, 0.9, 5),
            "polynomial": lambda: s.PolynomialLR(o, 9),
        }[name]()
        if combined == "chain":
            return s.ChainedScheduler([s.StepLR(o, 3, 0.5), part, s.ExponentialLR(o, 0.95)])
        return s.SequentialLR(o, [part, s.LinearLR(o, 0.5, 0.8, 4), s.ExponentialLR(o, 0.9)], [4, 9])

    ours, theirs = make(optim, mine), make(torch.optim, other)
    for step in range(16):
        np.testing.assert_allclose(
            ours.get_last_lr(), [g["lr"] for g in other.param_groups], rtol=1e-9, err_msg=f"{step}"
        )
        other.step()
        ours.step()
        theirs.step()


def test_a_chain_beside_another_schedule() -> None:
    o = optimizer()
    warm = S.LinearLR(o, 0.1, 1.0, 5)
    chain = S.ChainedScheduler([S.ExponentialLR(o, 0.9), S.StepLR(o, 2, 0.5)])
    for t in range(12):
        factor = (0.1 + 0.9 * min(t, 5) / 5) * 0.9**t * 0.5 ** (t // 2)
        np.testing.assert_allclose(chain.get_last_lr(), [0.1 * factor, 0.5 * factor], rtol=1e-10)
        warm.step()
        chain.step()
