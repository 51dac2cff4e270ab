"""Ranks whose arrays are on a GPU: messages go through the host, and what comes out is what the CPU computes."""

from __future__ import annotations

from typing import Any

import numpy as np

import minorm.functional as F
from minorm.distributed import simulate
from minorm.tensor import Tensor


def test_arrays_of_a_gpu_come_back_to_it(cuda: Any) -> None:
    def program(group: Any) -> Any:
        total = group.all_reduce(cuda.asarray(np.full(3, group.rank + 1.0)))
        return type(total) is cuda.ndarray, total.get().tolist()

    assert simulate(2, program) == [(True, [3.0, 3.0, 3.0])] * 2


def test_statistics_over_ranks_on_a_gpu_are_those_of_the_cpu(cuda: Any) -> None:
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 7, 3, 2, 2)).astype(np.float32)

    def on(device: str) -> list[Any]:
        def program(group: Any) -> Any:
            mine, theirs = (np.split(a, [2, 2])[group.rank] for a in (x, dy))
            inputs = [Tensor(a).to(device) for a in (mine, np.ones(3, np.float32), np.zeros(3, np.float32))]
            for tensor in inputs:
                tensor.requires_grad = True
            mean, var = (Tensor(a).to(device) for a in (np.zeros(3, np.float32), np.ones(3, np.float32)))
            y = F.batch_norm(inputs[0], mean, var, *inputs[1:], True, process_group=group)
            y.backward(Tensor(theirs).to(device))
            assert y.device == inputs[0].device
            return [t.cpu().numpy() for t in (y.detach(), *[t.grad for t in inputs], mean, var)]

        return simulate(3, program)

    for ours, theirs in zip(on("cuda"), on("cpu"), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
