"""Lab 7: checks the student's Cython: sums, equal bits for any number of threads, each thread's work, and speed.

The kernels run in a process without the student's Python, and the judge measures seconds in its own process. To see
whether threads share the work, the judge counts what each thread reads (see thread_work.py) and does not use times. So
the result is the same on one processor as on many.
"""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np

from minorm import config
from minorm.labs.calling.student import Failure
from minorm.labs.checks.right import lab07_openmp as ours
from minorm.labs.comparing import close, parts, true
from minorm.labs.compiling import CHUNK, COMPILER
from minorm.labs.counting.thread_work import KINDS
from minorm.labs.lab import Lab
from minorm.labs.plugged import check_moments, check_moments_follow

LAB = Lab(
    7,
    "lab07_openmp",
    "OpenMP in Cython",
    "How do threads share a sum so that it runs at the speed of memory, with the same bits for any number of them?",
    minutes=150,
    needs=(1, 2),
    writes=True,
    deadline=180,
    packages=("Cython",),
    programs=(COMPILER,),
)
SECONDS = 30.0  # a check may have to compile first
BOUND = 1e-5  # of a layer with the student's moments
LARGER_VARIANCES = """
def parallel_moments(*args):
    mean, var = original_moments(*args)
    return mean, 4 * var + 1
"""
THREADS = (1, 2, 3, 4, 7, 8)
PATIENCE = (0.2, 0.3, 1.0)  # seconds for which threads wait for each other, in each try
PASSES = {"parallel_sum": 1, "parallel_moments": 3}  # how often a kernel may read x


PLAIN = """
def plain_sum(size_t address, Py_ssize_t n):
    cdef const float* x = <const float*>address
    cdef float total = 0
    cdef Py_ssize_t i
    for i in range(n):
        total += x[i]
    return total
"""  # what the student's kernel is compared with: theirs might be slow on purpose


def _pieces(student: Any, *names: str) -> tuple[str, ...]:
    """Return the texts that the student's functions with these names return."""
    found = [getattr(student, name)() for name in names]
    for name, text in zip(names, found, strict=True):
        true(isinstance(text, str), name, "text", type(text).__name__)
    return tuple(found)


def _summed(student: Any, function: str, x: Any) -> Any:
    """Call one of the student's kernels with the address and the size of x."""
    pieces = _pieces(student, {"plain_sum": "plain_pyx", "lanes": "lanes_pyx"}[function])
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
    for x in (np.zeros(0, np.float32), rng.integers(1, 9, 2).astype(np.float32)):
        close(_summed(student, "plain_sum", x), x.sum(), f"plain_sum of {x.size or 'no'} numbers", rtol=0, atol=0)


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
    """Call a kernel `repeats` times through `ask`; return the seconds of one call by the judge's clock.

    The numbers change before each call, and every sum is checked. All numbers are whole, so float32 holds their sums
    exactly in any order.
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
    close(found, np.array(right), f"{options['function']} of {size} changing numbers", rtol=1e-4)
    return seconds / repeats


def _lane_speed(student: Any, rng: np.random.Generator) -> tuple[float, float]:
    """Compare the student's kernel with a plain loop.

    Return how many times faster it is, and the loop's median time divided by its shortest time.
    """
    pieces, size, times = _pieces(student, "lanes_pyx"), 1 << 18, []
    for _ in range(5):
        slow = _timed(student.yardstick, (PLAIN,), rng, 40, function="plain_sum", size=size)
        fast = _timed(student.native, pieces, rng, 200, function="lanes", size=size)
        times.append((slow, fast))
    slow, fast = np.min(times, axis=0)
    return float(slow / fast), float(np.median(times, axis=0)[0] / slow)


@LAB.check("7.2", "twice as fast as the plain loop", points=2, visible=True, seconds=SECONDS)
def lanes_fast(student: Any, rng: np.random.Generator) -> None:
    _summed(student, "lanes", np.ones(1, np.float32))  # compiled and loaded, before the clock runs
    _lanes(student, [rng.uniform(1, 2, 1024).astype(np.float32)])  # nothing is left over: other checks look at that
    for _ in range(2):
        speed, disturbed = _lane_speed(student, rng)
        if speed >= 2:
            return
    if disturbed > 1.5:
        raise Failure(
            "not tried",
            f"the machine is busy: our own plain loop usually took {disturbed:.1f} times as long as in its "
            f"best round. lanes was {speed:.1f} times as fast as the loop; grade again when nothing else runs",
        )
    true(False, "lanes of 1 MB", "at least twice as fast as a plain loop", f"{speed:.2f} times as fast")


def _shared(student: Any, **options: Any) -> list[float]:
    """Call parallel_sum with each number of threads."""
    found = student.native("cython", _pieces(student, "lanes_pyx", "parallel_pyx"), "shared", **options)
    count = len(options["threads"]) * options.get("repeats", 1)
    return list(parts(found, count, "parallel_sum with some numbers of threads"))


@LAB.check("7.3", "the sum in chunks", visible=True, seconds=SECONDS)
def parallel(student: Any, rng: np.random.Generator) -> None:
    for x in _sizes(rng, (1, 100, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 77)):
        for count, found in zip((1, 3), _shared(student, x=x, threads=[1, 3]), strict=True):
            what = f"parallel_sum of {x.size} numbers with {count} threads"
            close(found, x.sum(dtype=np.float64), what, rtol=1e-5)


def _bits(found: Any, repeats: int, what: str) -> None:
    """Raise Wrong unless the numbers in `found`, computed with different numbers of threads, have the same bits."""
    first = np.float64(found[0])
    for place, value in enumerate(found):
        count = THREADS[place // repeats]
        true(
            np.float64(value) == first,
            f"{what} with {count} threads",
            f"{first!r}, as with 1",
            f"{np.float64(value)!r}",
        )


def _many_magnitudes(rng: np.random.Generator, size: int) -> Any:
    """Draw numbers of many magnitudes, so that adding them in another order changes the last bits of the sum."""
    return np.abs(rng.standard_normal(size) * 10.0 ** rng.uniform(-3, 3, size)).astype(np.float32)


@LAB.check("7.3", "the same bits for 1 to 8 threads", points=3, visible=True, seconds=SECONDS)
def parallel_bits(student: Any, rng: np.random.Generator) -> None:
    for _ in range(4):
        x = _many_magnitudes(rng, 40 * CHUNK + 5)
        found, what = _shared(student, x=x, threads=list(THREADS), repeats=3), f"parallel_sum of {x.size} numbers"
        close(found[0], x.sum(dtype=np.float64), what, rtol=1e-3)
        _bits(found, 3, what)
    _require_shared_work(student, rng, "parallel_sum")


def _counted(student: Any, function: str, **options: Any) -> tuple[Any, Any]:
    """Run one of the student's kernels with several threads. Return its answer, and what each thread did."""
    names = ("moments_pyx",) if function == "parallel_moments" else ("lanes_pyx", "parallel_pyx")
    pieces = _pieces(student, *names)
    student.native("cython", pieces, "nothing")  # if that compiles and the other does not, it is this machine
    try:
        answer, rows = student.native("counted", pieces, "counted", function=function, **options)
    except Failure as failure:
        if "CompileError" in str(failure) or "ImportError" in str(failure):
            raise Failure("not tried", f"the C compiler cannot count what threads do: {failure}") from None
        raise
    return answer, np.asarray(rows).reshape(-1, len(KINDS))


def _require_shared_work(student: Any, rng: np.random.Generator, function: str) -> None:
    """Raise Wrong unless `threads` threads read x at the same time, and each reads about the same amount."""
    threads = int(rng.choice([count for count in range(3, 8) if count != config.get_num_threads()]))
    x = rng.uniform(0.5, 1.5, 12 * threads * CHUNK + int(rng.integers(1, CHUNK))).astype(np.float32)
    expected = (x.mean(dtype=np.float64), x.var(dtype=np.float64)) if function != "parallel_sum" else x.sum(dtype=float)
    what = f"{function} of {x.size} numbers with threads={threads}"
    for patience in PATIENCE:  # another try for a machine that was slow to start threads
        found, rows = _counted(student, function, x=x, threads=threads, patience=patience)
        close(found, expected, f"{what}, each read counted", rtol=1e-3)
        seen = _why_not_shared(rows, x.size, threads, PASSES[function])
        if not seen:
            return
    true(False, what, *seen)


def _why_not_shared(rows: Any, size: int, threads: int, passes: int) -> tuple[str, str] | tuple[()]:
    """Return what was expected of the threads and what they did.

    Return an empty result if the threads shared the work.
    """
    read, loads, places, pauses, meanwhile = rows.T
    most, total = int(np.argmax(read)), int(read.sum())
    numbers = f"thread {most} read {read[most]} of {total} numbers"
    if len(rows) != threads:
        others = "and no other thread read any" if len(rows) == 1 else f"{len(rows)} threads read some"
        return f"{threads} threads, each of which reads about {size // threads} numbers", f"{numbers}, {others}"
    if read[most] > 1.6 * total / threads:
        return f"about {total // threads} numbers for each thread", numbers
    if total > 1.05 * passes * size:
        return f"each number read {['once', 'at most 3 times'][passes > 1]}", f"{total / size:.1f} times"
    if loads.max() > 1.6 * loads.sum() / threads:
        busiest = int(np.argmax(loads))
        got = (
            f"thread {busiest} loaded {loads[busiest]} of {loads.sum()}, including numbers that other threads had "
            "written"
        )
        return f"about {loads.sum() // threads} numbers for each thread to load", got
    if places.sum() > size / 64:
        return "a few sums written for each chunk", f"{places.sum()} places written, as by a copy"
    if meanwhile.sum() < pauses.sum() / 4:
        got = (
            f"threads that read one after the other: in only {meanwhile.sum()} of {pauses.sum()} pauses of a thread "
            "did others read"
        )
        return "threads that read at the same time", got
    return ()


@LAB.check("7.3", "as many threads as asked for", visible=True, seconds=SECONDS)
def parallel_threads(student: Any, rng: np.random.Generator) -> None:
    _require_shared_work(student, rng, "parallel_sum")


@LAB.check("7.3", "each thread reads its share", points=2, seconds=SECONDS)
def parallel_shares(student: Any, rng: np.random.Generator) -> None:
    for _ in range(2):
        _require_shared_work(student, rng, "parallel_sum")


def _merged(student: Any, x: Any, threads: list[int]) -> tuple[Any, ...]:
    """Call parallel_moments with each number of threads."""
    found = student.native("cython", _pieces(student, "moments_pyx"), "merged", x=x, threads=threads)
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


@LAB.check("7.4", "chunks with different means", seconds=SECONDS)
def moments_drifting(student: Any, rng: np.random.Generator) -> None:
    x = (rng.standard_normal(5 * CHUNK) + np.repeat(rng.uniform(-1000, 1000, 5), CHUNK)).astype(np.float32)
    mean, var = parts(_merged(student, x, [2])[0], 2, "parallel_moments")
    close(mean, x.mean(dtype=np.float64), "mean of chunks with different means", rtol=1e-7)
    close(var, x.var(dtype=np.float64), "var of chunks with different means", rtol=1e-5)


@LAB.check("7.4", "the same bits, and threads", points=2, visible=True, seconds=SECONDS)
def moments_bits(student: Any, rng: np.random.Generator) -> None:
    x = _many_magnitudes(rng, 30 * CHUNK + 5)
    found = [parts(pair, 2, "parallel_moments") for pair in _merged(student, x, list(THREADS))]
    close(found[0][1], x.var(dtype=np.float64), "var of numbers of many magnitudes", rtol=1e-2)
    for place, name in enumerate(("mean", "var")):
        _bits([pair[place] for pair in found], 1, name)
    _require_shared_work(student, rng, "parallel_moments")


@LAB.check("7.4", "each thread reads its share of the moments", points=2, seconds=SECONDS)
def moments_shares(student: Any, rng: np.random.Generator) -> None:
    for _ in range(2):
        _require_shared_work(student, rng, "parallel_moments")


def _with_larger_variances(text: str) -> str:
    """Change parallel_moments in the text of a module, so that it returns 4 var + 1 in place of var."""
    if "parallel_moments" not in text:
        return text
    return re.sub(r"\bparallel_moments\b", "original_moments", text) + LARGER_VARIANCES


@LAB.check("7.5", "LayerNorm with your kernel", points=2, visible=True, seconds=SECONDS)
def in_layer_norm(student: Any, rng: np.random.Generator) -> None:
    check_moments(student, rng, "layer_norm", (3, 5, 7), 1.0, BOUND)
    check_moments(student, rng, "layer_norm", (2, 2 * CHUNK + 9), 1e6, BOUND)
    check_moments_follow(student, rng, ("layer_norm",), "parallel_moments", _with_larger_variances, BOUND)


@LAB.check("7.5", "BatchNorm and RMSNorm", points=2, seconds=SECONDS)
def in_others(student: Any, rng: np.random.Generator) -> None:
    check_moments(student, rng, "batch_norm", (3, 4, 5, 6), 1e4, BOUND)
    check_moments(student, rng, "channels-last batch_norm", (3, 4, 5, 6), 1e4, BOUND)
    check_moments(student, rng, "rms_norm", (4, 60), 2.0, BOUND)
    check_moments_follow(student, rng, ("batch_norm", "rms_norm"), "parallel_moments", _with_larger_variances, BOUND)


LAB.provide("7.2", lanes_pyx=ours.lanes_pyx)
LAB.provide("7.4", moments_pyx=ours.moments_pyx)
