"""Mixed precision on a GPU: casts and the scaler's check stay there, and the host asks for one number a step."""

from __future__ import annotations

from typing import Any

import minorm as mn
import minorm.functional as F
from minorm import models, optim


def test_a_step_asks_the_device_once(cuda: Any) -> None:
    mn.manual_seed(0)
    model = models.build("digits", 1, 8, 10).to("cuda")
    optimizer, scaler = optim.SGD(model.parameters(), lr=0.1), mn.amp.GradScaler("cuda", init_scale=64.0)
    x, y = mn.randn(4, 1, 8, 8).to("cuda"), mn.tensor([0, 1, 2, 3]).to("cuda")
    before = model[0].weight.detach().clone()
    cuda.transfers.clear()
    with mn.autocast("cuda"):
        logits = model(x)
        loss = F.cross_entropy(logits, y)
    assert (logits.dtype, loss.dtype) == (mn.float16, mn.float32)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (cuda.transfers.to_host, cuda.transfers.to_device) == (1, 0)
    assert model[0].weight.dtype == mn.float32
    assert (model[0].weight != before).any().item()


def test_infinity_leaves_the_step_out(cuda: Any) -> None:
    w = mn.ones(3, device="cuda", requires_grad=True)
    scaler = mn.amp.GradScaler("cuda")
    w.grad = mn.full((3,), float("inf"), device="cuda")
    scaler.step(optim.SGD([w], lr=0.5))
    scaler.update()
    assert w.tolist() == [1, 1, 1]
    assert scaler.get_scale() == 2.0**15
