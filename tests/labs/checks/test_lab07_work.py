"""Lab 7 counts the work of each thread: honest kernels of many kinds share it, and cheats are named.

All kernels are one module, compiled once.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minorm.labs import compiling
from minorm.labs.beside import lab07_openmp as beside
from minorm.labs.checks import lab07_openmp as lab
from minorm.labs.checks.right import lab07_openmp as ours
from minorm.labs.comparing import Wrong

pytest.importorskip("Cython")

HEAD = """
cimport openmp
from cython.parallel cimport parallel
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef object {}(size_t address, Py_ssize_t n, size_t partial, int threads):
    cdef const float* x = <const float*>address
    cdef double* sums = <double*>partial
    cdef Py_ssize_t count = (n + CHUNK - 1) // CHUNK
    cdef Py_ssize_t i, j, k
    cdef double total = 0, mean = 0, v
    cdef float* copied
    cdef openmp.omp_lock_t lock
"""
SUM_CHUNK = "lane_sum(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK))"
LOOP = 'for i in prange(count, nogil=True, schedule="static", num_threads=threads):'
MERGE = """
    for i in range(count):
        total += sums[i]
    return total
"""
ALONE = (
    """
    for i in range(count):
        total += """
    + SUM_CHUNK
    + """
    return total
"""
)
CHEATS = {
    "beside_an_idle_loop": (f"    {LOOP}\n        sums[i] = 0" + ALONE, "and no other thread read any"),
    "beside_a_trivial_loop": (f"    {LOOP}\n        sums[i] = x[i * CHUNK]" + ALONE, r"thread \d read \d+ of \d+"),
    "one_thread_inside": (f"    {LOOP.replace('=threads', '=1')}\n        sums[i] = {SUM_CHUNK}" + MERGE, "no other"),
    "one_chunk_with_all": (
        f"""    {LOOP.replace('"static"', '"static", chunksize=count')}\n        sums[i] = {SUM_CHUNK}""" + MERGE,
        "no other thread read any",
    ),
    "two_threads_whatever_is_asked": (
        f"    {LOOP.replace('=threads', '=2')}\n        sums[i] = {SUM_CHUNK}" + MERGE,
        "2 threads read some",
    ),
    "a_second_pass": (f"    {LOOP}\n        sums[i] = {SUM_CHUNK}" + ALONE, r"thread \d read \d+ of \d+"),
    "a_copy_that_one_thread_adds": (
        (
            "    copied = <float*>malloc(4 * n)\n"
            '    for i in prange(n, nogil=True, schedule="static", num_threads=threads):\n        copied[i] = x[i]\n'
            "    total = lane_sum(copied, n)\n    free(copied)\n    return total\n"
        ),
        "including numbers that other threads had written",
    ),
    "a_copy_that_numpy_adds": (
        (
            "    copied = <float*>malloc(4 * n)\n"
            '    for i in prange(n, nogil=True, schedule="static", num_threads=threads):\n        copied[i] = x[i]\n'
            "    import ctypes, numpy\n"
            "    whole = numpy.ctypeslib.as_array((ctypes.c_float * n).from_address(<size_t>copied))\n"
            "    total = whole.sum(dtype=float)\n    free(copied)\n    return total\n"
        ),
        "places written, as by a copy",
    ),
    "numpy_beside_a_loop": (
        (
            f"    {LOOP}\n        sums[i] = {SUM_CHUNK}\n"
            "    import ctypes, numpy\n"
            "    return numpy.ctypeslib.as_array((ctypes.c_float * n).from_address(address)).sum(dtype=float)\n"
        ),
        "each read counted",
    ),
    "memcpy_beside_a_loop": (
        (
            f"    {LOOP}\n        sums[i] = {SUM_CHUNK}\n"
            "    copied = <float*>malloc(4 * n)\n    memcpy(copied, x, 4 * n)\n"
            "    total = lane_sum(copied, n)\n    free(copied)\n    return total\n"
        ),
        "each read counted",
    ),
    "one_after_the_other": (
        "    openmp.omp_init_lock(&lock)\n"
        f"    {LOOP}\n"
        "        openmp.omp_set_lock(&lock)\n"
        f"        sums[i] = {SUM_CHUNK}\n"
        "        openmp.omp_unset_lock(&lock)" + MERGE,
        "one after the other",
    ),
    "most_of_it_in_one_thread": (
        f"    {LOOP}\n        if i >= count // 2:\n            sums[i] = {SUM_CHUNK}\n"
        "    for i in range(count // 2):\n"
        f"        sums[i] = {SUM_CHUNK}" + MERGE,
        r"thread \d read \d+ of \d+",
    ),
    "zeros": ("    return 0\n", "each read counted"),
}
HONEST = {
    "a_reduction": f"    {LOOP}\n        total += {SUM_CHUNK}\n    return total\n",  # its bits are another check's
    "static": f"    {LOOP}\n        sums[i] = {SUM_CHUNK}" + MERGE,
    "dynamic": f"""    {LOOP.replace("static", "dynamic")}\n        sums[i] = {SUM_CHUNK}""" + MERGE,
    "guided": f"""    {LOOP.replace("static", "guided")}\n        sums[i] = {SUM_CHUNK}""" + MERGE,
    "a_parallel_block": (
        "    with nogil, parallel(num_threads=threads):\n"
        '        for i in prange(count, schedule="static", chunksize=1):\n'
        f"            sums[i] = {SUM_CHUNK}" + MERGE
    ),
    "shares_by_the_number_of_the_thread": (
        '    for k in prange(threads, nogil=True, schedule="static", num_threads=threads):\n'
        "        strided(x, n, count, k, threads, sums)" + MERGE
    ),
    "halves_of_halves": f"    {LOOP}\n        sums[i] = halved(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK))"
    + MERGE,
    "lanes_in_partial": (
        f"    {LOOP}\n        into(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK), sums + i)" + MERGE
    ),
}
HELPERS = """
cdef void strided(const float* x, Py_ssize_t n, Py_ssize_t count, Py_ssize_t k, int step, double* sums) noexcept nogil:
    cdef Py_ssize_t i = k
    while i < count:
        sums[i] = lane_sum(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK))
        i += step

cdef double halved(const float* x, Py_ssize_t n) noexcept nogil:
    cdef double total = 0
    cdef Py_ssize_t i
    if n > 64:
        return halved(x, n // 2) + halved(x + n // 2, n - n // 2)
    for i in range(n):
        total += x[i]
    return total

cdef void into(const float* x, Py_ssize_t n, double* out) noexcept nogil:
    cdef Py_ssize_t i
    out[0] = 0
    for i in range(n):
        out[0] += x[i]

cdef void welford(const float* x, Py_ssize_t n, double* part) noexcept nogil:
    cdef double mean = 0, m2 = 0, away
    cdef Py_ssize_t i
    for i in range(n):
        away = x[i] - mean
        mean += away / (i + 1)
        m2 += away * (x[i] - mean)
    part[0] = mean
    part[1] = m2

cdef double squares(const float* x, Py_ssize_t n, double mean) noexcept nogil:
    cdef double total = 0
    cdef Py_ssize_t i
    for i in range(n):
        total += (x[i] - mean) * (x[i] - mean)
    return total
"""
MERGED = """
    k = 0
    for i in range(count):
        j = min(<Py_ssize_t>CHUNK, n - i * CHUNK)
        v = sums[2 * i] - mean
        mean += v * j / (k + j)
        total += sums[2 * i + 1] + v * v * k * j / (k + j)
        k += j
    return mean, total / n
"""
TWO_LOOPS = f"""
    {LOOP}
        sums[i] = {SUM_CHUNK}
    for i in range(count):
        mean += sums[i]
    mean /= n
    {LOOP}
        sums[i] = squares(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK), mean)
    for i in range(count):
        total += sums[i]
    return mean, total / n
"""
MOMENTS = {
    "one_pass": f"    {LOOP}\n        welford(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK), sums + 2 * i)"
    + MERGED,
    "two_loops": TWO_LOOPS,
}
FALSE_MOMENTS = {
    "one_thread_for_the_squares": (
        TWO_LOOPS.replace(
            f"    {LOOP}\n        sums[i] = squares", "    for i in range(count):\n        sums[i] = squares"
        ),
        r"thread \d read \d+ of \d+",
    ),
    "moments_one_after_the_other": (
        "    for i in range(count):\n"
        "        welford(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK), sums + 2 * i)" + MERGED,
        "no other thread read any",
    ),
    "moments_beside_an_idle_loop": (
        f"    {LOOP}\n        sums[i] = x[0]\n    welford(x, n, sums)\n    return sums[0], sums[1] / n\n",
        r"thread \d read \d+ of \d+",
    ),
}


@pytest.fixture(scope="module")
def kernels() -> Any:
    bodies = {**{name: text for name, (text, _) in (*CHEATS.items(), *FALSE_MOMENTS.items())}, **HONEST, **MOMENTS}
    functions = [HEAD.format(name) + text for name, text in bodies.items()]
    choices = [f"    if name == {name!r}:\n        return {name}(address, n, partial, threads)\n" for name in bodies]
    one = "def one(name, size_t address, Py_ssize_t n, size_t partial, int threads):\n" + "".join(choices)
    return compiling.build_counted(ours.LANES, HELPERS, *functions, one)


class Handed:
    """A student with this kernel."""

    def __init__(self, kernels: Any, name: str) -> None:
        self.kernels, self.name = kernels, name

    def lanes_pyx(self) -> str:
        return ""

    parallel_pyx = moments_pyx = lanes_pyx

    def native(self, kind: str, pieces: object, function: str, /, **options: Any) -> Any:
        if kind != "counted":
            return None
        there = SimpleNamespace(__file__=self.kernels.__file__, one=functools.partial(self.kernels.one, self.name))
        return beside.counted(there, **{**options, "function": "one"})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "PATIENCE", (0.1, 0.5))


def _shares(kernels: Any, name: str, function: str) -> None:
    for seed in range(2):
        lab._require_shared_work(Handed(kernels, name), np.random.default_rng(seed), function)


@pytest.mark.parametrize("name", HONEST)
def test_honest_sums_share_the_work(kernels: Any, name: str) -> None:
    _shares(kernels, name, "parallel_sum")


@pytest.mark.parametrize("name", MOMENTS)
def test_honest_moments_share_the_work(kernels: Any, name: str) -> None:
    _shares(kernels, name, "parallel_moments")


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_are_named(kernels: Any, name: str) -> None:
    with pytest.raises(Wrong, match=CHEATS[name][1]):
        _shares(kernels, name, "parallel_sum")


@pytest.mark.parametrize("name", FALSE_MOMENTS)
def test_cheats_with_moments_are_named(kernels: Any, name: str) -> None:
    with pytest.raises(Wrong, match=FALSE_MOMENTS[name][1]):
        _shares(kernels, name, "parallel_moments")
