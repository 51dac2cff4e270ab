"""LBFGS beside PyTorch's in float64: the same steps, the same number of calls, the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim

SETTINGS: list[dict[str, Any]] = [
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "history_size": 2, "max_iter": 6},
    {"line_search_fn": "strong_wolfe", "max_eval": 7},
    {"line_search_fn": "strong_wolfe", "lr": 0.1, "tolerance_grad": 1e-2},
    {"lr": 0.01},
    {"lr": 0.01, "max_iter": 3, "history_size": 1, "tolerance_change": 1e-3},
    {"lr": 0.01, "max_iter": 1},
]


def rosenbrock(x: Any, y: Any) -> Any:
    """A bent valley over a vector and a matrix."""
    flat = y.reshape(-1)
    return ((1 - x) ** 2).sum() + 100 * ((flat - x**2) ** 2).sum()


def evaluation(optimizer: Any, parameters: list[Any], calls: list[float]) -> Callable[[], Any]:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = rosenbrock(*parameters)
        loss.backward()
        calls.append(loss.item())
        return loss

    return closure


@pytest.mark.parametrize("settings", SETTINGS)
def test_twins(settings: dict[str, Any], rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    start = [rng.standard_normal(4), rng.standard_normal((2, 2))]
    ours = [nn.Parameter(a.copy()) for a in start]
    theirs = [torch.nn.Parameter(torch.tensor(a)) for a in start]
    mine, other = optim.LBFGS(ours, **settings), torch.optim.LBFGS(theirs, **settings)
    called: tuple[list[float], list[float]] = ([], [])
    for step in range(5):
        with mn.no_grad():  # the closure records in any case
            found = mine.step(evaluation(mine, ours, called[0]))
        expected = other.step(evaluation(other, theirs, called[1]))
        np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-6, atol=1e-12)
        assert len(called[0]) == len(called[1])
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.array, b.detach().numpy(), rtol=1e-7, atol=1e-8)
        if step == 2:
            state = mine.state_dict()
            mine = optim.LBFGS(ours, **settings)
            mine.load_state_dict(state)
    held, wanted = mine.state[ours[0]], other.state[theirs[0]]
    assert (held["n_iter"], held["func_evals"]) == (wanted["n_iter"], wanted["func_evals"])
    assert len(held["old_dirs"]) == len(wanted["old_dirs"])


def test_a_state_of_pytorchs_goes_on(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    start = [rng.standard_normal(4), rng.standard_normal((2, 2))]
    theirs = [torch.nn.Parameter(torch.tensor(a)) for a in start]
    other = torch.optim.LBFGS(theirs, lr=0.01, max_iter=4)
    other.step(evaluation(other, theirs, []))
    ours = [nn.Parameter(b.detach().numpy().copy()) for b in theirs]
    mine = optim.LBFGS(ours, lr=0.5)
    state = other.state_dict()
    entry = {
        name: [x.numpy() for x in value] if name in ("old_dirs", "old_stps", "ro") else value
        for name, value in state["state"][0].items()
    }
    entry |= {name: entry[name].numpy() for name in ("d", "prev_flat_grad", "H_diag")}
    mine.load_state_dict({**state, "state": {0: entry}})
    mine.step(evaluation(mine, ours, []))
    other.step(evaluation(other, theirs, []))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.array, b.detach().numpy(), rtol=1e-9)


def test_a_parameter_without_gradient_stays(rng: np.random.Generator) -> None:
    used, unused = nn.Parameter(rng.standard_normal(3)), nn.Parameter(np.array([np.inf, 1.0]))  # 0 * inf would be NaN
    before = unused.array.copy()
    optimizer = optim.LBFGS([unused, used], line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((used - 2) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    np.testing.assert_allclose(used.array, 2, atol=1e-7)
    assert np.array_equal(unused.array, before)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_types_stay(dtype: str) -> None:
    p = nn.Parameter(mn.tensor([1.0, -2.0], dtype=getattr(mn, dtype)))
    optimizer = optim.LBFGS([p], line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((p - 3) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert p.dtype == getattr(mn, dtype)
    np.testing.assert_allclose(p.array.astype(np.float64), 3, rtol=1e-2)


def test_an_error_in_the_search_leaves_the_parameters_at_a_step(rng: np.random.Generator) -> None:
    p = nn.Parameter(rng.standard_normal(3))
    before = p.array.copy()
    optimizer = optim.LBFGS([p], line_search_fn="strong_wolfe")
    calls = []

    def closure() -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise ArithmeticError("no more")
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    with pytest.raises(ArithmeticError):
        optimizer.step(closure)
    assert np.array_equal(p.array, before)


@pytest.mark.parametrize(
    "setting", [{"lr": 0.02}, {"max_iter": 2, "max_eval": 9}, {"max_eval": 3}, {"line_search_fn": "strong_wolfe"}]
)
def test_a_setting_of_the_group_counts_from_the_next_step(setting: dict[str, Any], rng: np.random.Generator) -> None:
    start = [rng.standard_normal(4), rng.standard_normal((2, 2))]
    ends = []
    for late in (False, True):
        parameters = [nn.Parameter(a.copy()) for a in start]
        optimizer = optim.LBFGS(parameters, **({"lr": 0.01} | ({} if late else setting)))
        if late:
            optimizer.param_groups[0].update(setting)
        optimizer.step(evaluation(optimizer, parameters, []))
        ends.append(parameters[0].numpy())
    assert np.array_equal(*ends)
    assert not np.array_equal(ends[0], start[0])


def test_mistakes() -> None:
    p = nn.Parameter(mn.ones(2))
    optimizer = optim.LBFGS([p])
    with pytest.raises(
        TypeError, match=r"LBFGS.step: closure is None; expected a function that computes the gradients"
    ):
        optimizer.step()
    with pytest.raises(ValueError, match="LBFGS: there is a second group of parameters; expected one"):
        optimizer.add_param_group({"params": [nn.Parameter(mn.ones(1))]})
    with pytest.raises(ValueError, match="LBFGS: line_search_fn='wolfe'; expected None or 'strong_wolfe'"):
        optim.LBFGS([p], line_search_fn="wolfe")
    with pytest.raises(ValueError, match="LBFGS: history_size=-1; expected at least 0"):
        optim.LBFGS([p], history_size=-1)
    for settings in ({"max_iter": 2.5}, {"max_eval": 2.5}, {"history_size": True}, {"max_iter": "a"}):
        with pytest.raises(TypeError, match=f"LBFGS: {next(iter(settings))}=.*; expected an int"):
            optim.LBFGS([p], **settings)
    for entry, message in (
        ({"d": np.zeros(3)}, r"d has shape \(3,\); expected \(2,\), all parameters' numbers"),
        ({"old_dirs": 1}, "old_dirs is 1; expected a list"),
        ({"t": "a"}, "t is 'a'; expected a number"),
        ({"n_iter": -1}, "n_iter is -1; expected an int of at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: entry}})
    assert not optimizer.state
