"""Lab 7: the student's Cython: sums, bits for any number of threads, and speed.

The kernels run without the student's Python; threads and seconds are counted from outside.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from minorm import config
from minorm.labs.checks.right import lab07_openmp as ours
from minorm.labs.comparing import close, parts, true
from minorm.labs.compiling import CHUNK, COMPILER, READER
from minorm.labs.lab import Lab
from minorm.labs.plugged import check_moments

LAB = Lab(
    7,
    "lab07_openmp",
    "OpenMP in Cython",
    "How do threads share a sum so that it runs at the speed of memory, with the same bits for any number of them?",
    minutes=150,
    needs=(1, 2),
    writes=True,
    deadline=120,
    packages=("Cython",),
    programs=(COMPILER,),
)
SECONDS = 30.0  # a check may have to compile first
BOUND = 1e-5  # of a layer with the student's moments
THREADS = (1, 2, 3, 4, 7, 8)
LEAST_SHARE = 0.4  # of what reading gains by threads
REPEATS = 100  # of 4 MB, some 20 ms: after a pause two threads may share a processor for 10


PLAIN = """
def plain_sum(size_t address, Py_ssize_t n):
    cdef const float* x = <const float*>address
    cdef float total = 0
    cdef Py_ssize_t i
    for i in range(n):
        total += x[i]
    return total
"""  # what the student's kernel is compared with: theirs might be slow on purpose


def _texts(student: Any, *names: str) -> tuple[str, ...]:
    """Pieces of the student's."""
    found = [getattr(student, name)() for name in names]
    for name, text in zip(names, found, strict=True):
        true(isinstance(text, str), name, "text", type(text).__name__)
    return tuple(found)


def _summed(student: Any, function: str, x: Any) -> Any:
    """A function (address, n) of one of the student's pieces."""
    pieces = _texts(student, {"plain_sum": "plain_pyx", "lanes": "lanes_pyx"}[function])
    return student.native("cython", pieces, "summed", function=function, x=x)


def _sizes(rng: np.random.Generator, sizes: tuple[int, ...]) -> list[Any]:
    return [rng.uniform(0.5, 1.5, size).astype(np.float32) for size in sizes]


@LAB.check("7.1", "one after the other", points=2, visible=True, seconds=SECONDS)
def plain(student: Any, rng: np.random.Generator) -> None:
    for x in _sizes(rng, (1, 5, 1000, 100_000)):
        expected = np.add.accumulate(x)[-1]
        what = f"plain_sum of {x.size} numbers, added in float32"
        close(_summed(student, "plain_sum", x), expected, what, rtol=0, atol=0)


@LAB.check("7.1", "nothing to add", seconds=SECONDS)
def plain_empty(student: Any, rng: np.random.Generator) -> None:
    close(_summed(student, "plain_sum", np.zeros(0, np.float32)), 0.0, "plain_sum of no numbers")


def _lanes(student: Any, xs: list[Any]) -> None:
    for x in xs:
        what = f"lanes of {x.size} numbers"
        close(_summed(student, "lanes", x), x.sum(dtype=np.float64), what, rtol=1e-5)


@LAB.check("7.2", "the sum in lanes", points=2, visible=True, seconds=SECONDS)
def lanes(student: Any, rng: np.random.Generator) -> None:
    _lanes(student, _sizes(rng, (320, 1000, 65_536)))


@LAB.check("7.2", "every length of a sum", seconds=SECONDS)
def lanes_odd(student: Any, rng: np.random.Generator) -> None:
    _lanes(student, _sizes(rng, (0, 1, 2, 15, 31, 32, 33, 63, 64, 65, 127, 129)))


def _timed(ask: Any, pieces: tuple[str, ...], rng: np.random.Generator, repeats: int, **options: Any) -> float:
    """Seconds of one call by the judge's clock. Before each the numbers change, and each sum is looked at.

    Whole numbers, whose sums float32 holds exactly in any order.
    """
    size = options["size"]
    places, values = rng.integers(0, size, repeats), rng.integers(size // 100, size // 10, repeats)
    start = time.perf_counter()
    found = ask("cython", pieces, "repeated", places=places, values=values, **options)
    seconds = time.perf_counter() - start
    x, right = np.ones(size, np.float32), []
    for place, value in zip(places, values, strict=True):
        x[place] = value
        right.append(x.sum(dtype=np.float64))
    close(found, np.array(right), f"{options['function']} of {size} numbers that change", rtol=1e-4)
    return seconds / repeats


def _lane_speed(student: Any, rng: np.random.Generator) -> float:
    """How many times as fast as a plain loop."""
    pieces, size, times = _texts(student, "lanes_pyx"), 1 << 18, []
    for _ in range(5):
        slow = _timed(student.yardstick, (PLAIN,), rng, 40, function="plain_sum", size=size)
        fast = _timed(student.native, pieces, rng, 200, function="lanes", size=size)
        times.append((slow, fast))
    slow, fast = np.min(times, axis=0)
    return float(slow / fast)


@LAB.check("7.2", "twice as fast as the plain loop", points=2, visible=True, seconds=SECONDS)
def lanes_fast(student: Any, rng: np.random.Generator) -> None:
    _summed(student, "lanes", np.ones(1, np.float32))  # compiled and loaded, before the clock runs
    speed = max(_lane_speed(student, rng) for _ in range(2))
    true(speed >= 2, "lanes of 1 MB", "at least twice as fast as a plain loop", f"{speed:.2f} times as fast")


def _shared(student: Any, **options: Any) -> list[float]:
    """parallel_sum with each number of threads."""
    found = student.native("cython", _texts(student, "lanes_pyx", "parallel_pyx"), "shared", **options)
    count = len(options["threads"]) * options.get("repeats", 1)
    return list(parts(found, count, "parallel_sum with some numbers of threads"))


@LAB.check("7.3", "the sum in chunks", visible=True, seconds=SECONDS)
def parallel(student: Any, rng: np.random.Generator) -> None:
    for x in _sizes(rng, (1, 100, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 77)):
        for count, found in zip((1, 3), _shared(student, x=x, threads=[1, 3]), strict=True):
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
        found = _shared(student, x=x, threads=list(THREADS), repeats=3)
        _bits(found, 3, f"parallel_sum of {x.size} numbers")


def _started(student: Any, function: str) -> int | None:
    """How many more threads there are after asking for 9 than after asking for 2; None where nobody can tell."""
    names = ("moments_pyx",) if function == "parallel_moments" else ("lanes_pyx", "parallel_pyx")
    pieces = _texts(student, *names)
    for count in (12, 2):  # OpenMP keeps the threads it has until fewer are asked for; those let go end a moment later
        student.native("cython", pieces, "called", function=function, threads=count)
    time.sleep(0.05)
    before = student.native_threads()
    student.native("cython", pieces, "called", function=function, threads=9)
    return student.native_threads() - before if before else None


def _threads(student: Any, function: str) -> None:
    most = 0
    for _ in range(3):
        started = _started(student, function)
        if started is None:
            return
        most = max(most, started)
    what = f"threads that {function} starts with threads=9 beside those for threads=2"
    true(most >= 5, what, "7", f"{most}")


@LAB.check("7.3", "as many threads as asked for", visible=True, seconds=SECONDS)
def parallel_threads(student: Any, rng: np.random.Generator) -> None:
    _threads(student, "parallel_sum")


def _thread_times(student: Any, rng: np.random.Generator, threads: int) -> list[float]:
    """The best of three: parallel_sum with one thread and with some, then reading alone, a kernel of ours."""
    pieces, size, times = _texts(student, "lanes_pyx", "parallel_pyx"), 1 << 20, []
    for _ in range(3):
        mine = [
            _timed(student.native, pieces, rng, REPEATS, function="parallel_sum", size=size, threads=count)
            for count in (1, threads)
        ]
        reading = []
        for count in (1, threads):
            start = time.perf_counter()
            student.yardstick("cython", (READER,), "read", size=size, threads=count, repeats=REPEATS)
            reading.append(time.perf_counter() - start)
        times.append((*mine, *reading))
    return [float(best) for best in np.min(times, axis=0)]


def _share(times: list[float], threads: int) -> float | None:
    """What parallel_sum gains by threads, as a share of what reading gains; None where that gains next to nothing."""
    mine, reading = times[0] / times[1], times[2] / times[3]
    return None if reading < 1.3 else (mine - 1) / (min(reading, threads) - 1)


@LAB.check("7.3", "faster with more threads", points=2, seconds=2 * SECONDS)
def parallel_fast(student: Any, rng: np.random.Generator) -> None:
    """Compared with reading alone, so that a busy machine, where nothing gets faster, costs nobody a point.

    The best times of all rounds must show it, or the median of the rounds: reading alone may have found a moment in
    which the processors are nobody else's, but each round measures both side by side.
    """
    threads = min(4, config.get_num_threads())
    _shared(student, x=np.ones(1, np.float32), threads=[threads])  # compiled and loaded, before the clock runs
    if threads == 1:
        return
    student.yardstick("cython", (READER,), "read", size=CHUNK, threads=1, repeats=1)
    best = [np.inf] * 4
    shares: list[float] = []
    for _ in range(12):  # until a moment comes in which the processors are not others'
        times = _thread_times(student, rng, threads)
        best = [min(pair) for pair in zip(best, times, strict=True)]
        share = _share(best, threads)
        if share is None or share >= LEAST_SHARE:
            return
        if (share := _share(times, threads)) is not None:
            shares.append(share)
    if np.median(shares) >= LEAST_SHARE:
        return
    mine, reading = best[0] / best[1], best[2] / best[3]
    what = f"parallel_sum of 4 MB with {threads} threads"
    true(False, what, f"about {reading:.1f} times as fast as with one, as reading is", f"{mine:.2f} times")


def _merged(student: Any, x: Any, threads: list[int]) -> tuple[Any, ...]:
    """parallel_moments with each number of threads."""
    found = student.native("cython", _texts(student, "moments_pyx"), "merged", x=x, threads=threads)
    return parts(found, len(threads), "parallel_moments with some numbers of threads")


def _moments(student: Any, rng: np.random.Generator, sizes: tuple[int, ...], offsets: tuple[float, ...]) -> None:
    for size in sizes:
        for offset in offsets:
            x = (rng.standard_normal(size) + offset).astype(np.float32)
            wide = x.astype(np.float64)
            what = f"of {size} numbers with mean {offset:g}"
            for found in _merged(student, x, [1, 3]):
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
    mean, var = parts(_merged(student, x, [2])[0], 2, "parallel_moments")
    close(mean, x.mean(dtype=np.float64), "mean of chunks with means of their own", rtol=1e-7)
    close(var, x.var(dtype=np.float64), "var of chunks with means of their own", rtol=1e-5)


@LAB.check("7.4", "the same bits, and threads", points=2, visible=True, seconds=SECONDS)
def moments_bits(student: Any, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(30 * CHUNK + 5) * 10.0 ** rng.uniform(-3, 3, 30 * CHUNK + 5)).astype(np.float32)
    found = _merged(student, x, list(THREADS))
    for place, name in enumerate(("mean", "var")):
        _bits([parts(pair, 2, "parallel_moments")[place] for pair in found], 1, name)
    _threads(student, "parallel_moments")


@LAB.check("7.5", "LayerNorm with your kernel", points=2, visible=True, seconds=SECONDS)
def in_layer_norm(student: Any, rng: np.random.Generator) -> None:
    check_moments(student, rng, "layer_norm", (3, 5, 7), 1.0, BOUND)
    check_moments(student, rng, "layer_norm", (2, 2 * CHUNK + 9), 1e6, BOUND)


@LAB.check("7.5", "BatchNorm and RMSNorm", points=2, seconds=SECONDS)
def in_others(student: Any, rng: np.random.Generator) -> None:
    check_moments(student, rng, "batch_norm", (3, 4, 5, 6), 1e4, BOUND)
    check_moments(student, rng, "channels-last batch_norm", (3, 4, 5, 6), 1e4, BOUND)
    check_moments(student, rng, "rms_norm", (4, 60), 2.0, BOUND)


LAB.provide("7.2", lanes_pyx=ours.lanes_pyx)
LAB.provide("7.4", moments_pyx=ours.moments_pyx)
