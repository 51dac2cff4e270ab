"""CUDA graphs on the double that captures: bits of eager steps, schedules obeyed, errors for what cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn, optim
from minorm.devices import capture


def groups(parameters: list[Any]) -> list[dict[str, Any]]:
    return [{"params": parameters[:2], "weight_decay": 0.0, "lr": 0.02}, {"params": parameters[2:]}]


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
    "dampening, uphill": lambda p: optim.SGD(p, lr=0.1, momentum=0.8, dampening=0.3, weight_decay=0.02, maximize=True),
    "Adam, decay, uphill": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.1, maximize=True),
    "AdamW, amsgrad": lambda p: optim.AdamW(p, lr=0.01, betas=(0.8, 0.95), weight_decay=0.3, amsgrad=True),
    "groups": lambda p: optim.AdamW(groups(list(p)), lr=0.01, maximize=True),
}


def network() -> Any:
    mn.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(64, 3)).to("cuda")


def batches(count: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    return [
        (mn.tensor(rng.standard_normal((4, 1, 8, 8), np.float32)), mn.tensor(rng.integers(0, 3, 4)))
        for _ in range(count)
    ]


class Run:
    """A network, its optimizer with a schedule, and one step of it."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.model = network()
        self.optimizer = make(self.model.parameters())
        self.schedule = optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.x = mn.zeros(4, 1, 8, 8, device="cuda")
        self.y = mn.zeros(4, dtype=mn.int64, device="cuda")
        self.loss: Any = None

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.loss = F.cross_entropy(self.model(self.x), self.y)
        self.loss.backward()
        self.optimizer.step()

    def feed(self, batch: tuple[Any, Any]) -> None:
        self.x.copy_(batch[0])
        self.y.copy_(batch[1])

    def state(self) -> dict[str, np.ndarray]:
        """Everything that a step changes."""
        found = {name: value.cpu().numpy() for name, value in self.model.state_dict().items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            for name, value in state.items():
                found[f"{i}.{name}"] = np.asarray(value if isinstance(value, int) else value.get())
        return found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_replayed_step_has_the_bits_of_an_eager_one(name: str, cuda: Any) -> None:
    eager, other = Run(OPTIMIZERS[name]), Run(OPTIMIZERS[name])
    first, *rest = batches(6)
    for run in (eager, other):
        run.feed(first)
        run.step()
    graph = mn.cuda.CUDAGraph()
    before = other.state()
    with mn.cuda.graph(graph):
        assert mn.cuda.is_current_stream_capturing()
        other.step()
    assert not mn.cuda.is_current_stream_capturing()
    after = other.state()
    assert all(np.array_equal(after[key], value) for key, value in before.items()), "a capture computes nothing"
    losses = set()
    for batch in rest:
        for run in (eager, other):
            run.feed(batch)
            run.schedule.step()  # the learning rate of the next step
        eager.step()
        cuda.transfers.clear()
        graph.replay()
        assert (cuda.transfers.to_host, cuda.transfers.to_device) == (0, 0)
        assert cuda.transfers.launches["copy from pinned memory"] == 1
        assert other.loss.item() == eager.loss.item()
        losses.add(eager.loss.item())
    assert len(losses) == len(rest)
    assert eager.optimizer.param_groups[0]["lr"] == other.optimizer.param_groups[0]["lr"] < 0.1
    expected, found = eager.state(), other.state()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def test_parameters_know_that_a_replay_changed_them(cuda: Any) -> None:
    run = Run(OPTIMIZERS["SGD"])
    graph = mn.cuda.CUDAGraph()
    with mn.cuda.graph(graph):
        run.step()
    weight = run.model[0].weight
    y = (weight * weight).sum()  # keeps the weight
    graph.replay()
    with pytest.raises(RuntimeError, match="in place"):
        y.backward()


def test_each_replay_draws_numbers_of_its_own_and_those_of_eager_steps(cuda: Any) -> None:
    def step() -> list[mn.Tensor]:
        x = mn.ones(3, 5, device="cuda", requires_grad=True)
        y = F.dropout(x, 0.4)
        y.backward(y.detach() + 1)
        assert x.grad is not None
        return [y.detach(), x.grad, mn.rand(7, device="cuda"), mn.empty(4, device="cuda").bernoulli_(0.5)]

    def seen(tensors: list[mn.Tensor]) -> list[list[float]]:
        return [tensor.cpu().tolist() for tensor in tensors]

    mn.manual_seed(3)
    eager = [seen(step()) for _ in range(3)]
    state = mn.random.get_state()
    mn.manual_seed(3)
    assert seen(step()) == eager[0]
    graph = mn.cuda.CUDAGraph()
    with mn.cuda.graph(graph):
        found = step()
    for expected in eager[1:]:
        graph.replay()
        assert seen(found) == expected
    assert mn.random.get_state() == state
    assert eager[1] != eager[2]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda run: run.loss.item(), "CUDA or CuPy refused an operation that cannot be captured.*item"),
        (lambda run: run.loss.cpu(), r"an array of shape \(\) is copied between the CPU and a GPU"),
        (lambda run: mn.ones(3).to("cuda"), r"an array of shape \(3,\) is copied between the CPU and a GPU"),
        (lambda run: mn.randn(4, device="cuda"), "numbers are drawn on the CPU while a graph is captured"),
        (lambda run: F.gumbel_softmax(mn.ones(4, device="cuda")), "numbers are drawn on the CPU"),
        (lambda run: mn.rand(4), "numbers are drawn on the CPU"),
        (lambda run: run.x[run.x > 0], "CUDA or CuPy refused an operation that cannot be captured"),
        (lambda run: mn.cuda.synchronize(), "CUDA or CuPy refused an operation that cannot be captured"),
    ],
)
def test_what_cannot_be_captured(ask: Callable[[Run], Any], message: str, cuda: Any) -> None:
    run = Run(OPTIMIZERS["momentum"])
    run.step()
    before, graph = run.state(), mn.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match=message), mn.cuda.graph(graph):
        run.step()
        ask(run)
    assert all(np.array_equal(value, before[key]) for key, value in run.state().items())
    with pytest.raises(RuntimeError, match=r"CUDAGraph.replay: nothing was captured"):
        graph.replay()
    with mn.cuda.graph(graph):
        run.step()
    graph.replay()


def test_optimizers_that_cannot_be_captured(cuda: Any) -> None:
    run = Run(lambda p: optim.RMSprop(p, lr=0.1))
    run.step()
    refused = pytest.raises(RuntimeError, match=r"RMSprop.step: RMSprop computes with numbers on the CPU")
    with refused, mn.cuda.graph(mn.cuda.CUDAGraph()):
        run.step()
    run = Run(OPTIMIZERS["Adam"])
    refused = pytest.raises(RuntimeError, match=r"Adam.step: the captured step creates a part of the optimizer's state")
    with refused, mn.cuda.graph(mn.cuda.CUDAGraph()):
        run.step()
    assert not run.optimizer.state_dict()["state"]
    run.step()
    assert run.optimizer.state_dict()["state"][0]["step"] == 1
    graph = mn.cuda.CUDAGraph()
    with mn.cuda.graph(graph):
        run.step()
    run.optimizer.load_state_dict(run.optimizer.state_dict())
    before, drawn = run.state(), mn.random.get_state()
    with pytest.raises(RuntimeError, match=r"has moved to other memory since the capture.*; capture the graph again"):
        graph.replay()
    assert all(np.array_equal(value, before[key]) for key, value in run.state().items()), "no step was counted"
    assert mn.random.get_state() == drawn


def test_a_group_that_is_stepped_in_another_way_is_captured_again(cuda: Any) -> None:
    run, graph = Run(OPTIMIZERS["momentum"]), mn.cuda.CUDAGraph()
    run.step()
    with mn.cuda.graph(graph):
        run.step()
    for name, value in (("nesterov", False), ("momentum", 0.0)):
        before = run.optimizer.param_groups[0][name]
        run.optimizer.param_groups[0][name] = value
        with pytest.raises(
            RuntimeError, match=r"SGD has other groups or switches than at the capture; capture the graph again"
        ):
            graph.replay()
        run.optimizer.param_groups[0][name] = before
    graph.replay()
    run.optimizer.add_param_group({"params": [mn.ones(2, device="cuda", requires_grad=True)]})
    with pytest.raises(RuntimeError, match="SGD has other groups"):
        graph.replay()


def test_a_schedule_inside_a_graph_moves_on_at_each_replay(cuda: Any) -> None:
    rates = []
    for captured in (False, True):
        run, graph = Run(OPTIMIZERS["SGD"]), mn.cuda.CUDAGraph()

        def step(run: Run = run) -> None:
            run.step()
            run.schedule.step()

        step()
        if captured:
            with mn.cuda.graph(graph):
                step()
        assert run.schedule.last_epoch == 1, "a capture counts nothing"
        found = []
        for _ in range(5):
            if captured:
                graph.replay()
            else:
                step()
            found.append((run.optimizer.param_groups[0]["lr"], run.loss.item()))
        rates.append(found)
    assert rates[0] == rates[1]
    assert rates[0][0] != rates[0][1]


def test_a_schedule_that_is_given_a_number_stays_outside(cuda: Any) -> None:
    run = Run(OPTIMIZERS["SGD"])
    plateau = optim.lr_scheduler.ReduceLROnPlateau(run.optimizer)
    restarts = optim.lr_scheduler.CosineAnnealingWarmRestarts(run.optimizer, 3)
    for schedule, argument in ((plateau, "metrics"), (restarts, "epoch")):
        name = type(schedule).__name__
        refused = pytest.raises(RuntimeError, match=rf"{name}.step: {argument} is a number on the CPU")
        with refused, mn.cuda.graph(mn.cuda.CUDAGraph()):
            schedule.step(1.0)


def test_one_graph_at_a_time_and_each_once(cuda: Any) -> None:
    run, graph = Run(OPTIMIZERS["SGD"]), mn.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="the current stream is the default stream"):
        graph.capture_begin()
    with mn.cuda.graph(graph):
        run.step()
        with pytest.raises(RuntimeError, match="another graph is being captured"), mn.cuda.graph(mn.cuda.CUDAGraph()):
            pass
    with pytest.raises(RuntimeError, match="this CUDAGraph already holds a graph"), mn.cuda.graph(graph):
        pass
    with pytest.raises(RuntimeError, match="no capture has begun"):
        graph.capture_end()
    graph.reset()
    with mn.cuda.graph(graph, pool=mn.cuda.graph_pool_handle()):
        run.step()
    assert graph.pool() is not None
    graph.replay()


def test_memory_of_a_graph_is_its_own(cuda: Any) -> None:
    from minorm.kernels.gpu import cublas

    run, graph = Run(OPTIMIZERS["SGD"]), mn.cuda.CUDAGraph()
    pool = cuda.get_default_memory_pool()
    before = pool.used_bytes()
    with mn.cuda.graph(graph):
        run.step()
    apart = capture.CHUNK + cublas.SCRATCH  # what is read at every replay is not memory that the replay writes before
    assert apart <= pool.used_bytes() <= before + apart
    assert graph.pool().used_bytes() > run.x.array.nbytes


def test_a_replay_is_done_on_the_gpu_of_the_capture(cuda: Any) -> None:
    graph = mn.cuda.CUDAGraph()
    with mn.cuda.stream(mn.cuda.Stream("cuda:1")):
        x = mn.ones(3, device="cuda:1", requires_grad=True)
        optimizer = optim.SGD([x], lr=1.0)
        with mn.cuda.graph(graph):
            optimizer.zero_grad()
            (x * x).sum().backward()
            optimizer.step()
    assert mn.cuda.current_device() == 0
    graph.replay()
    assert x.cpu().tolist() == [-1, -1, -1]
    assert mn.cuda.current_device() == 0


def test_no_graph_is_replayed_inside_a_capture(cuda: Any) -> None:
    first, second, x = mn.cuda.CUDAGraph(), mn.cuda.CUDAGraph(), mn.ones(3, device="cuda")
    with mn.cuda.graph(first):
        x + 1
    with mn.cuda.graph(second):
        with pytest.raises(RuntimeError, match="another graph is being captured; replay after"):
            first.replay()
        assert mn.cuda.is_current_stream_capturing()
        y = x + 2
    second.replay()
    assert y.cpu().tolist() == [3, 3, 3]


def test_pinned_memory_goes_back_when_its_copy_is_done(cuda: Any) -> None:
    run, graph = Run(OPTIMIZERS["SGD"]), mn.cuda.CUDAGraph()
    with mn.cuda.graph(graph):
        run.step()
    graph.replay()
    cuda.transfers.clear()
    graph.reset()
    assert cuda.transfers.events_awaited == 1


def test_memory_that_a_graph_cannot_have_is_an_error(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(size: int) -> Any:
        raise cuda.cuda.runtime.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")

    x, graph = mn.ones(3, device="cuda"), mn.cuda.CUDAGraph()
    monkeypatch.setattr(cuda.cuda, "Memory", full)
    with (
        pytest.raises(MemoryError, match=r"cannot allocate \d+ bytes for a graph: cudaErrorMemory"),
        mn.cuda.graph(graph),
    ):
        x + 1
    with pytest.raises(RuntimeError, match="nothing was captured"):
        graph.replay()


def test_an_error_of_the_user_passes_as_it_is(cuda: Any) -> None:
    with pytest.raises(NotImplementedError, match=r"^not yet$"), mn.cuda.graph(mn.cuda.CUDAGraph()):
        raise NotImplementedError("not yet")


def test_a_replay_leaves_out_a_batch_that_is_not_finite(cuda: Any) -> None:
    layer, x = nn.BatchNorm2d(4).to("cuda"), mn.zeros(4, 4, 3, 3, device="cuda")
    draws = [np.random.default_rng(seed).standard_normal((4, 4, 3, 3)).astype(np.float32) for seed in range(4)]
    draws[1][0, 2, 0, 0] = np.inf
    draws[2][3, 0, 1, 1] = np.nan
    layer(x)
    graph = mn.cuda.CUDAGraph()
    with mn.cuda.graph(graph):
        layer(x)
    for draw in draws:
        x.copy_(mn.tensor(draw))
        graph.replay()
    mean, var = np.zeros(4), np.ones(4) * 0.9
    for draw in (draws[0], draws[3]):
        mean = mean * 0.9 + draw.astype(np.float64).mean((0, 2, 3)) * 0.1
        var = var * 0.9 + draw.astype(np.float64).var((0, 2, 3)) * 0.1
    np.testing.assert_allclose(layer.running_mean.cpu().numpy(), mean, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(layer.running_var.cpu().numpy(), var, rtol=1e-5)
    assert (layer.num_batches_tracked.item(), layer.skipped_batches) == (3, 2)
