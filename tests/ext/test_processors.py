"""The threads of a team run on separate processors (minorm_ext/runtime/processors.h)."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from minorm_ext.baseline import machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system decides")


def in_a_thread(what: Callable[[], Any]) -> Any:
    """Run `what` in a new thread, so that its settings end with the thread; return the result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(what()))
    thread.start()
    thread.join()
    return found[0]


def settled(own: set[int], other: int) -> tuple[int, set[int]]:
    """Where a thread that may use its own processors starts beside another, and what it may use then."""

    def start() -> tuple[int, set[int]]:
        os.sched_setaffinity(0, own)
        return machine.settle(other), os.sched_getaffinity(0)

    return in_a_thread(start)


@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="needs two processors")
def test_a_thread_leaves_the_processor_of_another_and_may_use_it_again() -> None:
    first, second, *_ = sorted(os.sched_getaffinity(0))
    for other, left in ((first, second), (second, first)):
        for _ in range(20):  # wherever it is when it starts
            assert settled({first, second}, other) == (left, {first, second})


def test_a_bound_thread_stays_where_it_is() -> None:
    for processor in os.sched_getaffinity(0):
        assert settled({processor}, processor) == (processor, {processor})


def test_a_thread_that_shares_with_nobody_stays_where_it_is() -> None:
    processor = max(os.sched_getaffinity(0))
    assert settled({processor}, processor + 1) == (processor, {processor})
    assert settled({processor}, -1) == (processor, {processor})  # the other has not said yet
