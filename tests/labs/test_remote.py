"""The processes of one submission share nothing, and the limits hold for everything that they send."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference import norm
from minorm.labs.beside import Beside
from minorm.labs.calling import submission
from minorm.labs.calling.student import Failure, Here
from minorm.labs.ranks import Rank, simulate
from minorm.labs.remote import Remote
from minorm.normalization.nest import plan

LAB = Beside("minorm.labs.beside.lab00_axes")
TEXT = """\
import numpy as np
from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference import norm

calls = []

def count(x):
    calls.append(x)
    return len(calls)

def total(rank, value):
    calls.append(rank.number)
    return [rank.all_reduce(np.array(value)), rank.messages, len(calls)]

def moments(nest, x, centered):
    return norm.moments(nest, x, centered)

def order(x):
    return x.flags.f_contiguous, x

def backend(rank):
    return PartialBackend(moments=moments)

def sleep(x):
    import time
    time.sleep(100)

def deep(x):
    for _ in range(1000):
        x = [x]
    return x
"""


@pytest.fixture(params=["remote", "here"])
def student(request: Any) -> Any:
    if request.param == "here":
        yield Here(submission.load(TEXT, "mine.py")[0], LAB)
        return
    with Remote(TEXT, "mine.py", LAB, 1 << 31) as remote:
        remote.allow(30)
        yield remote


def test_a_fresh_process_remembers_nothing() -> None:
    with Remote(TEXT, "mine.py", LAB, 1 << 31) as remote:
        remote.allow(30)
        assert [remote.count(1), remote.count(1)] == [1, 2]
        remote.fresh()
        remote.allow(30)
        assert remote.count(1) == 1


def test_ranks_meet_in_the_judge(student: Any) -> None:
    def program(rank: Rank) -> Any:
        return [student.at(rank).total(rank.number + 1.0), rank.messages]

    found = simulate(3, program)
    assert [float(result[0]) for result, _ in found] == [6.0] * 3
    assert [messages for _, messages in found] == [1] * 3
    if isinstance(student, Remote):
        assert [result[2] for result, _ in found] == [1] * 3, "each rank has a memory of its own"


def test_a_backend_that_a_rank_holds(student: Any) -> None:
    def program(rank: Rank) -> Any:
        call = student.at(rank).hold("backend")
        return call("moments", nest, x, True)

    x = np.random.default_rng(0).standard_normal((3, 4))
    nest = plan(x.shape, (1,))
    for found in simulate(2, program):
        for got, right in zip(found, norm.moments(nest, x, True), strict=True):
            np.testing.assert_array_equal(got, right)


def test_a_function_of_the_students_in_a_layer_here(student: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    nest = plan(x.shape, (1,))
    mine, ours = PartialBackend(moments=student.moments), PartialBackend()
    for got, right in zip(mine.moments(nest, x, True), ours.moments(nest, x, True), strict=True):
        np.testing.assert_array_equal(got, right)


def test_arrays_keep_their_order_in_memory(student: Any) -> None:
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    fortran, back = student.order(x)
    assert fortran is True
    assert back.strides == x.strides
    np.testing.assert_array_equal(back, x)


def test_what_takes_too_long_or_is_no_message_ends_the_process() -> None:
    with Remote(TEXT, "mine.py", LAB, 1 << 31) as remote:
        remote.allow(1)
        start = time.monotonic()
        with pytest.raises(Failure, match="no answer within 1 s"):
            remote.sleep(1)
        assert time.monotonic() - start < 5
        remote.allow(20)
        with pytest.raises(Failure, match="deep"):
            remote.deep(1)


def allowed(text: str, deadline: float, patience: float = 1.0) -> Remote:
    return Remote(text, "mine.py", Beside(""), 1 << 31, patience, deadline=deadline)


def test_loading_again_and_again_takes_the_files_time() -> None:
    """Else a file that sleeps while it is loaded holds the grader for that long in every process."""
    with allowed("import time; time.sleep(0.7)\ndef one(): return 1\n", deadline=1.0) as remote:
        remote.allow(30)
        assert remote.one() == 1
        remote.fresh()
        with pytest.raises(Failure, match="loading the file and running its checks used up their 1 s") as late:
            remote.allow(30)
        assert late.value.status == "too slow"
        for _ in range(3):
            with pytest.raises(Failure, match="loading the file and running its checks") as left_out:
                remote.allow(30)
            assert left_out.value.status == "not run"


def test_calls_that_are_nearly_too_slow_take_the_files_time() -> None:
    with allowed("import time\ndef nap(s): time.sleep(s)\n", deadline=0.4, patience=2.0) as remote:
        remote.allow(0.5)
        remote.nap(0.5)
        start = time.monotonic()
        remote.allow(10)
        with pytest.raises(Failure, match=r"used up their 0\.8 s"):
            remote.nap(9)
        assert time.monotonic() - start < 5
        with pytest.raises(Failure, match=r"used up their 0\.8 s"):
            remote.allow(10)


def test_a_loop_without_an_end_is_named_by_its_line() -> None:
    with (
        allowed("x = 1\n\ndef one(): return 1\n\nwhile x: pass\n", deadline=60.0, patience=0.1) as remote,
        pytest.raises(Failure, match=r"^line 5 did not end within 3 s; is there an endless loop\?$"),
    ):
        remote.allow(10)


def test_what_the_judge_does_meanwhile_takes_none() -> None:
    with allowed("def one(): return 1\n", deadline=1.0) as remote:
        for _ in range(3):
            remote.allow(30)
            assert remote.one() == 1
            time.sleep(0.4)
        time.sleep(0.5)
        remote.allow(30)
        assert remote.one() == 1
