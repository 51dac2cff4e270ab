"""Effects of running kernels on the rest of a program: other threads, signals, forks, limits, small numbers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import models
from minorm.kernels import cpu
from minorm.kernels.reference.gates import Gate
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan

FLOAT = np.float32


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = mn.get_num_threads()
    mn.set_num_threads(1)
    yield
    mn.set_num_threads(before)


def ones(*shape: int, dtype: Any = FLOAT) -> np.ndarray:
    return np.ones(shape, dtype)


# Each makes its arrays and returns a call of a tenth of a second or more on one thread: one kernel, nothing else.


def norm_call(shape: tuple[int, ...], axes: tuple[int, ...], param: tuple[int, ...]) -> Callable[[], Any]:
    nest = plan(shape, axes, 1, param)
    x, s = ones(*shape, dtype=np.float16), ones(nest.param_size)
    return lambda: cpu.norm.forward(nest, x, s, s, Equation(), np.dtype(np.float64))


def norm_gradient_call(shape: tuple[int, ...], axes: tuple[int, ...], param: tuple[int, ...]) -> Callable[[], Any]:
    nest = plan(shape, axes, 1, param)
    x, s = ones(*shape, dtype=np.float16), ones(nest.param_size)
    stats = cpu.norm.forward(nest, x, s, s, Equation(), np.dtype(np.float64))[1]
    return lambda: cpu.norm.backward(nest, x, x, stats, s, Equation(), (True, True), np.dtype(np.float64))


def conv_gradient_call() -> Callable[[], Any]:
    x, w = ones(16, 64, 96, 96), (64, 64, 3, 3)
    return lambda: cpu.conv.grad_weight(x, x, w, (1, 1), ((1, 1), (1, 1)), (1, 1), 1)


def pool_gradient_call() -> Callable[[], Any]:
    dy = ones(24, 64, 112, 112)
    return lambda: cpu.pool.avg_backward(dy, dy.shape, (7, 7), (1, 1), ((3, 3), (3, 3)), (1, 1), True, None)


def loss_call() -> Callable[[], Any]:
    x, target = ones(1 << 16, 1024), np.zeros(1 << 16, np.int64)
    return lambda: cpu.elementwise.cross_entropy(x, target)


def update_call() -> Callable[[], Any]:
    p = ones(1 << 27)
    return lambda: cpu.update.scale([p], 1.0)


def conv_call() -> Callable[[], Any]:
    x, w = mn.ones(16, 64, 96, 96), mn.ones(64, 64, 3, 3)
    return lambda: F.conv2d(x, w, padding=1)


def pool_call() -> Callable[[], Any]:
    x = mn.ones(64, 64, 112, 112)
    return lambda: F.max_pool2d(x, 7, 1, 3)


def recurrent_call() -> Callable[[], Any]:
    x, h, c, y = ones(200, 64, 1024), ones(64, 256), ones(64, 256), ones(200, 64, 256)
    r = ones(1024, 256) / 256
    cell = cpu.recurrent.Cell("LSTM", "ifgo", (Gate("Sigmoid"), Gate("Tanh"), Gate("Tanh")), None, False)
    return lambda: cpu.recurrent.forward(cell, x, r, None, None, h, c, y, None, False, False)


def matmul_call() -> Callable[[], Any]:
    a = ones(2048, 2048)
    return lambda: cpu.matmul.matmul(a, a)


def elementwise_call() -> Callable[[], Any]:
    x = ones(1 << 26)
    return lambda: cpu.elementwise.gelu(x)


def softmax_call() -> Callable[[], Any]:
    x = ones(1 << 16, 1024)
    return lambda: cpu.elementwise.softmax(x, 1)


def sums_call() -> Callable[[], Any]:
    x = ones(1 << 14, 1 << 14)
    return lambda: cpu.sums.sum_axes(x, (0,), False)


LONG: dict[str, Callable[[], Callable[[], Any]]] = {
    "norm, rows": partial(norm_call, (24000, 4096), (1,), (1,)),
    "norm, lanes": partial(norm_call, (400_000, 256), (0,), (1,)),
    "norm, backward, short rows": partial(norm_gradient_call, (400_000, 128), (1,), (1,)),
    "norm, backward, lanes": partial(norm_gradient_call, (200_000, 256), (0,), (1,)),
    "conv": conv_call,
    "conv, gradient of the weights": conv_gradient_call,
    "pool": pool_call,
    "pool, backward": pool_gradient_call,
    "recurrent": recurrent_call,
    "matmul": matmul_call,
    "elementwise": elementwise_call,
    "softmax": softmax_call,
    "cross entropy": loss_call,
    "sums": sums_call,
    "update": update_call,
}


@pytest.mark.parametrize("name", LONG)
def test_other_threads_run_while_a_kernel_does(name: str, one_thread: None) -> None:
    """With the interpreter's lock held, a thread that wants to tick could not even once."""
    call = LONG[name]()
    call()
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        most = 0
        for _ in range(5):  # a busy machine may starve the thread once
            before = ticks[0]
            call()
            most = max(most, ticks[0] - before)
            if most >= 10:
                break
    finally:
        stop.set()
        thread.join()
    assert most >= 10


@pytest.mark.parametrize("name", LONG)
def test_signals_are_answered_while_a_kernel_runs(name: str, one_thread: None) -> None:
    """A timer goes off every 2 ms. One entry of its handler could come after the kernel's end; two could not."""
    call = LONG[name]()
    call()
    entries: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: entries.append(time.perf_counter()))
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert sum(start < entry < end for entry in entries) >= 2


def test_ctrl_c_ends_a_kernel_and_leaves_everything_usable(one_thread: None) -> None:
    x = mn.ones(64, 64, 96, 96)
    w = mn.ones(64, 64, 3, 3)
    expected = F.conv2d(x[:1], w).array
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in range(1000):
                F.conv2d(x, w)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    np.testing.assert_array_equal(F.conv2d(x[:1], w).array, expected)


# Processes


def in_a_new_process(program: str, timeout: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_hundred_forks_after_parallel_kernels() -> None:
    """The children of a process with OpenMP workers would wait for them for ever. In a process without pytest's own."""
    program = """
        import os, signal, warnings
        import numpy as np
        import minorm as mn, minorm.functional as F

        warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads: that is the point here
        mn.set_num_threads(3)
        x = mn.tensor(np.random.default_rng(0).standard_normal((8, 16, 40, 40)).astype("f"), requires_grad=True)

        def compute():
            x.grad = None
            F.relu(F.batch_norm(x, None, None, training=True)).sum().backward()
            return x.grad.numpy().tobytes()

        expected = compute()
        for i in range(100):
            assert compute() == expected
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                os._exit(0 if compute() == expected else 1)
            assert os.waitpid(child, 0)[1] == 0, i
        print("done")
    """
    result = in_a_new_process(program)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("forks", [25, pytest.param(500, marks=pytest.mark.slow)])
def test_forks_beside_threads_that_train(forks: int) -> None:
    """Whatever the others hold at the moment, OpenMP's team, a buffer, a lock: the child computes the same."""
    program = f"""
        import os, signal, threading, warnings
        import minorm as mn, minorm.functional as F

        warnings.simplefilter("ignore")
        mn.set_num_threads(3)

        def tensors():
            return [mn.randn(*size).requires_grad_() for size in ((8, 16, 20, 20), (16, 16, 3, 3), (300, 300))]

        def compute(x, w, a):
            x.grad = None
            y = F.relu(F.batch_norm(F.conv2d(x, w, padding=1), None, None, training=True))
            (y.sum() + (a @ a).sum()).backward()
            return x.grad.numpy().tobytes()

        def train():
            mine = tensors()
            while True:
                compute(*mine)
                F.dropout(mine[0], 0.3)

        shared = tensors()
        expected = compute(*shared)
        for _ in range(3):
            threading.Thread(target=train, daemon=True).start()
        failed = False
        for _ in range({forks}):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                F.dropout(shared[0], 0.3)
                os._exit(0 if compute(*shared) == expected else 1)
            failed = os.waitpid(child, 0)[1] != 0
            if failed:
                break
        print("failed:", failed, flush=True)
        os._exit(0)
    """
    result = in_a_new_process(program, timeout=280)
    assert result.stdout == "failed: False\n", result.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_worker_processes_compute_the_same_bits(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    program = f"""
        import multiprocessing
        import numpy as np
        import minorm as mn, minorm.functional as F

        def compute(_=0):
            mn.set_num_threads(3)
            x = mn.tensor(np.random.default_rng(0).standard_normal((8, 16, 40, 40)).astype("f"), requires_grad=True)
            F.relu(F.batch_norm(x, None, None, training=True)).sum().backward()
            return x.grad.numpy().tobytes()

        if __name__ == "__main__":
            expected = compute()
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                print(pool.map(compute, range(4)) == [expected] * 4)
    """
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:  # workers import the main module: it needs a file
        file.write(textwrap.dedent(program))
        file.flush()
        paths = (str(Path(mn.__file__).parents[1]), os.environ.get("PYTHONPATH", ""))  # where minorm is not installed
        result = subprocess.run(
            [sys.executable, file.name], capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )  # fmt: skip
    assert result.stdout == "True\n", result.stderr


# Threads


def test_eight_threads_at_inference_compute_the_same_bits() -> None:
    mn.manual_seed(0)
    model = models.build("norms", 3, 16, 10).eval()
    rng = np.random.default_rng(0)
    inputs = [mn.tensor(rng.standard_normal((4, 3, 16, 16)).astype(FLOAT)) for _ in range(8)]

    def infer(x: mn.Tensor) -> bytes:
        with mn.no_grad():
            return model(x).numpy().tobytes()

    expected = [infer(x) for x in inputs]

    def work(i: int) -> bool:
        return all(infer(inputs[i]) == expected[i] for _ in range(20))

    assert together(8, work) == [True] * 8


def test_threads_train_models_of_their_own() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 1, 8, 8)).astype(FLOAT)
    y = rng.integers(0, 10, 8)

    def build(seed: int) -> Any:
        mn.manual_seed(seed)
        return models.build("digits", 1, 8, 10)

    def train(model: Any) -> bytes:
        optimizer = mn.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            F.cross_entropy(model(mn.tensor(x)), mn.tensor(y)).backward()
            optimizer.step()
        return b"".join(value.numpy().tobytes() for value in model.state_dict().values())

    expected = [train(build(seed)) for seed in range(4)]
    made = [build(seed) for seed in range(4)]
    assert together(4, lambda i: train(made[i])) == expected


def together(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Return the results of work(0), work(1) ..., each in a separate thread."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(work, range(count)))


# Limits


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
@pytest.mark.parametrize("operation", [
    "F.batch_norm(x, None, None, training=True)",
    "F.layer_norm(x.transpose(1, 3), 64, mn.ones(64), mn.zeros(64)).sum().backward()",
    "F.conv2d(x, mn.ones(64, 64, 3, 3), padding=1)",
    "F.max_pool2d(x, 3, 1, 1)",
    "x + x",
    "F.gelu(x).sum().backward()",
    "F.softmax(x, 1)",
    "x.reshape(-1, 64) @ mn.ones(64, 64)",
    "x.half()",
])  # fmt: skip
def test_a_limit_on_memory_ends_in_memory_error(operation: str) -> None:
    """100 MB of x, and room for 60 MB more; the pool's gigabyte of address space is taken, but for 60 MB. The process
    goes on and computes as before."""
    program = f"""
        import resource
        import numpy as np
        import minorm as mn, minorm.functional as F
        from minorm.kernels.cpu import memory

        small = mn.ones(2, 64, 8, 8)
        check = lambda: F.conv2d(F.batch_norm(small, None, None, training=True), mn.ones(8, 64, 3, 3)).sum().item()
        before = check()
        x = mn.ones(128, 64, 56, 56).requires_grad_()
        taken = memory.empty((964 << 20,), np.uint8)  # never touched
        with open("/proc/self/statm") as file:
            in_use = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + (60 << 20), resource.RLIM_INFINITY))
        try:
            {operation}
            print("it fits")
        except MemoryError:
            print("MemoryError", check() == before)
    """
    result = in_a_new_process(program)
    assert result.stdout in ("MemoryError True\n", "it fits\n" if "half" in operation else ""), result.stderr
    assert result.returncode == 0, result.stderr


NO_MEMORY = "resource.RLIMIT_AS, (int(open('/proc/self/statm').read().split()[0]) * 4096 + (100 << 20),) * 2"
NO_PROCESSES = "resource.RLIMIT_NPROC, (20, 20)"


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
@pytest.mark.parametrize("limit", [NO_MEMORY, NO_PROCESSES], ids=["memory", "processes"])
def test_threads_that_the_system_refuses(limit: str) -> None:
    """OpenMP would end the process. The number stays, and each thread of the program computes with what it can get."""
    program = f"""
        import os, resource, threading
        import minorm as mn

        a = mn.ones(300, 300)
        mn.set_num_threads(1)
        expected = (a @ a).sum().item()
        if os.getuid() == 0:  # whom no limit on processes holds
            os.setgroups([])
            os.setgid(65534)
            os.setuid(100_000 + os.getpid())  # a user who has no other process
        resource.setrlimit({limit})
        try:
            mn.set_num_threads(64)
        except ValueError as error:
            print(str(error).split(",")[0], mn.get_num_threads())
        mn.set_num_threads(4)
        together, found = threading.Barrier(8), []

        def compute():
            together.wait()  # all have started: what is left is for the kernels
            found.append((a @ a).sum().item())
            together.wait()

        threads = [threading.Thread(target=compute) for _ in range(7)]
        for thread in threads:
            thread.start()
        compute()
        for thread in threads:
            thread.join()
        print(found == [expected] * 8)
    """
    result = in_a_new_process(program)
    assert result.stdout == "set_num_threads: n=64 1\nTrue\n", result.stderr
    assert result.returncode == 0


@pytest.mark.parametrize("n", [40_000, 1_000_000, 10**20])
def test_more_threads_in_the_environment_than_there_can_be(n: int) -> None:
    program = "import minorm as mn; print((mn.ones(10**6) * 2).sum().item(), mn.get_num_threads() <= 1024)"
    result = in_a_new_process(program, OMP_NUM_THREADS=str(n))
    assert (result.returncode, result.stdout) == (0, "2000000.0 True\n"), result.stderr


def test_denormal_numbers_survive_every_kernel() -> None:
    """Nothing sets flush-to-zero, on any thread of a parallel loop."""
    tiny = np.full((64, 4096), 1e-40, FLOAT)
    expected = tiny * FLOAT(0.5)
    assert expected.all()
    mn.set_num_threads(2)
    for name in ("norm, rows", "matmul", "softmax"):
        LONG[name]()()
    np.testing.assert_array_equal(cpu.elementwise.scale(np.repeat(tiny, 16, 0), 0.5)[:64], expected)
    np.testing.assert_array_equal(tiny * FLOAT(0.5), expected)
    assert 5e-324 * 1.0 != 0.0
    y = F.normalization(mn.tensor(tiny), mn.full((1, 4096), 0.5), axes=(1,), eps=1e-5)
    np.testing.assert_array_equal(y.array, 0)  # constant rows


# More than 2^31 elements: some GB of memory and a minute each, so they run only when asked for: pytest -m slow

LARGE = (1 << 31) + 4096 * 3


@pytest.mark.slow
def test_large_elementwise() -> None:
    x = np.zeros(LARGE, FLOAT)
    x[-1], x[1 << 31], x[5] = 3, 2, 1
    y = cpu.elementwise.relu(x)
    assert np.array_equal(np.flatnonzero(y), [5, 1 << 31, LARGE - 1])


def mean_of(row: np.ndarray, f: Callable[[np.ndarray], np.ndarray]) -> float:
    """The mean of f in float64, some at a time, which stay in cache: the whole row in float64 would not fit."""
    step = 1 << 16
    return sum(float(f(row[i : i + step].astype(np.float64)).sum()) for i in range(0, row.size, step)) / row.size


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("shape", "axes", "param"),
    [
        ((LARGE // 4096, 4096), (1,), (1,)),
        ((LARGE // 4096, 4096), (0,), (1,)),
        ((3, LARGE // 12, 4), (0, 1), (2,)),
        ((3, 4, LARGE // 12), (0, 2), (1,)),
        ((1, LARGE), (1,), (0,)),
    ],
    ids=str,
)
def test_large_norms(shape: tuple[int, ...], axes: tuple[int, ...], param: tuple[int, ...]) -> None:
    """4 GB of float16, forward and backward; the first and the last statistic are held against plain sums."""
    nest = plan(shape, axes, 1, param)
    x = np.resize(np.random.default_rng(0).standard_normal(4099).astype(np.float16), shape)
    s, b = np.full(nest.param_size, 2, FLOAT), np.ones(nest.param_size, FLOAT)
    y, stats = cpu.norm.forward(nest, x, s, b, Equation())
    edges = (0, -1) if nest.rows > 1 else (0,)
    for edge in edges:
        row = x[tuple(slice(None) if i in axes else edge for i in range(len(shape)))].reshape(-1)
        mean = mean_of(row, lambda t: t)
        var = mean_of(row, lambda t, mean=mean: (t - mean) ** 2)
        np.testing.assert_allclose([stats.mean[edge], stats.var[edge]], [mean, var], rtol=1e-5, atol=1e-6)
        some = np.r_[0:50, -50:0] if row.size > 100 else np.arange(row.size)
        exact = (row[some] - mean) / np.sqrt(var + 1e-5) * 2 + 1
        found = y[tuple(slice(None) if i in axes else edge for i in range(len(shape)))].reshape(-1)[some]
        np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-3)
    del y
    dx, ds, db = cpu.norm.backward(nest, x, x, stats, s, Equation())
    assert np.isfinite(ds).all()
    assert np.isfinite(db).all()
    for edge in edges:
        row = x[tuple(slice(None) if i in axes else edge for i in range(len(shape)))].reshape(-1)
        mean, rstd = stats.mean[edge], stats.rstd[edge]
        mean_gx = mean_of(row, lambda t, mean=mean, rstd=rstd: 2 * t * (t - mean) * rstd)
        some = np.r_[0:50, -50:0] if row.size > 100 else np.arange(row.size)
        t = row[some].astype(np.float64)
        exact = rstd * (2 * t - 2 * mean_of(row, lambda t: t) - (t - mean) * rstd * mean_gx)
        found = dx[tuple(slice(None) if i in axes else edge for i in range(len(shape)))].reshape(-1)[some]
        np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-3)
