"""Eight threads that run eight models give each model's own bits, with Python's global lock and without."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn, optim
from minorm.kernels.cpu import memory

COUNT = 8
STEPS = 6
FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


@pytest.fixture(autouse=True)
def _often() -> Iterator[None]:
    """Let Python's threads take turns after every few bytecodes, not after 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(run: Callable[[int], Any], count: int = COUNT) -> list[Any]:
    """Start run(0) to run(count - 1) at once, each in a separate thread; return their results."""
    start = threading.Barrier(count)

    def work(i: int) -> Any:
        start.wait()
        return run(i)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def model(i: int) -> nn.Module:
    """Build model number i; all differ in norms, widths, tied and parametrized weights, or the bias."""
    mn.manual_seed(i)
    width = 4 + 2 * (i % 3)
    norms: list[Callable[[], nn.Module]] = [
        lambda: nn.BatchNorm2d(width),
        lambda: nn.GroupNorm(2, width),
        lambda: nn.InstanceNorm2d(width, affine=True, track_running_stats=True),
        lambda: nn.LayerNorm((width, 12, 12)),
    ]
    first, second = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1, bias=i % 2 == 0)
    if i % 4 == 3:
        second = nn.utils.parametrizations.weight_norm(second)
    made = nn.Sequential(
        first, norms[i % 4](), nn.ReLU(), second, norms[(i + 1) % 4](), nn.GELU(), nn.AvgPool2d(2), nn.Flatten()
    )
    made.append(nn.Linear(width * 36, 5))
    return made


def train(i: int, net: nn.Module) -> list[bytes]:
    """Train a few steps; return the bits of losses, gradients, hooked gradients, weights and running statistics."""
    rng = np.random.default_rng(i)
    kinds: list[Any] = [optim.SGD, optim.Adam]
    optimizer = kinds[i % 2](net.parameters(), lr=0.01 * (i + 1))
    seen: list[bytes] = []

    def see(gradient: Any) -> None:
        seen.append(gradient.numpy().tobytes())

    for _ in range(STEPS):
        x, labels = mn.tensor(rng.normal(size=(6, 3, 12, 12)).astype(np.float32)), mn.tensor(rng.integers(0, 5, 6))
        optimizer.zero_grad()
        hidden = net[0](x)
        hidden.register_hook(see)
        y = hidden
        for layer in list(net)[1:]:
            y = layer(y)
        loss = F.cross_entropy(y, labels)
        with mn.no_grad():  # the mode of this thread alone
            assert not net(x).requires_grad
        assert mn.is_grad_enabled()
        loss.backward()
        seen += [loss.numpy().tobytes(), *(p.grad.numpy().tobytes() for p in net.parameters())]
        optimizer.step()
    return seen + [value.numpy().tobytes() for value in net.state_dict().values()]


def test_eight_models_in_eight_threads_have_their_own_bits() -> None:
    alone = [train(i, model(i)) for i in range(COUNT)]
    assert len({bits[-1] for bits in alone}) == COUNT  # they differ, or swapping them would go unseen
    models = [model(i) for i in range(COUNT)]
    assert together(lambda i: train(i, models[i])) == alone


def test_one_model_evaluated_by_eight_threads_has_the_same_bits() -> None:
    net = model(0).eval()
    x = mn.tensor(np.random.default_rng(0).normal(size=(6, 3, 12, 12)).astype(np.float32))

    def run(_: int) -> set[bytes]:
        with mn.no_grad():
            return {net(x).numpy().tobytes() for _ in range(20)}

    (expected,) = run(0)
    assert together(run) == [{expected}] * COUNT


def test_no_two_threads_get_the_same_memory() -> None:
    """Each writes its number everywhere and finds nothing else; arrays die in other threads than they were made in."""
    bins: list[Any] = [[] for _ in range(COUNT)]

    def run(i: int) -> int:
        rng = np.random.default_rng(i)
        wrong = 0
        for _ in range(400):
            arrays = [memory.empty((int(n),), "int64") for n in rng.integers(600, 5000, 4)]
            for array in arrays:
                array.fill(i)
            wrong += sum(int((array != i).sum()) for array in arrays)
            bins[(i + 1) % COUNT] = arrays
        return wrong

    before = memory.statistics()
    assert together(run) == [0] * COUNT
    bins.clear()
    after = memory.statistics()
    assert after["used_bytes"] == before["used_bytes"]
    assert after["reused"] + after["fresh"] - before["reused"] - before["fresh"] == COUNT * 400 * 4


def test_no_hook_is_lost_that_threads_register_at_once() -> None:
    x, layer = mn.tensor([1.0], requires_grad=True), nn.Identity()
    called: list[Any] = []

    def run(i: int) -> None:
        for _ in range(50):
            x.register_hook(lambda _: called.append(("tensor", i)))
            layer.register_forward_hook(lambda *_: called.append(("module", i)))
            layer.register_forward_hook(lambda *_: called.append(("first", i)), prepend=True)

    together(run)
    layer(x).sum().backward()
    for kind in ("tensor", "module", "first"):
        assert sorted(i for name, i in called if name == kind) == [i for i in range(COUNT) for _ in range(50)]
    assert [name for name, _ in called[: COUNT * 50]] == ["first"] * COUNT * 50


def test_a_hook_is_called_while_others_come_and_go() -> None:
    """Registering one never leaves a moment in which another is not there."""
    layer, called = nn.Identity(), []
    layer.register_forward_hook(lambda *_: called.append(1))
    over = threading.Event()

    def run(i: int) -> None:
        if i == 0:
            for _ in range(2000):
                layer(mn.tensor(1.0))
            over.set()
        while not over.is_set():
            layer.register_forward_hook(lambda *_: None, prepend=i % 2 == 0).remove()

    together(run, 4)
    assert len(called) == 2000


def test_threads_draw_each_number_once() -> None:
    """They share the generator: which thread gets which number is theirs, and no number comes twice."""
    mn.manual_seed(3)
    found = together(lambda _: [mn.rand(7).numpy() for _ in range(20)])
    mn.manual_seed(3)
    alone = [mn.rand(7).numpy() for _ in range(20 * COUNT)]
    assert sorted(x.tobytes() for drawn in found for x in drawn) == sorted(x.tobytes() for x in alone)


@pytest.mark.skipif(not FREE, reason="needs Python without a GIL")
def test_no_module_of_ours_brings_the_lock_back() -> None:
    code = "import sys, minorm, minorm_ext\n"
    code += "for name in ('conv', 'elementwise', 'matmul', 'memory', 'norm', 'pool', 'softmax', 'sums', 'update'):\n"
    code += "    minorm_ext.kernels(name, level='baseline')\nassert not sys._is_gil_enabled()"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
