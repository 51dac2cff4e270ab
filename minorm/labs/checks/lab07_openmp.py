"""Lab 7: the student's Cython, compiled in the student's process; sums, bits for any number of threads, and speed."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

import minorm.functional as F
from minorm import config
from minorm.creation import tensor
from minorm.kernels.partial import PartialBackend
from minorm.labs.comparing import close, numbers, parts, true
from minorm.labs.compiling import CHUNK, COMPILER, build, quickest, reader
from minorm.labs.lab import Lab

LAB = Lab(
    7,
    "lab07_openmp",
    "OpenMP in Cython",
    "How do threads share a sum so that it runs at the speed of memory, with the same bits for any number of them?",
    minutes=150,
    packages=("Cython",),
    programs=(COMPILER,),
)
SECONDS = 60.0  # a check may have to compile first
THREADS = (1, 2, 3, 4, 7, 8)
TASKS = "/proc/self/task"


def summed(module: Any, function: str, x: Any) -> Any:
    """A function (address, n) of one of the student's pieces."""
    pieces = {"plain_sum": "plain_pyx", "lanes": "lanes_pyx"}
    return getattr(build(getattr(module, pieces[function])()), function)(x.ctypes.data, x.size)


def _sizes(rng: np.random.Generator, sizes: tuple[int, ...]) -> list[Any]:
    return [rng.uniform(0.5, 1.5, size).astype(np.float32) for size in sizes]


@LAB.check("7.1", "one after the other", points=2, visible=True, seconds=SECONDS)
def plain(student: Any, rng: np.random.Generator) -> None:
    for x in _sizes(rng, (1, 5, 1000, 100_000)):
        expected = np.add.accumulate(x)[-1]
        what = f"plain_sum of {x.size} numbers, added in float32"
        close(student.drive("summed", function="plain_sum", x=x), expected, what, rtol=0, atol=0)


@LAB.check("7.1", "nothing to add", seconds=SECONDS)
def plain_empty(student: Any, rng: np.random.Generator) -> None:
    close(student.drive("summed", function="plain_sum", x=np.zeros(0, np.float32)), 0.0, "plain_sum of no numbers")


def _lanes(student: Any, xs: list[Any]) -> None:
    for x in xs:
        what = f"lanes of {x.size} numbers"
        close(student.drive("summed", function="lanes", x=x), x.sum(dtype=np.float64), what, rtol=1e-5)


@LAB.check("7.2", "the sum in lanes", points=2, visible=True, seconds=SECONDS)
def lanes(student: Any, rng: np.random.Generator) -> None:
    _lanes(student, _sizes(rng, (320, 1000, 65_536)))


@LAB.check("7.2", "every length of a sum", seconds=SECONDS)
def lanes_odd(student: Any, rng: np.random.Generator) -> None:
    _lanes(student, _sizes(rng, (0, 1, 2, 15, 31, 32, 33, 63, 64, 65, 127, 129)))


def lane_speed(module: Any) -> float:
    """How many times as fast as the plain loop."""
    kernels = build(module.plain_pyx(), module.lanes_pyx())
    x = np.ones(1 << 18, np.float32)
    calls = [lambda f=f: f(x.ctypes.data, x.size) for f in (kernels.plain_sum, kernels.lanes)]
    slow, fast = quickest(calls, 25)
    return slow / fast


@LAB.check("7.2", "twice as fast as the plain loop", points=2, visible=True, seconds=SECONDS)
def lanes_fast(student: Any, rng: np.random.Generator) -> None:
    speed = max(float(numbers(student.drive("lane_speed"), "speed of lanes", "a number")) for _ in range(2))
    true(speed >= 2, "lanes of 1 MB", "at least twice as fast as plain_sum", f"{speed:.2f} times as fast")


def shared(module: Any, x: Any, threads: list[int], repeats: int = 1) -> list[float]:
    """parallel_sum with each number of threads, `repeats` times."""
    function = build(module.lanes_pyx(), module.parallel_pyx()).parallel_sum
    found = []
    for count in threads:
        for _ in range(repeats):
            partial = np.full(x.size // CHUNK + 20, np.nan)
            found.append(function(x.ctypes.data, x.size, partial.ctypes.data, count))
    return found


@LAB.check("7.3", "the sum in chunks", visible=True, seconds=SECONDS)
def parallel(student: Any, rng: np.random.Generator) -> None:
    for x in _sizes(rng, (1, 100, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 77)):
        for count, found in zip((1, 3), student.drive("shared", x=x, threads=[1, 3]), strict=True):
            what = f"parallel_sum of {x.size} numbers with {count} threads"
            close(found, x.sum(dtype=np.float64), what, rtol=1e-5)


def _bits(found: Any, repeats: int, what: str) -> None:
    """All floats of the list are the same."""
    first = np.float64(found[0])
    for place, value in enumerate(found):
        count = THREADS[place // repeats]
        true(
            np.float64(value) == first,
            f"{what} with {count} threads",
            f"{first!r}, as with 1",
            f"{np.float64(value)!r}",
        )


@LAB.check("7.3", "the same bits for 1 to 8 threads", points=3, visible=True, seconds=SECONDS)
def parallel_bits(student: Any, rng: np.random.Generator) -> None:
    for _ in range(4):
        x = (rng.standard_normal(40 * CHUNK + 5) * 10.0 ** rng.uniform(-3, 3, 40 * CHUNK + 5)).astype(np.float32)
        found = student.drive("shared", x=x, threads=list(THREADS), repeats=3)
        _bits(found, 3, f"parallel_sum of {x.size} numbers")


def _tasks() -> int:
    """How many threads this process has."""
    return len(os.listdir(TASKS)) if os.path.isdir(TASKS) else 0


def threads_started(module: Any, function: str) -> int | None:
    """How many more threads there are after asking for 9 than after asking for 2; None where nobody can tell."""
    x, places = np.ones(200 * CHUNK, np.float32), np.empty(500)
    if function == "parallel_sum":
        call = build(module.lanes_pyx(), module.parallel_pyx()).parallel_sum
    else:
        call = build(module.moments_pyx()).parallel_moments
    for count in (12, 2):  # OpenMP keeps the threads it has until fewer are asked for; those let go end a moment later
        call(x.ctypes.data, x.size, places.ctypes.data, count)
    time.sleep(0.05)
    before = _tasks()
    call(x.ctypes.data, x.size, places.ctypes.data, 9)
    return _tasks() - before if before else None


def _threads(student: Any, function: str) -> None:
    most: Any = 0
    for _ in range(3):
        started = student.drive("threads_started", function=function)
        if started is None:
            return
        most = max(most, float(numbers(started, "threads", "a number")))
    what = f"threads that {function} starts with threads=9 beside those for threads=2"
    true(most >= 5, what, "7", f"{most:g}")


@LAB.check("7.3", "as many threads as asked for", visible=True, seconds=SECONDS)
def parallel_threads(student: Any, rng: np.random.Generator) -> None:
    _threads(student, "parallel_sum")


def thread_speed(module: Any, threads: int) -> tuple[float, float]:
    """How much faster with threads: parallel_sum, and reading alone."""
    x = np.ones(1 << 20, np.float32)
    partial = np.empty(x.size // CHUNK + 1)
    function = build(module.lanes_pyx(), module.parallel_pyx()).parallel_sum
    mine = [lambda n=n: function(x.ctypes.data, x.size, partial.ctypes.data, n) for n in (1, threads)]
    one, some, read_one, read_some = quickest([*mine, reader(x, 1), reader(x, threads)], 25)
    return one / some, read_one / read_some


@LAB.check("7.3", "faster with more threads", points=2, seconds=SECONDS)
def parallel_fast(student: Any, rng: np.random.Generator) -> None:
    """Compared with reading alone, so that a busy machine, where nothing gets faster, costs nobody a point."""
    threads = min(4, config.get_num_threads())
    if threads == 1:
        student.drive("thread_speed", threads=1)
        return
    for _ in range(4):
        mine, reading = parts(student.drive("thread_speed", threads=threads), 2, "speeds")
        if mine >= 1 + 0.4 * (min(reading, threads) - 1) or reading < 1.3:
            return
    what = f"parallel_sum of 4 MB with {threads} threads"
    true(False, what, f"about {reading:.1f} times as fast as with one, as reading is", f"{mine:.2f} times")


def merged(module: Any, x: Any, threads: list[int]) -> list[Any]:
    """parallel_moments with each number of threads."""
    function = build(module.moments_pyx()).parallel_moments
    found = []
    for count in threads:
        places = np.full(2 * (x.size // CHUNK + 2), np.nan)
        found.append(function(x.ctypes.data, x.size, places.ctypes.data, count))
    return found


def _moments(student: Any, rng: np.random.Generator, sizes: tuple[int, ...], offsets: tuple[float, ...]) -> None:
    for size in sizes:
        for offset in offsets:
            x = (rng.standard_normal(size) + offset).astype(np.float32)
            wide = x.astype(np.float64)
            what = f"of {size} numbers with mean {offset:g}"
            for found in student.drive("merged", x=x, threads=[1, 3]):
                mean, var = parts(found, 2, f"parallel_moments {what}")
                close(mean, wide.mean(), f"mean {what}", rtol=1e-7, atol=1e-7)
                close(var, ((wide - wide.mean()) ** 2).mean(), f"var {what}", rtol=1e-5)


@LAB.check("7.4", "mean and variance", points=2, visible=True, seconds=SECONDS)
def moments_close(student: Any, rng: np.random.Generator) -> None:
    _moments(student, rng, (1000, CHUNK, 3 * CHUNK), (0.0, 2.0))


@LAB.check("7.4", "moments of every length, any offset", points=2, seconds=SECONDS)
def moments_far(student: Any, rng: np.random.Generator) -> None:
    _moments(student, rng, (1, 2, 15, 17, CHUNK - 1, CHUNK + 1, 4 * CHUNK + 333), (0.0, 1e4, 1e7))


@LAB.check("7.4", "chunks with means of their own", seconds=SECONDS)
def moments_drifting(student: Any, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(5 * CHUNK) + np.repeat(rng.uniform(-1000, 1000, 5), CHUNK)).astype(np.float32)
    ((mean, var),) = student.drive("merged", x=x, threads=[2])
    close(mean, x.mean(dtype=np.float64), "mean of chunks with means of their own", rtol=1e-7)
    close(var, x.var(dtype=np.float64), "var of chunks with means of their own", rtol=1e-5)


@LAB.check("7.4", "the same bits, and threads", points=2, visible=True, seconds=SECONDS)
def moments_bits(student: Any, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(30 * CHUNK + 5) * 10.0 ** rng.uniform(-3, 3, 30 * CHUNK + 5)).astype(np.float32)
    found = student.drive("merged", x=x, threads=list(THREADS))
    for place, name in enumerate(("mean", "var")):
        _bits([parts(pair, 2, "parallel_moments")[place] for pair in found], 1, name)
    _threads(student, "parallel_moments")


def plugged(module: Any, layer: str, x: Any) -> Any:
    """y of a layer with the student's moments."""
    return _run(layer, x, PartialBackend(moments=module.moments))


def _run(layer: str, x: Any, backend: Any) -> Any:
    if layer.startswith("channels-last"):
        x = np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1)
    if layer == "layer_norm":
        return F.layer_norm(tensor(x), x.shape[1:], backend=backend).array
    if layer == "rms_norm":
        return F.rms_norm(tensor(x), x.shape[1:], eps=1e-5, backend=backend).array
    return F.batch_norm(tensor(x), None, None, training=True, backend=backend).array


def _plug(student: Any, rng: np.random.Generator, layer: str, shape: tuple[int, ...], offset: float) -> None:
    x = (rng.standard_normal(shape) * 3 + offset).astype(np.float32)
    expected = _run(layer, x.astype(np.float64), None)
    what = f"y of {layer} with your moments, x of shape {shape}"
    close(student.drive("plugged", layer=layer, x=x), expected, what, rtol=1e-5, atol=1e-5, dtype=np.float32)


@LAB.check("7.5", "LayerNorm with your kernel", points=2, visible=True, seconds=SECONDS)
def in_layer_norm(student: Any, rng: np.random.Generator) -> None:
    _plug(student, rng, "layer_norm", (3, 5, 7), 1.0)
    _plug(student, rng, "layer_norm", (2, 2 * CHUNK + 9), 1e6)


@LAB.check("7.5", "BatchNorm and RMSNorm", points=2, seconds=SECONDS)
def in_others(student: Any, rng: np.random.Generator) -> None:
    _plug(student, rng, "batch_norm", (3, 4, 5, 6), 1e4)
    _plug(student, rng, "channels-last batch_norm", (3, 4, 5, 6), 1e4)
    _plug(student, rng, "rms_norm", (4, 60), 2.0)
