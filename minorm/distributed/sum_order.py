"""The order in which ranks add up: one binary tree over all of them, whoever carries them.

    ranks 0 .. 5      ((0 1) (2 3)) (4 5)

Neighbours are paired from below: leaves 2i and 2i + 1, then pairs of these; the last of an odd level goes up alone. The
tree depends on the number of ranks alone. A process that carries ranks 2 and 3 adds up (2 3), and whoever adds up the
rest puts the same brackets around the same numbers: so the same bits come out on any number of processes.

A subtree is named by its ranks, (start, stop). It splits at the largest power of two that is less than its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Combine = Callable[[Any, Any], Any]  # (of the lower ranks, of the higher ranks) -> of both
Subtree = tuple[int, int]


def split(start: int, stop: int) -> int:
    """Where the subtree start .. stop splits: its left child ends there and its right child begins."""
    return start + (1 << (stop - start - 1).bit_length() - 1)


def carried(process: int, processes: int, size: int) -> range:
    """The ranks of one process: neighbours, as many as the others have or one more."""
    return range(size * process // processes, size * (process + 1) // processes)


def subtrees(ranks: range, start: int, stop: int) -> Iterator[Subtree]:
    """The largest subtrees of start .. stop that these ranks fill, in order."""
    if ranks.start <= start and stop <= ranks.stop:
        yield start, stop
    elif start < ranks.stop and ranks.start < stop:
        middle = split(start, stop)
        yield from subtrees(ranks, start, middle)
        yield from subtrees(ranks, middle, stop)


def total(parts: Mapping[Subtree, Any], combine: Combine, start: int, stop: int) -> Any:
    """The value of a subtree from those of subtrees inside it, which fill it."""
    if (start, stop) in parts:
        return parts[start, stop]
    middle = split(start, stop)
    return combine(total(parts, combine, start, middle), total(parts, combine, middle, stop))


def halves(length: int, process: int, processes: int) -> Iterator[tuple[int, slice, slice]]:
    """How a vector is summed by halves among a power of two of processes: (partner, what it gets, what it gives).

    With process ^ 1, ^ 2, ^ 4 ... each gives away one half of what it still has and keeps the other. In the end each
    has one piece of the total. Read backward, the same steps bring all pieces to all processes.
    """
    start, stop, step = 0, length, 1
    while step < processes:
        middle = (start + stop) // 2
        low, high = slice(start, middle), slice(middle, stop)
        keep, give = (high, low) if process & step else (low, high)
        yield process ^ step, give, keep
        start, stop, step = keep.start, keep.stop, 2 * step
