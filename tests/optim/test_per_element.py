"""RMSprop, Adagrad, Adadelta, Adamax, NAdam and RAdam beside PyTorch's; Lion and LAMB beside their papers' lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *[("RMSprop", s) for s in ({}, {"momentum": 0.9}, {"centered": True, "weight_decay": 0.1}, {"maximize": True})],
    *[("Adagrad", s) for s in ({}, {"lr_decay": 0.1, "initial_accumulator_value": 0.2}, {"weight_decay": 0.1})],
    *[("Adadelta", s) for s in ({}, {"rho": 0.5, "eps": 1e-3}, {"weight_decay": 0.1, "maximize": True})],
    *[("Adamax", s) for s in ({}, {"weight_decay": 0.1, "betas": (0.8, 0.9)})],
    *[("NAdam", s) for s in ({}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True})],
    *[("RAdam", s) for s in ({}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decoupled_weight_decay": True})],
]


@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_twins(name: str, settings: dict[str, Any], rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    start = [rng.standard_normal(shape) for shape in ((3, 4), (5,), ())]
    ours = [nn.Parameter(np.array(a)) for a in start]
    theirs = [torch.nn.Parameter(torch.tensor(a)) for a in start]
    mine = getattr(optim, name)(ours, lr=0.05, **settings)
    other = getattr(torch.optim, name)(theirs, lr=0.05, **settings)
    for step in range(12):
        for a, b in zip(ours, theirs, strict=True):
            gradient = np.asarray(rng.standard_normal(a.shape))
            a.grad, b.grad = mn.Tensor(gradient), torch.tensor(gradient)
        mine.step()
        other.step()
        if step == 5:  # the state goes through a state_dict in the middle
            state = mine.state_dict()
            mine = getattr(optim, name)(ours, lr=0.05, **settings)
            mine.load_state_dict(state)
        for a, b in zip(ours, theirs, strict=True):
            rtol = 1e-8 if name == "NAdam" else 1e-12  # of NAdam PyTorch keeps a product in float32
            np.testing.assert_allclose(a.array, b.detach().numpy(), rtol=rtol, atol=1e-2 * rtol)


def test_lion_by_the_lines_of_the_paper(rng: np.random.Generator) -> None:
    p = rng.standard_normal((3, 4))
    parameter = nn.Parameter(p.copy())
    optimizer = optim.Lion([parameter], weight_decay=0.2)
    m = np.zeros_like(p)
    for _ in range(5):
        g = rng.standard_normal(p.shape)
        parameter.grad = mn.Tensor(g)
        optimizer.step()
        c = 0.9 * m + (1 - 0.9) * g
        p = p - 1e-4 * (np.sign(c) + 0.2 * p)
        m = 0.99 * m + (1 - 0.99) * g
        np.testing.assert_allclose(parameter.array, p, rtol=1e-12)


@pytest.mark.parametrize("zero", [False, True])
def test_lamb_by_the_lines_of_the_paper(rng: np.random.Generator, zero: bool) -> None:
    p = rng.standard_normal((3, 4)) * (not zero)
    parameter = nn.Parameter(p.copy())
    optimizer = optim.LAMB([parameter], lr=0.01, weight_decay=0.2)
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t in range(1, 6):
        g = rng.standard_normal(p.shape)
        parameter.grad = mn.Tensor(g)
        optimizer.step()
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        r = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6)
        u = r + 0.2 * p
        trust = np.linalg.norm(p) / np.linalg.norm(u) if p.any() else 1.0
        p = p - 0.01 * trust * u
        np.testing.assert_allclose(parameter.array, p, rtol=1e-10)


@pytest.mark.parametrize("name", ["RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Lion", "LAMB"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_types_stay(name: str, dtype: str) -> None:
    parameter = nn.Parameter(mn.ones(4, dtype=getattr(mn, dtype)))
    parameter.grad = mn.ones(4, dtype=getattr(mn, dtype))
    optimizer = getattr(optim, name)([parameter])
    optimizer.step()
    assert parameter.dtype == getattr(mn, dtype)
    assert (parameter.array < 1).all() or dtype != "float32"
    assert name in repr(optimizer)


@pytest.mark.parametrize("name", ["RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Lion", "LAMB"])
def test_mistakes(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: lr=-1"):
        getattr(optim, name)([nn.Parameter(mn.ones(1))], lr=-1)


@pytest.mark.parametrize("name", ["Adamax", "NAdam", "RAdam", "Lion", "LAMB"])
@pytest.mark.parametrize("betas", [(0.9,), (0.9, 1.0), (0.9, 0.99, 0.999)])
def test_betas_are_two(name: str, betas: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=rf"{name}: betas=\(.*\); expected two numbers with 0 <= beta < 1"):
        getattr(optim, name)([nn.Parameter(mn.ones(1))], betas=betas)


def test_rho_is_a_share() -> None:
    with pytest.raises(ValueError, match=r"Adadelta: rho=1.5; expected 0 <= rho <= 1"):
        optim.Adadelta([nn.Parameter(mn.ones(1))], rho=1.5)
