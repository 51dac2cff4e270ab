"""Fixes the order in which the values of ranks are added: one binary tree over all ranks.

    ranks 0 .. 5      ((0 1) (2 3)) (4 5)

First the ranks 2i and 2i + 1 are paired, then neighbouring pairs are paired, and so on. If a level has an odd number of
entries, its last entry moves up alone. The tree depends only on the number of ranks. Every process puts the same
brackets around the same numbers; for example, the process that runs ranks 2 and 3 adds up (2 3). So the result has the
same bits on any number of processes.

A subtree is named by its range of ranks, (start, stop). The number of ranks in its left part is the largest power of
two below its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Combine = Callable[[Any, Any], Any]  # (value of the lower ranks, value of the higher ranks) -> value of both
Subtree = tuple[int, int]


def split(start: int, stop: int) -> int:
    """Return the first rank of the right part of the subtree start .. stop."""
    return start + (1 << (stop - start - 1).bit_length() - 1)


def carried(process: int, processes: int, size: int) -> range:
    """Return the range of ranks that one process runs; the numbers of ranks per process differ by at most one."""
    return range(size * process // processes, size * (process + 1) // processes)


def subtrees(ranks: range, start: int, stop: int) -> Iterator[Subtree]:
    """Yield, in order, the largest subtrees of start .. stop that contain only ranks of `ranks`."""
    if ranks.start <= start and stop <= ranks.stop:
        yield start, stop
    elif start < ranks.stop and ranks.start < stop:
        middle = split(start, stop)
        yield from subtrees(ranks, start, middle)
        yield from subtrees(ranks, middle, stop)


def total(parts: Mapping[Subtree, Any], combine: Combine, start: int, stop: int) -> Any:
    """Return the value of the subtree start .. stop by combining the subtrees in `parts`, which cover it."""
    if (start, stop) in parts:
        return parts[start, stop]
    middle = split(start, stop)
    return combine(total(parts, combine, start, middle), total(parts, combine, middle, stop))


def halves(length: int, process: int, processes: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield the steps of a sum by halves, (partner, half to give, half to keep); `processes` must be a power of two.

    In each step, with partner `process ^ 1`, `process ^ 2`, `process ^ 4` ..., a process gives away one half of its
    part and keeps the other half. At the end, each process has one piece of the total. The same steps in reverse order
    bring all pieces to all processes.
    """
    start, stop, step = 0, length, 1
    while step < processes:
        middle = (start + stop) // 2
        low, high = slice(start, middle), slice(middle, stop)
        keep, give = (high, low) if process & step else (low, high)
        yield process ^ step, give, keep
        start, stop, step = keep.start, keep.stop, 2 * step
