"""Times on a GPU: of the device by its own events, the buffers in rotation, and of Python without waiting for it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import minorm as mn

RUNS = 30
WARMING = False  # everything runs once, for the kernels it compiles; no figure is one then
AHEAD = 3  # copies of half a gigabyte: some tenths of a millisecond, in which Python launches a few dozen kernels
ROTATED = 512 << 20  # bytes of buffers in turn: beyond any second-level cache


def milliseconds(function: Callable[[int], Any]) -> float:
    """The median over calls, by the device's own clock; the call is told its number.

    A large copy goes before each call: while the device is busy with it Python launches what is measured, so that no
    launch is waited for and nothing of the call before is left in the cache.
    """
    import cupy

    if WARMING:
        function(0)
        return 0.0
    source, target = cupy.ones(1 << 27, cupy.float32), cupy.empty(1 << 27, cupy.float32)
    for i in range(3):
        function(i)
    times = []
    for i in range(RUNS):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        for _ in range(AHEAD):
            cupy.copyto(target, source)
        start.record()
        function(i)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end))
    return statistics.median(times)


def copy_rate() -> float:
    """Measure how many bytes a second a copy reads and writes."""
    import cupy

    source = cupy.ones(1 << 28, cupy.float32)
    target = cupy.empty_like(source)
    return 2 * source.nbytes / milliseconds(lambda _: cupy.copyto(target, source)) * 1000


def copies(size: int) -> int:
    """Return how many inputs of `size` bytes take turns."""
    return 1 if WARMING else max(2, min(8, ROTATED // size))


def both_ways(name: str, calls: list[Callable[[], Any]], leaves: list[list[Any]]) -> dict[str, float]:
    """Milliseconds of calls that take turns, and of the backward passes from what they gave, of minorm or PyTorch."""
    forward = milliseconds(lambda i: calls[i % len(calls)]())
    done = [call() for call in calls]
    incoming = [y.detach() * 0.5 + 1 for y in done]

    def back(i: int) -> None:
        number = i % len(done)
        done[number].backward(incoming[number], retain_graph=True)
        for leaf in leaves[number]:
            leaf.grad = None

    return {f"{name} forward": forward, f"{name} backward": milliseconds(back)}


def microseconds(call: Callable[[], Any], calls: int = 2000, wait: bool = False) -> float:
    """Python's part of a call, the median over ten rounds; with `wait` until the device is done with the round."""
    rounds = []
    call()
    if WARMING:
        return 0.0
    for _ in range(10):
        mn.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls // 10):
            call()
        if wait:
            mn.cuda.synchronize()
        rounds.append((time.perf_counter() - start) / (calls // 10) * 1e6)
    return statistics.median(rounds)
