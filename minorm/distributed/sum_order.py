"""Fixes the order in which the values of ranks are added: one binary tree over all ranks.

    ranks 0 .. 5      ((0 1) (2 3)) (4 5)

Neighbours are paired from below: leaves 2i and 2i + 1, then pairs of these; the last of an odd level goes up alone. The
tree depends only on the number of ranks. A process that carries ranks 2 and 3 adds up (2 3), and every other process
puts the same brackets around the same numbers: so the result has the same bits on any number of processes.

A subtree is named by its ranks, (start, stop). It splits at the largest power of two that is less than its length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Combine = Callable[[Any, Any], Any]  # (of the lower ranks, of the higher ranks) -> of both
Subtree = tuple[int, int]


def split(start: int, stop: int) -> int:
    """Return the place at which the subtree start .. stop splits into its left and its right child."""
    return start + (1 << (stop - start - 1).bit_length() - 1)


def carried(process: int, processes: int, size: int) -> range:
    """Return the ranks of one process: neighbours, and their number differs by at most one between processes."""
    return range(size * process // processes, size * (process + 1) // processes)


def subtrees(ranks: range, start: int, stop: int) -> Iterator[Subtree]:
    """Yield the largest subtrees of start .. stop that these ranks fill, in order."""
    if ranks.start <= start and stop <= ranks.stop:
        yield start, stop
    elif start < ranks.stop and ranks.start < stop:
        middle = split(start, stop)
        yield from subtrees(ranks, start, middle)
        yield from subtrees(ranks, middle, stop)


def total(parts: Mapping[Subtree, Any], combine: Combine, start: int, stop: int) -> Any:
    """Return the value of a subtree from the values of smaller subtrees that fill it."""
    if (start, stop) in parts:
        return parts[start, stop]
    middle = split(start, stop)
    return combine(total(parts, combine, start, middle), total(parts, combine, middle, stop))


def halves(length: int, process: int, processes: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield the steps of a sum by halves among a power of two of processes: (partner, half to give, half to keep).

    With process ^ 1, ^ 2, ^ 4 ... each process gives one half of its part away and keeps the other. In the end each has
    one piece of the total. In reverse order, the same steps bring all pieces to all processes.
    """
    start, stop, step = 0, length, 1
    while step < processes:
        middle = (start + stop) // 2
        low, high = slice(start, middle), slice(middle, stop)
        keep, give = (high, low) if process & step else (low, high)
        yield process ^ step, give, keep
        start, stop, step = keep.start, keep.stop, 2 * step
