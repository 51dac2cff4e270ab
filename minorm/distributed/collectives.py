"""Computes collectives over all ranks: the ranks of this process, and, through the engine, those of other processes.

In every call, processes first exchange headers, and each process compares the headers that it receives with its own
header. So differing calls are found at once, and no process waits for a message that never comes. Small arrays (up to 4
kB) are sent together with the header.

Sums follow the order of sum_order.py. If the numbers of ranks and processes are powers of two, a process exchanges
subtrees with the processes `process ^ 1`, `process ^ 2`, `process ^ 4` ... A long vector is summed by halves, which
sends as few bytes as the best all-reduce. For other numbers, every process gathers the largest subtrees of all
processes, and adds them up itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.distributed import sum_order
from minorm.distributed.engine import NOTE, Engine
from minorm.distributed.meeting import HEADER, Call, compare
from minorm.distributed.sum_order import Combine

Array = Any
SMALL = NOTE - HEADER  # the most bytes of an array in the header's message


class Collectives:
    """The collectives of a process that runs `ranks` of all `size` ranks.

    If there is no engine, this process runs all ranks.
    """

    def __init__(self, ranks: range, size: int, engine: Engine | None) -> None:
        self.ranks, self.size, self.engine = ranks, size, engine
        self.processes = 1 if engine is None else engine.processes
        self.doubling = _is_power(size) and _is_power(self.processes)  # swap with process ^ 1, ^ 2, ^ 4 ...
        self.carried = [sum_order.carried(process, self.processes, size) for process in range(self.processes)]

    def agree(self, call: Call) -> None:
        """Raise RankError unless all processes make the same call."""
        if self.engine is not None:
            with self.engine.waiting(str(call)):
                self._agree(self.engine, call)

    def all_gather(self, call: Call, values: list[Array]) -> Array:
        """Return the arrays of all ranks along a new first axis."""
        mine = np.stack(values)
        if self.engine is None:
            return mine
        with self.engine.waiting(str(call)):
            self._agree(self.engine, call)
            blocks = self.engine.gather(_padded(mine, max(map(len, self.carried))))
        return np.concatenate([block[: len(ranks)] for block, ranks in zip(blocks, self.carried, strict=True)])

    def all_reduce(self, call: Call, values: list[Array], combine: Combine) -> Array:
        """Combine the arrays of all ranks in the order of the tree of sum_order.py, and return the result."""
        parts = {(rank, rank + 1): value for rank, value in zip(self.ranks, values, strict=True)}
        if self.engine is None:
            return sum_order.total(parts, combine, 0, self.size)
        with self.engine.waiting(str(call)):
            if not self.doubling:
                return self._gathered(self.engine, call, parts, combine)
            mine = sum_order.total(parts, combine, self.ranks.start, self.ranks.stop)
            if mine.nbytes <= SMALL:
                return self._doubled(self.engine, call, mine, combine)
            self._agree(self.engine, call)
            # only an elementwise sum can be computed in pieces
            return self._halved(self.engine, mine) if combine is np.add else self._whole(self.engine, mine, combine)

    def broadcast(self, call: Call, values: list[Array], root: int) -> Array:
        """Return the array of rank `root`."""
        if self.engine is None:
            return values[root]
        owner = next(process for process, ranks in enumerate(self.carried) if root in ranks)
        with self.engine.waiting(str(call)):
            self._agree(self.engine, call)
            return self.engine.broadcast(values[root - self.ranks.start if root in self.ranks else 0], owner)

    def _agree(self, engine: Engine, call: Call) -> None:
        """Raise RankError unless all processes send the same header.

        If the collectives use doubling, a process compares headers only with a few other processes. This is enough to
        find every difference.
        """
        if self.doubling:
            for step in _powers(self.processes):
                self._check(call, engine.process ^ step, engine.swap(call.header(), engine.process ^ step))
        else:
            headers = engine.gather(np.frombuffer(call.header(), np.uint8))
            for process, header in enumerate(headers):
                self._check(call, process, header.tobytes())

    def _check(self, call: Call, process: int, note: bytes) -> None:
        # our own call in the form that others see: a header cuts a long name
        compare(self.ranks.start, Call.of(call.header()), self.carried[process].start, Call.of(note[:HEADER]))

    def _doubled(self, engine: Engine, call: Call, mine: Array, combine: Combine) -> Array:
        """Compute the total of small arrays, which are sent together with the headers."""
        for step in _powers(self.processes):
            partner = engine.process ^ step
            note = engine.swap(call.header() + mine.tobytes(), partner)
            self._check(call, partner, note)
            theirs = np.frombuffer(note[HEADER:], mine.dtype).reshape(mine.shape)
            mine = combine(theirs, mine) if partner < engine.process else combine(mine, theirs)
        return mine

    def _whole(self, engine: Engine, mine: Array, combine: Combine) -> Array:
        """Compute the total of long arrays that cannot be split."""
        for step in _powers(self.processes):
            partner, theirs = engine.process ^ step, np.empty_like(mine, order="C")
            engine.exchange(np.ascontiguousarray(mine), theirs, partner)
            mine = combine(theirs, mine) if partner < engine.process else combine(mine, theirs)
        return mine

    def _halved(self, engine: Engine, mine: Array) -> Array:
        """Compute the sum of long arrays by halves.

        The two partners of a step get equal sums, since a + b and b + a have the same bits.
        """
        vector = np.array(mine, order="C").reshape(-1)
        steps = list(sum_order.halves(vector.size, engine.process, self.processes))
        for partner, give, keep in steps:
            theirs = np.empty_like(vector[keep])
            engine.exchange(vector[give], theirs, partner)
            vector[keep] += theirs
        for partner, missing, done in reversed(steps):
            engine.exchange(vector[done], vector[missing], partner)
        return vector.reshape(mine.shape)

    def _gathered(self, engine: Engine, call: Call, parts: dict[sum_order.Subtree, Array], combine: Combine) -> Array:
        """Compute a total for any number of ranks and processes: each process gathers all subtrees and adds them up."""
        filled = [list(sum_order.subtrees(ranks, 0, self.size)) for ranks in self.carried]
        mine = np.stack([sum_order.total(parts, combine, *subtree) for subtree in filled[engine.process]])
        self._agree(engine, call)
        blocks = engine.gather(_padded(mine, max(map(len, filled))))
        found = {subtree: part for row, block in zip(filled, blocks, strict=True) for subtree, part in zip(row, block)}  # noqa: B905  a block is padded
        return sum_order.total(found, combine, 0, self.size)


def _is_power(n: int) -> bool:
    return n & (n - 1) == 0


def _powers(processes: int) -> list[int]:
    """Return the powers 1, 2, 4 ... below the number of processes."""
    return [1 << i for i in range((processes - 1).bit_length())]


def _padded(block: Array, rows: int) -> Array:
    """Return the block, padded with zeros to `rows` rows."""
    return np.concatenate([block, np.zeros((rows - len(block), *block.shape[1:]), block.dtype)])
