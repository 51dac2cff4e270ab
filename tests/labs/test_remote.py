"""Processes of one submission share nothing, and what they send is looked at within the limits."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from minorm.kernels.partial import PartialBackend
from minorm.kernels.reference import norm
from minorm.labs import submission
from minorm.labs.beside import Beside
from minorm.labs.ranks import Rank, simulate
from minorm.labs.remote import Remote
from minorm.labs.student import Failure, Here
from minorm.nest import plan

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
