"""Timing things against each other: each in turn, round after round, so that a noisy moment hits all of them alike.

    ours, theirs = in_turn([lambda: f(x), lambda: g(x)], seconds=1.0)      # median seconds a call of each

Between two turns the process sleeps: the threads of some libraries go on spinning for milliseconds after their work is
done, and would take the processors from the next library. On a shared machine, compare the ratio of two medians taken
in the same minute, not a time by itself.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

TURN = 0.01  # seconds of calls one after the other
PAUSE = 0.01  # seconds of sleep before each turn; libgomp's workers spin for about 4 ms
WARM = 0.015  # seconds of calls before a turn is timed: after a sleep both threads run on one processor for up to 10 ms


def in_turn(
    callables: Sequence[Callable[[], Any]],
    seconds: float = 1.0,
    rounds: int = 5,
    pause: float = PAUSE,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """The median time of one call of each, in seconds, spending about `seconds` on all of them together.

    Every callable gets a turn of some calls in each round: a turn is long enough to bring its data back into the
    cache, and short enough that all of them see the same state of the machine. At least `rounds` rounds. `pause` is the
    sleep before each turn, in seconds. `clock` times each call: time.process_time leaves other programs out.
    """
    calls = []
    for f in callables:
        f()
        start = time.perf_counter()
        f()
        once = time.perf_counter() - start
        calls.append(max(1, min(100, int(TURN / max(once, 1e-9)))))
    times: list[list[float]] = [[] for _ in callables]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < rounds * calls[0]:
        for f, count, mine in zip(callables, calls, times, strict=True):
            time.sleep(pause)
            warm = time.perf_counter() + WARM
            f()  # not timed: it wakes the threads and brings the data back after the others' turns
            while time.perf_counter() < warm:
                f()
            for _ in range(count):
                start = clock()
                f()
                mine.append(clock() - start)
    return [statistics.median(mine) for mine in times]
