"""Muon beside PyTorch's, whose polynomials are in bfloat16: a step agrees to the last digit of that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim
from minorm.optim.muon import orthogonal

COEFFICIENTS = (3.4445, -4.775, 2.0315)
SHAPES = [(3, 4), (8, 3), (16, 16), (40, 12), (1, 5)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"nesterov": False, "momentum": 0.8},
        {"adjust_lr_fn": "match_rms_adamw"},
        {"adjust_lr_fn": "original", "weight_decay": 0.0, "ns_steps": 3},
        {"ns_coefficients": (2.0, -1.5, 0.5), "eps": 1e-3},
    ],
)
def test_twins(settings: dict[str, Any], rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    start = [rng.standard_normal(shape) for shape in SHAPES]
    ours = [nn.Parameter(np.array(a)) for a in start]
    theirs = [torch.nn.Parameter(torch.tensor(a)) for a in start]
    mine, other = optim.Muon(ours, lr=0.05, **settings), torch.optim.Muon(theirs, lr=0.05, **settings)
    for step in range(4):
        for a, b in zip(ours, theirs, strict=True):
            gradient = rng.standard_normal(a.shape)
            a.grad, b.grad = mn.Tensor(gradient), torch.tensor(gradient)
        mine.step()
        other.step()
        if step == 1:
            state = mine.state_dict()
            mine = optim.Muon(ours, lr=0.05, **settings)
            mine.load_state_dict(state)
        for a, b in zip(ours, theirs, strict=True):
            scale = 0.05 * (0.2 * max(a.shape) ** 0.5 if "adamw" in str(settings) else max(1, a.shape[0] / a.shape[1]))
            np.testing.assert_allclose(a.array, b.detach().numpy(), rtol=0, atol=(step + 1) * scale * 2**-7)
            held, expected = mine.state[a]["momentum_buffer"], other.state[b]["momentum_buffer"].numpy()
            np.testing.assert_allclose(held, expected, rtol=1e-12)


def test_what_rounding_does_not_reach_is_exact(rng: np.random.Generator) -> None:
    """Without a polynomial the step is b / |b|, rounded to bfloat16: all else is float64's."""
    torch = pytest.importorskip("torch")
    start, gradient = rng.standard_normal((4, 6)), rng.standard_normal((4, 6))
    ours, theirs = nn.Parameter(start.copy()), torch.nn.Parameter(torch.tensor(start))
    ours.grad, theirs.grad = mn.Tensor(gradient), torch.tensor(gradient)
    optim.Muon([ours], lr=0.3, ns_steps=0).step()
    torch.optim.Muon([theirs], lr=0.3, ns_steps=0).step()
    np.testing.assert_allclose(ours.array, theirs.detach().numpy(), rtol=1e-14)


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_singular_values_come_near_one(shape: tuple[int, int], rng: np.random.Generator) -> None:
    """NumPy's singular vectors stay, and the values are those that the paper promises: 0.7 to 1.2."""
    u, sizes, v = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    matrix = (u * np.clip(sizes, 0.5, None)) @ v
    found = orthogonal(matrix.astype(np.float32), COEFFICIENTS, 5, 1e-7)
    inside = u.T @ found @ v.T
    np.testing.assert_allclose(inside, np.diag(np.diag(inside)), atol=0.04)
    assert 0.6 < np.diag(inside).min() < np.diag(inside).max() < 1.3


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_types_stay(dtype: str) -> None:
    p = nn.Parameter(mn.ones(2, 3, dtype=getattr(mn, dtype)))
    p.grad = mn.ones(2, 3, dtype=p.dtype)
    optimizer = optim.Muon([p], lr=0.1)
    optimizer.step()
    assert p.dtype == optimizer.state[p]["momentum_buffer"].dtype == getattr(mn, dtype)
    assert (p.array < 1).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": -1}, "Muon: lr=-1; expected at least 0"),
        ({"adjust_lr_fn": "sgd"}, "Muon: adjust_lr_fn='sgd'; expected None, 'original' or 'match_rms_adamw'"),
        ({"ns_coefficients": (1.0, 2.0)}, r"Muon: ns_coefficients=\(1.0, 2.0\); expected three numbers"),
        ({"ns_steps": 100}, "Muon: ns_steps=100; expected 0 <= ns_steps < 100"),
    ],
)
def test_mistakes(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optim.Muon([nn.Parameter(mn.ones(1, 1))], **settings)
    with pytest.raises(TypeError, match=r"Muon: ns_steps=2\.5; expected an int"):
        optim.Muon([nn.Parameter(mn.ones(1, 1))], ns_steps=2.5)


def test_only_matrices() -> None:
    optimizer = optim.Muon([nn.Parameter(mn.ones(2, 2))])
    with pytest.raises(ValueError, match=r"Muon: params\[1\] has shape \(2,\); expected a matrix; use another opt"):
        optimizer.add_param_group({"params": [nn.Parameter(mn.ones(2, 2)), nn.Parameter(mn.ones(2))]})
    assert len(optimizer.param_groups) == 1
