"""Adam and AdamW against PyTorch over several steps with the same gradients, and their argument checks."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import optim

SHAPES = [(3, 4), (7,), (), (2, 3, 3, 3)]
OPTIONS = [{}, {"weight_decay": 0.1}, {"betas": (0.8, 0.9), "eps": 1e-3}, {"maximize": True}]


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_steps_are_pytorchs(name, options, amsgrad, dtype, rng):
    torch = pytest.importorskip("torch")
    start = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    ours = [mn.tensor(a, requires_grad=True) for a in start]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    our_optimizer = getattr(optim, name)(ours, lr=0.01, amsgrad=amsgrad, **options)
    their_optimizer = getattr(torch.optim, name)(theirs, lr=0.01, amsgrad=amsgrad, **options)
    for step in range(8):
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            if (step, i) in ((0, 1), (3, 0)):  # its own count of steps for each parameter
                p.grad = q.grad = None
                continue
            gradient = (rng.standard_normal(p.shape) * 10.0 ** -(step % 4)).astype(dtype)
            p.grad, q.grad = mn.tensor(gradient), torch.tensor(gradient)
        our_optimizer.step()
        their_optimizer.step()
        for p, q in zip(ours, theirs, strict=True):
            tolerance = 2e-6 if dtype == np.float32 else 1e-13
            np.testing.assert_allclose(p.array, q.detach().numpy(), rtol=tolerance, atol=tolerance)
    for p, q in zip(ours, theirs, strict=True):
        for key in ("exp_avg", "exp_avg_sq"):
            np.testing.assert_allclose(
                our_optimizer.state[p][key], their_optimizer.state[q][key].numpy(), rtol=1e-5, atol=1e-7
            )


def test_the_first_step_is_lr_in_the_direction_of_the_sign():
    p = mn.tensor([1.0, 1.0, 1.0], dtype=mn.float64, requires_grad=True)
    optimizer = optim.Adam([p], lr=0.5)
    p.grad = mn.tensor([1e-3, -4.0, 100.0], dtype=mn.float64)
    optimizer.step()
    np.testing.assert_allclose(p.array, [0.5, 1.5, 0.5], rtol=1e-4)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16])
def test_sixteen_bits(dtype):
    p = mn.Tensor(np.ones(3, dtype), requires_grad=True)
    optimizer = optim.AdamW([p], lr=0.25, weight_decay=0.0, eps=1e-4)
    p.grad = mn.Tensor(np.array([1, -1, 2], dtype))
    optimizer.step()
    assert p.dtype == dtype
    assert optimizer.state[p]["exp_avg"].dtype == dtype
    np.testing.assert_allclose(p.array.astype(np.float32), [0.75, 1.25, 0.75], rtol=4e-3)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1}, "lr=-1; expected at least 0"),
        ({"eps": -1}, "eps=-1"),
        ({"weight_decay": -1}, "weight_decay=-1"),
        ({"betas": (0.9, 1.0)}, r"betas=\(0.9, 1.0\); expected two numbers with 0 <= beta < 1"),
        ({"betas": (-0.1, 0.9)}, r"betas"),
        ({"betas": (0.9,)}, r"betas"),
    ],
)
def test_settings_outside_their_range(name, options, message):
    with pytest.raises(ValueError, match=f"{name}: {message}"):
        getattr(optim, name)([mn.tensor([1.0], requires_grad=True)], **options)
