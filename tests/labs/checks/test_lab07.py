"""Lab 7: typically wrong kernels lose the points they should, and no others; one that crashes costs its own task."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from minorm.labs.calling.student import Failure
from minorm.labs.checks import lab07_openmp
from minorm.labs.comparing import Wrong
from minorm.labs.lab import Check

pytest.importorskip("Cython")

PLAIN, EMPTY = "one after the other", "nothing to add"
LANES, EVERY, TWICE = "the sum in lanes", "every length of a sum", "twice as fast as the plain loop"
CHUNKS, BITS = "the sum in chunks", "the same bits for 1 to 8 threads"
STARTED, SHARE = "as many threads as asked for", "each thread reads its share"
MOMENTS, FAR, DRIFTING = "mean and variance", "moments of every length, any offset", "chunks with different means"
MOMENT_BITS, MOMENT_SHARE = "the same bits, and threads", "each thread reads its share of the moments"
UNSHARED = {BITS, STARTED, SHARE, MOMENT_BITS, MOMENT_SHARE}
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
            UNSHARED,
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
        (
            [("cdef double[16] a", "cdef double[16 a")],
            {MOMENTS, FAR, DRIFTING, MOMENT_BITS, MOMENT_SHARE, LAYER, OTHERS},
        ),
    ],
)
def test_wrong_kernels(
    lost: Any, changes: list[tuple[str, str]], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if expected >= UNSHARED:  # to wait for threads that never come makes no difference
        monkeypatch.setattr(lab07_openmp, "PATIENCE", (0.1,))
    assert lost(7, *changes) == expected


def test_one_thread_alone_is_noticed(lost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab07_openmp, "PATIENCE", (0.1,))
    assert lost(7, (LOOP, "range(count)")) == UNSHARED


def test_zeros_earn_nothing(lost: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab07_openmp, "PATIENCE", (0.1,))
    kernels = (
        ("    return total\n", "    return 0\n"),
        ("    return lane_sum(<const float*>address, n)", "    return 0"),
        ("    return mean, m2 / n\n", "    return 0, 0\n"),
        ("    return k, mean - k, var", "    return 0 * k, 0 * k, 0 * k"),
        ("    if not centered:", "    if False:"),
    )
    assert lost(7, *kernels) == {item.title for item in lab07_openmp.LAB.items if isinstance(item, Check)}


def test_a_kernel_that_crashes_costs_what_needs_it(judge_changed: Any) -> None:
    report = judge_changed(7, ("m2 += (x[i] - mean)", "m2 += (x[i - (<Py_ssize_t>1 << 40)] - mean)"), patience=3)
    rows = {row.title: row for row in report.outcomes}
    assert all(rows[title].status == "passed" for title in (PLAIN, EMPTY, LANES, EVERY, TWICE, CHUNKS, BITS, STARTED))
    assert rows[MOMENTS].status == "died"
    assert "SIGSEGV" in rows[MOMENTS].got
    assert {rows[title].status for title in (FAR, DRIFTING, MOMENT_BITS, MOMENT_SHARE)} == {"not run"}
    assert {rows[title].remark for title in (LAYER, OTHERS)} == {
        "passes if the functions of 7.4 are replaced by right ones"
    }


@pytest.mark.parametrize(
    ("status", "plain", "lanes"),
    [
        ("passes", [4.0] * 5, [1.5] * 5),
        ("passes", [4.0, 9.0, 9.0, 9.0, 9.0], [9.0, 9.0, 1.9, 9.0, 9.0]),  # others run too, and it shows all the same
        ("wrong", [4.0] * 5, [3.0] * 5),
        ("not tried", [4.0, 9.0, 9.0, 9.0, 9.0], [3.0, 9.0, 9.0, 9.0, 9.0]),
    ],
)
def test_a_busy_machine_is_told_from_a_slow_kernel(
    status: str, plain: list[float], lanes: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds of each round, of the judge's plain loop and of the student's lanes."""
    times = iter([seconds for _ in range(2) for pair in zip(plain, lanes, strict=True) for seconds in pair])
    monkeypatch.setattr(lab07_openmp, "_timed", lambda *_, **__: next(times))
    monkeypatch.setattr(lab07_openmp, "_summed", lambda _student, _function, x: x.sum(dtype=np.float64))
    student: Any = SimpleNamespace(yardstick=None, native=None, lanes_pyx=lambda: "")
    expected: dict[str, Any] = {
        "passes": contextlib.nullcontext(),
        "wrong": pytest.raises(Wrong, match=r"1\.33 times as fast"),
        "not tried": pytest.raises(Failure, match=r"busy: our own plain loop usually took 2\.2 times as long"),
    }
    with expected[status] as caught:
        lab07_openmp.lanes_fast(student, np.random.default_rng(0))
    if caught is not None and status == "not tried":
        assert caught.value.status == "not tried"
