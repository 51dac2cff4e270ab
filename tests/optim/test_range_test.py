"""The range test of learning rates: gradient descent by its formula, and everything as before, also after an error."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.data import ArrayDataset, DataLoader
from minorm.optim import SGD, Adam, RangeTest, lr_finder


class Weight(nn.Module):
    """w * x."""

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(mn.tensor(w, dtype=mn.float64))

    def forward(self, x: Any) -> Any:
        return self.w * x


def square(output: Any, target: Any) -> Any:
    return ((output - target) * (output - target)).sum() * 0.5


ONE = [(mn.tensor(1.0, dtype=mn.float64), mn.tensor(0.0, dtype=mn.float64))]


def test_losses_are_those_of_gradient_descent() -> None:
    """w becomes (1 - rate) w at each step, and the loss is w^2 / 2."""
    model = Weight(3.0)
    test = lr_finder(model, ONE, square, SGD(model.parameters(), lr=0.1), start_lr=1e-3, end_lr=1.0, num_iter=31)
    rates = 1e-3 * 1000 ** (np.arange(31) / 30)
    w = 3.0 * np.concatenate([[1], np.cumprod(1 - rates)[:-1]])
    np.testing.assert_allclose(test.rates, rates, rtol=1e-12)
    np.testing.assert_allclose(test.losses, w**2 / 2, rtol=1e-9, atol=1e-12)
    shares = 0.9 ** np.arange(31)
    means = [np.average(w[: i + 1] ** 2 / 2, weights=shares[i::-1]) for i in range(31)]
    np.testing.assert_allclose(test.smoothed, means, rtol=1e-9)


def test_it_ends_where_the_loss_diverges_or_is_no_number() -> None:
    model = Weight(3.0)
    options: dict[str, Any] = {"start_lr": 0.1, "end_lr": 1e4, "num_iter": 200, "smoothing": 0.0}
    test = lr_finder(model, ONE, square, SGD(model.parameters(), lr=0.1), **options)
    assert test.smoothed[-1] > 4 * min(test.smoothed)
    assert all(loss <= 4 * min(test.smoothed[: i + 1]) for i, loss in enumerate(test.smoothed[:-1]))
    options["diverge_threshold"] = math.inf
    whole = lr_finder(model, ONE, square, SGD(model.parameters(), lr=0.1), **options)
    assert len(test.rates) < len(whole.rates)
    assert np.isfinite(whole.losses).all()
    assert model.w.item() == 3.0


def falling() -> RangeTest:
    """A loss that falls fastest at 0.01 and is smallest at 0.1, by the logarithm of the rate."""
    logs = np.linspace(-5, 1, 61)
    losses = 3 - np.tanh(3 * (logs + 2)) + np.where(logs > -1, 5 * (logs + 1) ** 2, 0)
    return RangeTest((10**logs).tolist(), losses.tolist(), losses.tolist())


def test_suggestions() -> None:
    test = falling()
    assert test.steepest == pytest.approx(0.01)
    least = test.rates[int(np.argmin(test.losses))]
    assert 0.05 < least <= 0.13
    assert test.minimum == pytest.approx(least / 10)
    assert test.suggestion == test.minimum
    rising = RangeTest(test.rates, test.losses[::-1], sorted(test.losses))
    assert rising.steepest is None
    assert rising.suggestion is None
    assert rising.minimum == test.rates[0] / 10


class Broken(Exception):
    """The exception that a loss raises."""


def prepared() -> tuple[Any, Any, Any]:
    """A model with statistics and dropout, an optimizer and a loader, all in the middle of things."""
    mn.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    rng = np.random.default_rng(0)
    loader = DataLoader(ArrayDataset(rng.random((40, 4), np.float32), rng.integers(0, 3, 40)), 8, shuffle=True, seed=1)
    optimizer = Adam([{"params": model[0].parameters(), "lr": 0.002}, {"params": [*model[1].parameters(),
                      *model[4].parameters()]}], lr=0.01)  # fmt: skip
    for place, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        nn.CrossEntropyLoss()(model(x), y).backward()
        optimizer.step()
        if place == 2:
            break
    model[1].eval()
    return model, optimizer, loader


def rest(model: Any, optimizer: Any, loader: Any) -> list[float]:
    """The losses of what is left of the epoch and of the next."""
    found = []
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.CrossEntropyLoss()(model(x), y)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
    return [*found, float(mn.rand(1).item())]


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_before(fails: bool) -> None:
    expected = rest(*prepared())
    model, optimizer, loader = prepared()
    gradients = [p.grad.numpy().copy() for p in model.parameters()]
    held = [(p, p.grad) for p in model.parameters()]
    seen: list[float] = []

    def loss_function(outputs: Any, targets: Any) -> Any:
        seen.append(optimizer.param_groups[1]["lr"] / optimizer.param_groups[0]["lr"])
        assert all(module.training for module in model.modules())
        if fails and len(seen) == 13:
            raise Broken
        return nn.CrossEntropyLoss()(outputs, targets)

    if fails:
        with pytest.raises(Broken):
            lr_finder(model, loader, loss_function, optimizer)
    else:
        lr_finder(model, loader, loss_function, optimizer)
    assert len(seen) >= 13
    assert np.allclose(seen, 5), "rates keep their proportions"
    assert [module.training for module in model] == [True, False, True, True, True]
    assert all(p.grad is before for p, before in held)
    assert all(np.array_equal(p.grad.numpy(), g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert [group["lr"] for group in optimizer.param_groups] == [0.002, 0.01]
    assert rest(model, optimizer, loader) == expected


def test_a_rate_that_is_a_tensor_stays_that_tensor() -> None:
    model, rate = nn.Linear(2, 1), mn.tensor(0.1)
    optimizer = SGD(model.parameters(), lr=rate)
    lr_finder(model, [(mn.ones(4, 2), mn.zeros(4, 1))], nn.MSELoss(), optimizer)
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == np.float32(0.1)


def test_a_fresh_optimizer_and_any_loader() -> None:
    model = nn.Linear(2, 1)
    batch = (mn.ones(4, 2), mn.zeros(4, 1))
    optimizer = Adam(model.parameters(), lr=0.0)
    assert len(lr_finder(model, [batch], nn.MSELoss(), optimizer, num_iter=10).rates) == 10
    assert len(lr_finder(model, iter([batch] * 7), nn.MSELoss(), optimizer, num_iter=10).rates) == 7
    assert not optimizer.state_dict()["state"]
    assert all(p.grad is None for p in model.parameters())
    assert optimizer.param_groups[0]["lr"] == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_lr": 0.0}, "lr_finder: start_lr=0.0, end_lr=10.0; expected 0 < start_lr < end_lr"),
        ({"end_lr": 1e-7}, "lr_finder: start_lr=1e-06, end_lr=1e-07; expected"),
        ({"num_iter": 9}, "lr_finder: num_iter=9; expected an int of at least 10"),
        ({"smoothing": 1.0}, "lr_finder: smoothing=1.0; expected a number from 0 to below 1"),
        ({"diverge_threshold": 1.0}, "lr_finder: diverge_threshold=1.0; expected a number above 1"),
        ({"loader": []}, "lr_finder: the loader gave no batch; expected at least one"),
        (
            {"loss_function": lambda x, _: x.sum() * math.nan},
            "the loss of the first batch, before any step, is not finite",
        ),
    ],
)
def test_mistakes(options: dict[str, Any], message: str) -> None:
    model = Weight(3.0)
    given = {"loader": ONE, "loss_function": square, **options}
    loader, loss_function = given.pop("loader"), given.pop("loss_function")
    with pytest.raises(ValueError, match=re.escape(message)):
        lr_finder(model, loader, loss_function, SGD(model.parameters(), lr=0.1), **given)
    assert model.w.item() == 3.0
