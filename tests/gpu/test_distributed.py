"""Ranks whose arrays are on a GPU: messages go through the host, and what comes out is what the CPU computes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn, optim
from minorm.distributed import DistributedDataParallel, run, simulate
from minorm.distributed.job import place
from minorm.tensor.tensor import Tensor


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


def test_second_gradients_over_ranks_on_a_gpu_are_those_of_the_cpu(cuda: Any) -> None:
    x, dy = np.random.default_rng(0).standard_normal((2, 5, 3, 2, 2))

    def on(device: str) -> list[Any]:
        def program(group: Any) -> Any:
            mine, theirs = (Tensor(np.split(a, [2, 2])[group.rank]).to(device) for a in (x, dy))
            mine.requires_grad = True
            y = F.batch_norm(mine, None, None, training=True, process_group=group)
            (first,) = mn.autograd.grad(y, mine, theirs, create_graph=True)
            (second,) = mn.autograd.grad((first * first).sum(), mine)
            assert second.device == mine.device
            return second.cpu().numpy()

        return simulate(3, program)

    for ours, theirs in zip(on("cuda"), on("cpu"), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_ranks_train_on_a_gpu_through_the_host(cuda: Any) -> None:
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((6, 3)).astype(np.float32), rng.integers(0, 2, 6)

    def on(device: str) -> list[Any]:
        def program(group: Any) -> Any:
            mn.manual_seed(0)
            model = nn.Sequential(nn.Linear(3, 4), nn.SyncBatchNorm(4), nn.ReLU(), nn.Linear(4, 2)).to(group.device)
            model = DistributedDataParallel(model, group)
            optimizer = optim.SGD(model.parameters(), lr=0.1)
            inputs, targets = (Tensor(np.array_split(a, group.size)[group.rank]).to(group.device) for a in (x, labels))
            for _ in range(3):
                loss = F.cross_entropy(model(inputs), targets)
                optimizer.zero_grad()
                loss = model.backward(loss, len(targets))
                optimizer.step()
            model.average_buffers()
            assert loss.device == next(model.parameters()).device == group.device
            return [loss.item(), *[value.cpu().numpy() for value in model.state_dict().values()]]

        return run(program, 3, device=device)

    for ours, theirs in zip(on("cuda"), on("cpu"), strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_processes_take_the_gpus_of_their_machine_in_turn(cuda: Any) -> None:
    """The double has two."""
    assert [place("cuda", number) for number in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert place("cuda:1", 0) == "cuda:1"
    assert place("cpu", 3) == "cpu"


def test_without_a_gpu_the_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what is missing, as it does for every other use of a GPU."""
    monkeypatch.setattr("minorm.devices._found", [])
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RuntimeError, match=r"run: device='cuda': .*; or compute on 'cpu'"):
        run(lambda group: None, 2, device="cuda")
