"""Lab 7: typically wrong kernels lose the points they should, and no others; one that crashes costs its own task."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from minorm.labs.checks import lab07_openmp
from minorm.labs.comparing import Wrong

pytest.importorskip("Cython")

PLAIN, EMPTY = "one after the other", "nothing to add"
LANES, EVERY, TWICE = "the sum in lanes", "every length of a sum", "twice as fast as the plain loop"
CHUNKS, BITS = "the sum in chunks", "the same bits for 1 to 8 threads"
STARTED, FASTER = "as many threads as asked for", "faster with more threads"
MOMENTS, FAR, DRIFTING = "mean and variance", "moments of every length, any offset", "chunks with means of their own"
MOMENT_BITS = "the same bits, and threads"
LAYER, OTHERS = "LayerNorm with your kernel", "BatchNorm and RMSNorm"
LOOP = 'prange(count, nogil=True, schedule="static", num_threads=threads)'
SUM = f"""    for i in {LOOP}:
        sums[i] = lane_sum(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK))
    for i in range(count):
        total += sums[i]
"""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # a double where a float was asked for
        ([("    cdef float total = 0", "    cdef double total = 0")], {PLAIN}),
        # what is left over is forgotten; kernels of whole chunks do not see it
        (
            [("    while i < n:\n        total += x[i]\n        i += 1\n    return total", "    return total")],
            {LANES, EVERY, CHUNKS},
        ),
        # no lanes: right, and slow
        ([("    while i + 32 <= n:", "    while i + 32 <= 0:")], {TWICE}),
        # Cython's own reduction: its order depends on the threads
        (
            [
                (
                    SUM,
                    f"""    for i in {LOOP}:
        total += lane_sum(x + i * CHUNK, min(<Py_ssize_t>CHUNK, n - i * CHUNK))
""",
                )
            ],
            {BITS},
        ),
        # a chunk for each thread
        (
            [
                (
                    SUM,
                    """    cdef Py_ssize_t each = (n + threads - 1) // threads
    for i in prange(threads, nogil=True, schedule="static", num_threads=threads):
        sums[i] = lane_sum(x + i * each, max(<Py_ssize_t>0, min(each, n - i * each)))
    for i in range(threads):
        total += sums[i]
""",
                ),
            ],
            {BITS},
        ),
        # num_threads forgotten, in both
        (
            [(", num_threads=threads)", ")")],
            {STARTED, MOMENT_BITS},
        ),
        # the delta^2 of Chan's formula forgotten
        ([(" + delta * delta * n1 * n2 / (n1 + n2)", "")], {MOMENTS, FAR, DRIFTING, LAYER}),
        # the naive formula, now in double
        (
            [
                ("(x[i + j] - mean) * (x[i + j] - mean)", "<double>x[i + j] * x[i + j]"),
                ("m2 += (x[i] - mean) * (x[i] - mean)", "m2 += <double>x[i] * x[i]"),
                ("    part[1] = m2", "    part[1] = m2 - n * mean * mean"),
            ],
            {FAR, LAYER},
        ),
        # N - 1
        ([("return mean, m2 / n\n", "return mean, m2 / (n - 1)\n")], {MOMENTS, FAR, DRIFTING, LAYER, OTHERS}),
        # k in float64, which becomes a float32 mean
        (
            [
                ("mean.astype(np.float32).astype(np.float64)", "mean"),
                ("return k, mean - k, var", "return k, 0 * k, var"),
            ],
            {LAYER, OTHERS},
        ),
        # centered whatever was asked for
        ([("    if not centered:", "    if False:")], {OTHERS}),
        # no Cython at all
        ([("cdef double[16] a", "cdef double[16 a")], {MOMENTS, FAR, DRIFTING, MOMENT_BITS, LAYER, OTHERS}),
    ],
)
def test_wrong_kernels(lost: Any, changes: list[tuple[str, str]], expected: set[str]) -> None:
    found = lost(7, *changes)
    assert found - {FASTER} == expected  # whether threads help depends on what else the machine does


def test_one_thread_alone_is_noticed(lost: Any) -> None:
    found = lost(7, ('prange(count, nogil=True, schedule="static", num_threads=threads)', "range(count)"))
    assert found - {FASTER} == {STARTED, MOMENT_BITS}


def test_a_kernel_that_crashes_costs_what_needs_it(judge_changed: Any) -> None:
    report = judge_changed(7, ("m2 += (x[i] - mean)", "m2 += (x[i - (<Py_ssize_t>1 << 40)] - mean)"), patience=3)
    rows = {row.title: row for row in report.outcomes}
    assert all(rows[title].status == "passed" for title in (PLAIN, EMPTY, LANES, EVERY, TWICE, CHUNKS, BITS, STARTED))
    assert rows[MOMENTS].status == "died"
    assert "SIGSEGV" in rows[MOMENTS].got
    assert {rows[title].status for title in (FAR, DRIFTING, MOMENT_BITS)} == {"not run"}
    assert {rows[title].remark for title in (LAYER, OTHERS)} == {"passes with 7.4 right"}


class Idle:
    """A student of whom only times are asked."""

    def yardstick(self, *_: Any, **__: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("passes", "rounds"),
    [
        (True, [[2.0, 1.1, 2.0, 1.1]]),  # a quiet machine
        (True, [[2.0, 2.0, 2.0, 1.9]]),  # one where nothing gets faster
        (True, [[2.0, 1.9, 2.0, 1.0], *[[2.2, 1.7, 2.0, 1.5]] * 11]),  # reading alone had the quiet moment
        (False, [[2.0, 2.0, 2.0, 1.1]] * 12),  # one thread does all
        (False, [[2.0, 2.0, 2.0, 1.0], *[[2.2, 2.1, 2.0, 1.5], [2.0, 2.2, 2.1, 1.4]] * 5, [2.6, 2.0, 2.0, 1.5]]),
    ],
)
def test_what_counts_as_faster(passes: bool, rounds: list[list[float]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of parallel_sum with one thread and with two, and of reading; the last rounds are a busy machine's."""
    measured = iter(rounds)
    monkeypatch.setattr(lab07_openmp, "_thread_times", lambda *_: next(measured))
    monkeypatch.setattr(lab07_openmp, "_shared", lambda *_, **__: None)
    monkeypatch.setattr(lab07_openmp.config, "get_num_threads", lambda: 2)
    with contextlib.nullcontext() if passes else pytest.raises(Wrong, match="parallel_sum of 4 MB"):
        lab07_openmp.parallel_fast(Idle(), np.random.default_rng(0))
