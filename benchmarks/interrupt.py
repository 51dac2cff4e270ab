"""How long Ctrl-C waits: for every kernel on large inputs, the longest time between two looks at signals.

    python -m benchmarks.interrupt [--elements 134217728] [--threads 2 1] [--only norm conv] [--exit]

A timer signal comes every 2 ms while a kernel runs; Python's handler writes down when it is let in. The largest gap
between two entries, of several calls, is what Ctrl-C may have to wait for. With one thread it is measured in that
thread's own time, which says the same on a busy machine as on an idle one. With --exit, each case also runs in a
separate process that gets a real SIGINT in the middle of a call, and the benchmark prints how long that process takes
to end.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import minorm_ext
from minorm.kernels.cpu import conv, elementwise, matmul, norm, pool, update
from minorm.normalization.equation import Equation
from minorm.normalization.nest import plan

Work = Callable[[], Any]
PERIOD = 0.002


def noise(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """Return cheap numbers of mean 0 and variance 1, roughly: large arrays of real noise take minutes."""
    small = np.random.default_rng(0).standard_normal(65537).astype(dtype)
    return np.resize(small, shape)


# Each case gets the number of elements and returns what to call. Inputs are made first, outside the measurement.


def norms(n: int, shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any = np.float32, **options: Any) -> list[Work]:
    """Return a normalization's forward and backward; -1 in the shape makes n elements in all."""
    known = -int(np.prod(shape))
    shape = tuple(max(1, n // known) if count == -1 else count for count in shape)
    nest = plan(shape, axes, **options)
    x = noise(*shape, dtype=dtype)
    s, b = (np.ones(nest.param_size, dtype) if options.get("param") else None for _ in range(2))
    stats = norm.forward(nest, x, s, b, Equation())[1]
    return [
        lambda: norm.forward(nest, x, s, b, Equation()),
        lambda: norm.backward(nest, x, x, stats, s, Equation(), (True, s is not None)),
    ]


def convolutions(
    x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, padding: int = 0, groups: int = 1, dtype: Any = np.float32
) -> list[Work]:
    """Forward, the gradient for the input, the gradient for the weights."""
    rank = len(x) - 2
    options = ((stride,) * rank, ((padding, padding),) * rank, (1,) * rank, groups)
    source, weight = noise(*x, dtype=dtype), noise(*w, dtype=dtype)
    y_shape = (x[0], w[0], *conv.output_shape(x[2:], w[2:], *options[:3]))
    dy = noise(*y_shape, dtype=dtype)
    return [
        lambda: conv.forward(source, weight, None, *options),
        lambda: conv.grad_input(dy, weight, x, *options),
        lambda: conv.grad_weight(dy, source, w, *options),
    ]


def products(a: tuple[int, ...], b: tuple[int, ...], dtype: Any = np.float32) -> list[Work]:
    """A matrix product as it is, and with the first operand transposed in memory."""
    left, right = noise(*a, dtype=dtype), noise(*b, dtype=dtype)
    turned = np.ascontiguousarray(left.swapaxes(-1, -2)).swapaxes(-1, -2)
    return [lambda: matmul.matmul(left, right), lambda: matmul.matmul(turned, right)]


def pools(shape: tuple[int, ...], kernel: int, stride: int, padding: int = 0, dtype: Any = np.float32) -> list[Work]:
    """Maximum forward and backward, average forward and backward."""
    rank = len(shape) - 2
    window = ((kernel,) * rank, (stride,) * rank, ((padding, padding),) * rank)
    x = noise(*shape, dtype=dtype)
    y, indices = pool.max_forward(x, *window, (1,) * rank, False)
    return [
        lambda: pool.max_forward(x, *window, (1,) * rank, False),
        lambda: pool.max_backward(y, indices, shape),
        lambda: pool.avg_forward(x, *window, (1,) * rank, False, True, None),
        lambda: pool.avg_backward(y, shape, *window, (1,) * rank, True, None),
    ]


def maps(n: int, names: str, dtype: Any = np.float32) -> list[Work]:
    """Elementwise operations; a gradient gets x twice."""
    x = noise(n, dtype=dtype)
    return [
        functools.partial(getattr(elementwise, name), *([x, x] if name.endswith("_grad") or name == "add" else [x]))
        for name in names.split()
    ]


def rows(n: int, length: int, dtype: Any = np.float32) -> list[Work]:
    """Softmax and the cross entropy over rows."""
    x = noise(n // length, length, dtype=dtype)
    target = np.zeros(len(x), np.int64)
    loss, lse = elementwise.cross_entropy(x, target)
    return [
        lambda: elementwise.softmax(x),
        lambda: elementwise.log_softmax(x),
        lambda: elementwise.log_softmax_grad(x, x),
        lambda: elementwise.cross_entropy(x, target),
        lambda: elementwise.cross_entropy_grad(loss, x, target, lse),
    ]


def sums(shape: tuple[int, ...], axes: tuple[int, ...], dtype: Any = np.float32) -> list[Work]:
    x = noise(*shape, dtype=dtype)
    return [lambda: elementwise.sum_axes(x, axes)]


def updates(n: int, dtype: Any = np.float32) -> list[Work]:
    p, g, m, v = (noise(n, dtype=dtype) for _ in range(4))
    v *= v
    adam = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
    return [
        lambda: update.sgd([p], [g], [m], lr=1e-3, momentum=0.9),
        lambda: update.adam([p], [g], [m], [v], [], [1], **adam),
        lambda: update.scale([p], 0.5),
        lambda: update.square_sum(p),
    ]


CASES: dict[str, Callable[[int], list[Work]]] = {
    "norm: batch, NCHW": lambda n: norms(n, (-1, 64, 56, 56), (0, 2, 3), param=(1,)),
    "norm: batch, 2 channels": lambda n: norms(n, (4, 2, -1), (0, 2), param=(1,)),
    "norm: batch, 1 channel": lambda n: norms(n, (1, 1, -1), (0, 2), param=(1,)),
    "norm: batch, channels-last": lambda n: norms(n, (-1, 56, 56, 64), (0, 1, 2), param=(3,)),
    "norm: batch, N x 256": lambda n: norms(n, (-1, 256), (0,), param=(1,)),
    "norm: batch, N x 2": lambda n: norms(n, (-1, 2), (0,), param=(1,)),
    "norm: batch, 2 x C": lambda n: norms(n, (2, -1), (0,), param=(1,)),
    "norm: batch, spatial=0": lambda n: norms(n, (32, -1, 8, 8), (0,), param=(1, 2, 3)),
    "norm: instance": lambda n: norms(n, (-1, 64, 56, 56), (2, 3), param=(1,)),
    "norm: instance, N x C x 4": lambda n: norms(n, (-1, 8, 4), (2,), param=(1,)),
    "norm: group": lambda n: norms(n, (-1, 64, 56, 56), (2, 3), num_groups=8, param=(1, 2)),
    "norm: layer, rows of 768": lambda n: norms(n, (-1, 768), (1,), param=(1,)),
    "norm: layer, rows of 2": lambda n: norms(n, (-1, 2), (1,), param=(1,)),
    "norm: layer, one row": lambda n: norms(n, (1, -1), (1,), param=(1,)),
    "norm: layer, 300 rows": lambda n: norms(n, (300, -1), (1,), param=(1,)),
    "norm: layer, channels of NCHW": lambda n: norms(n, (-1, 64, 56, 56), (1,), param=(1,)),
    "norm: layer, channels of one image": lambda n: norms(n, (1, -1, 16, 16), (1,), param=(1,)),
    "norm: axes 0 and 2, one scale a column": lambda n: norms(n, (-1, 2, 1024), (0, 2), param=(2,)),
    "norm: mean and variance, all axes": lambda n: norms(n, (-1, 64, 56, 56), (0, 1, 2, 3)),
    "norm: batch, NCHW, float64": lambda n: norms(n // 2, (-1, 2, 56, 56), (0, 2, 3), np.float64, param=(1,)),
    "norm: batch, NCHW, float16": lambda n: norms(n, (-1, 2, 56, 56), (0, 2, 3), np.float16, param=(1,)),
    "conv: 256 -> 256, 3x3": lambda n: convolutions((64, 256, 56, 56), (256, 256, 3, 3), padding=1),
    "conv: 1024 -> 1024, 3x3, small": lambda n: convolutions((256, 1024, 7, 7), (1024, 1024, 3, 3), padding=1),
    "conv: 4096 -> 4096, 1x1 of 1x1": lambda n: convolutions((4096, 4096, 1, 1), (4096, 4096, 1, 1)),
    "conv: one image, 3 -> 64, 7x7": lambda n: convolutions((1, 3, 2048, 2048), (64, 3, 7, 7), 2, 3),
    "conv: one image, 1 -> 1, 31x31": lambda n: convolutions((1, 1, 4096, 4096), (1, 1, 31, 31)),
    "conv: depthwise": lambda n: convolutions((32, 512, 56, 56), (512, 1, 7, 7), padding=3, groups=512),
    "conv: a line": lambda n: convolutions((1, 8, 1 << 20), (64, 8, 65)),
    "conv: 3-d": lambda n: convolutions((2, 32, 64, 64, 64), (64, 32, 3, 3, 3)),
    "conv: 128 -> 128, 3x3, float64": lambda n: convolutions(
        (32, 128, 56, 56), (128, 128, 3, 3), padding=1, dtype=np.float64
    ),
    "matmul: square": lambda n: products((8192, 4096), (4096, 8192)),
    "matmul: long depth": lambda n: products((4, n // 4), (n // 4, 4)),
    "matmul: high": lambda n: products((n // 64, 64), (64, 10)),
    "matmul: high, one column": lambda n: products((n // 64, 64), (64, 1)),
    "matmul: wide": lambda n: products((10, 64), (64, n // 64)),
    "matmul: outer": lambda n: products((16384, 1), (1, n // 16384)),
    "matmul: stack": lambda n: products((n // 64, 8, 8), (n // 64, 8, 8)),
    "matmul: stack of numbers": lambda n: products((n // 4, 1, 1), (n // 4, 1, 1)),
    "matmul: float64": lambda n: products((4096, 4096), (4096, 4096), np.float64),
    "pool: 2x2": lambda n: pools((n // (64 * 112 * 112), 64, 112, 112), 2, 2),
    "pool: 3x3": lambda n: pools((n // (64 * 112 * 112), 64, 112, 112), 3, 2, 1),
    "pool: one plane, 5x5": lambda n: pools((1, 1, 8192, n // 8192), 5, 1),
    "pool: one plane, 41x41": lambda n: pools((1, 1, 2048, n // 16384), 41, 1, 20),
    "pool: one plane, whole": lambda n: pools((1, 1, n), n, 1),
    "pool: 3-d, float64": lambda n: pools((2, 8, 128, 128, n // (16384 * 32)), 5, 1, 2, np.float64),
    "maps: float32": lambda n: maps(n, "add relu gelu gelu_grad silu_grad tanh elu_grad"),
    "maps: float64": lambda n: maps(n // 2, "add relu gelu gelu_grad silu_grad tanh elu_grad", np.float64),
    "maps: float16": lambda n: maps(n, "gelu gelu_grad", np.float16),
    "rows: of 1000": lambda n: rows(n, 1000),
    "rows: of 10": lambda n: rows(n, 10),
    "rows: of 1": lambda n: rows(n, 1),
    "rows: one": lambda n: rows(n, n),
    "rows: one, float64": lambda n: rows(n // 2, n // 2, np.float64),
    "sums: one row": lambda n: sums((n,), (0,)),
    "sums: rows of 100": lambda n: sums((n // 100, 100), (1,)),
    "sums: rows of 2": lambda n: sums((n // 2, 2), (1,)),
    "sums: columns": lambda n: sums((n // 1000, 1000), (0,)),
    "sums: 2 columns": lambda n: sums((n // 2, 2), (0,)),
    "sums: columns of 2": lambda n: sums((2, n // 2), (0,)),
    "sums: channels": lambda n: sums((n // (64 * 3136), 64, 56, 56), (0, 2, 3)),
    "update: float32": updates,
    "update: float64": lambda n: updates(n // 2, np.float64),
}


def largest_gap(work: Work, clock: Callable[[], float], seconds: float = 1.0) -> tuple[float, float]:
    """(the largest time between two entries of the handler, the time of one call), over calls of `seconds` together."""
    entries: list[float] = []
    work()  # makes the tables, and takes fresh memory, which a virtual machine may give away at 1 GB/s
    before = signal.signal(signal.SIGALRM, lambda *_: entries.append(clock()))
    signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)
    calls, start = 0, clock()
    entries.append(start)
    try:
        while calls == 0 or clock() - start < seconds:
            work()
            calls += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    end = clock()
    entries.append(end)
    return max(b - a for a, b in itertools.pairwise(entries)), (end - start) / calls


def time_to_exit(name: str, number: int, elements: int, threads: int) -> float:
    """Measure the seconds from a SIGINT, in the middle of a call, to the end of a process that does nothing else."""
    program = f"""
import benchmarks.interrupt as b, minorm_ext, time
minorm_ext.set_num_threads({threads})
work = b.CASES[{name!r}]({elements})[{number}]
work()
start = time.perf_counter()
work()
print(time.perf_counter() - start, flush=True)
while True:
    work()
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    once = float(child.stdout.readline())
    time.sleep(0.37 * once)
    start = time.perf_counter()
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate()
    assert child.returncode in (1, -signal.SIGINT), errors
    assert "KeyboardInterrupt" in errors, errors
    return time.perf_counter() - start


def measured(name: str, elements: int, threads: list[int], with_exit: bool) -> Iterator[str]:
    works = CASES[name](elements)
    for number, work in enumerate(works):
        cells = []
        for count in threads:
            minorm_ext.set_num_threads(count)
            gap, once = largest_gap(work, time.perf_counter if count > 1 else time.thread_time)
            cells.append(f"{gap:7.3f} of {once:7.3f}")
        if with_exit:
            cells.append(f"{time_to_exit(name, number, elements, threads[0]):7.3f}")
        yield f"{name:40} {number} {'  '.join(cells)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1 << 27, help="of the inputs, about")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose name contains one of these")
    parser.add_argument("--exit", action="store_true", help="also measure from a real SIGINT to the end of the process")
    options = parser.parse_args()
    print(f"{'largest gap of one call, in seconds, with threads:':42} {options.threads}")
    for name in CASES:
        if any(word in name for word in options.only):
            for line in measured(name, options.elements, options.threads, options.exit):
                print(line, flush=True)


if __name__ == "__main__":
    main()
