"""SGD against PyTorch over several steps with the same gradients, and its argument checks."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import optim

SHAPES = [(3, 4), (7,), (), (2, 3, 3, 3)]
OPTIONS = [
    {},
    {"weight_decay": 0.01},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"momentum": 0.9, "dampening": 0.5},
    {"momentum": 0.3, "maximize": True},
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", OPTIONS)
def test_steps_are_pytorchs(options, dtype, rng):
    torch = pytest.importorskip("torch")
    start = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    ours = [mn.tensor(a, requires_grad=True) for a in start]
    theirs = [torch.tensor(a, requires_grad=True) for a in start]
    our_optimizer = optim.SGD(ours, lr=0.1, **options)
    their_optimizer = torch.optim.SGD(theirs, lr=0.1, **options)
    for step in range(6):
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            if (step, i) in ((0, 1), (3, 0)):  # parameter 1 gets its first gradient late, 0 misses one
                p.grad = q.grad = None
                continue
            gradient = rng.standard_normal(p.shape).astype(dtype)
            p.grad, q.grad = mn.tensor(gradient), torch.tensor(gradient)
        our_optimizer.step()
        their_optimizer.step()
        for p, q in zip(ours, theirs, strict=True):
            tolerance = 2e-6 if dtype == np.float32 else 1e-14
            np.testing.assert_allclose(p.array, q.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16])
def test_sixteen_bits(dtype):
    p = mn.tensor([1.0, -2.0, 3.0], requires_grad=True).to(dtype).detach()
    p.requires_grad = True
    optimizer = optim.SGD([p], lr=0.5, momentum=0.5)
    for _ in range(2):
        p.grad = mn.tensor([1.0, 1.0, 1.0]).to(dtype)
        optimizer.step()
    assert p.dtype == dtype
    np.testing.assert_array_equal(p.array.astype(np.float32), [-0.25, -3.25, 1.75])


def test_groups_have_their_own_settings():
    w, b = mn.tensor([1.0], requires_grad=True), mn.tensor([1.0], requires_grad=True)
    optimizer = optim.SGD([{"params": [w], "weight_decay": 0.5}, {"params": b, "lr": 1.0}], lr=0.1)
    w.grad, b.grad = mn.tensor([0.0]), mn.tensor([0.25])
    optimizer.step()
    assert w.item() == pytest.approx(1 - 0.1 * 0.5)
    assert b.item() == 0.75


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -0.1}, r"SGD: lr=-0.1; expected at least 0"),
        ({"lr": float("nan")}, r"SGD: lr=nan"),
        ({"momentum": -1}, r"SGD: momentum=-1"),
        ({"weight_decay": -1}, r"SGD: weight_decay=-1"),
        ({"nesterov": True}, r"SGD: nesterov=True with momentum=0.0 and dampening=0.0; expected momentum > 0"),
        ({"nesterov": True, "momentum": 0.9, "dampening": 0.1}, r"expected momentum > 0 and dampening=0"),
    ],
)
def test_settings_outside_their_range(options, message):
    with pytest.raises(ValueError, match=message):
        optim.SGD([mn.tensor([1.0], requires_grad=True)], **options)
