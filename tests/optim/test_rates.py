"""A rate that is a Tensor, beside PyTorch's: the group keeps it, steps read it, schedules fill it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim

NAMES = ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam"]


def steps(library: Any, make: Any, parameter: Any, ones: Any) -> list[np.ndarray]:
    """Steps of an optimizer whose Tensor is changed by hand, and of a schedule that changes it."""
    rate = library.tensor(0.5, dtype=library.float64)
    optimizer = make([parameter], lr=rate)
    scheduler = library.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.25)
    found = []
    for step in range(4):
        parameter.grad = ones(3)
        optimizer.step()
        scheduler.step()
        if step == 1:
            rate.fill_(0.125)
        found.append(np.array(parameter.detach().numpy()))
    assert optimizer.param_groups[0]["lr"] is rate
    return found


@pytest.mark.parametrize("name", NAMES)
def test_twins(name: str) -> None:
    torch = pytest.importorskip("torch")
    start = np.array([1.0, -2.0, 0.5])
    ours = steps(mn, getattr(optim, name), nn.Parameter(start.copy()), lambda n: mn.ones(n, dtype=mn.float64))
    parameter = torch.nn.Parameter(torch.tensor(start))

    def make(params: Any, lr: Any) -> Any:
        return getattr(torch.optim, name)(params, lr=lr, foreach=False)

    theirs = steps(torch, make, parameter, lambda n: torch.ones(n, dtype=torch.float64))
    atol = 1e-7 if name == "NAdam" else 1e-12  # of NAdam PyTorch keeps a product in float32
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: optim.lr_scheduler.StepLR(o, 1),
        lambda o: optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=4),
        lambda o: optim.lr_scheduler.CyclicLR(o, 0.1, 0.5),
        lambda o: optim.lr_scheduler.SequentialLR(
            o, [optim.lr_scheduler.ConstantLR(o, 0.5), optim.lr_scheduler.ExponentialLR(o, 0.1)], [2]
        ),
    ],
)
def test_schedules_give_what_they_give_a_number(make: Any) -> None:
    rates = []
    for lr in (0.5, mn.tensor(0.5, dtype=mn.float64)):
        optimizer = optim.SGD([nn.Parameter(mn.ones(1))], lr=lr, momentum=0.9)
        scheduler = make(optimizer)
        found = []
        for _ in range(3):
            scheduler.step()
            found += scheduler.get_last_lr()
        rates.append(found)
        assert (optimizer.param_groups[0]["lr"] is lr) == isinstance(lr, mn.Tensor)
        assert scheduler.state_dict()["last_lrs"] == found[-1:]
    assert rates[0] == rates[1]


def test_plateau_fills_the_tensor() -> None:
    lr = mn.tensor([0.5])
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optim.SGD([nn.Parameter(mn.ones(1))], lr=lr), patience=0)
    for loss in (1.0, 1.0):
        scheduler.step(loss)
    np.testing.assert_allclose(lr.array, [0.05])


def test_a_state_is_numbers_and_is_filled_in() -> None:
    lr = mn.tensor(0.25)
    optimizer = optim.SGD([nn.Parameter(mn.ones(1))], lr=lr)
    state = optimizer.state_dict()
    assert state["param_groups"][0]["lr"] == 0.25
    state["param_groups"][0]["lr"] = mn.tensor(0.125)  # as PyTorch's has it
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["lr"] is lr
    assert lr.item() == 0.125
    plain = optim.SGD([nn.Parameter(mn.ones(1))], lr=1.0)
    plain.load_state_dict(state)
    assert plain.param_groups[0]["lr"] == 0.125


@pytest.mark.parametrize(
    ("lr", "error", "message"),
    [
        (mn.ones(2), ValueError, r"SGD: lr has shape \(2,\); expected a Tensor of one element, or a number"),
        (mn.tensor(1), TypeError, "SGD: lr is int64; expected a float type, or a number"),
        (mn.tensor(-1.0), ValueError, "SGD: lr=-1.0; expected at least 0"),
    ],
)
def test_mistakes(lr: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        optim.SGD([nn.Parameter(mn.ones(1))], lr=lr)
