"""Runs the ranks of a data-parallel program under the lab's names, and counts their messages.

    def average(rank):
        return rank.all_reduce(np.array(rank.number)) / rank.size

    simulate(4, average)          # [1.5, 1.5, 1.5, 1.5]

All ranks are threads of this process, as in minorm.distributed. If a rank calls a different collective than the other
ranks, or has ended, a real program would hang; here an error is raised. Under `mpiexec -n 2 python`, two processes
share the ranks between them and send real messages, and each process gets the results of all ranks.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from minorm import distributed
from minorm.distributed import Group, RankError
from minorm.distributed.launcher import launched
from minorm.labs.calling.wire import HEADER, decode, encode

__all__ = ["Rank", "RankError", "simulate"]


class RemoteGroup:
    """A process group in a student's process.

    Its collectives ask the judge, whose process has the ranks that exchange the numbers.
    """

    def __init__(self, rank: int, size: int, function: Callable[[str], Callable[..., Any]]) -> None:
        self.rank, self.size = rank, size
        self.all_gather, self.all_reduce = function("all_gather"), function("all_reduce")


class Rank:
    """One rank: number, size, and the collectives.

    messages, numbers_sent   how many collectives the rank has called, and how many numbers the rank has sent
    """

    def __init__(self, group: Group | RemoteGroup) -> None:
        self.number, self.size, self._group = group.rank, group.size, group
        self.messages = self.numbers_sent = 0

    def all_gather(self, value: Any) -> Any:
        """Return the arrays that the ranks sent, stacked along a new first axis."""
        return self._group.all_gather(self._counted(value))

    def all_reduce(self, value: Any) -> Any:
        """Return the sum of the arrays that the ranks sent."""
        return self._group.all_reduce(self._counted(value))

    def _counted(self, value: Any) -> Any:
        array = np.array(value)
        self.messages += 1
        self.numbers_sent += array.size
        return array


def simulate(size: int, program: Callable[[Rank], Any]) -> list[Any]:
    """Run program(rank) on `size` ranks at once, and return a list of the results.

    An error of one rank ends all ranks.
    """
    process, processes = launched()
    if not 1 < processes <= size:
        return distributed.simulate(size, lambda group: program(Rank(group)))
    if process:
        sys.stdout = io.StringIO()  # only the first process prints a notebook's output
    found: list[Any] = distributed.run(lambda group: _all(group, program(Rank(group))), size)[0]
    return found


def _all(group: Group, result: Any) -> list[Any]:
    """Exchange the results between processes, so that every process gets the results of all ranks."""
    text, body = encode(result)
    message = np.frombuffer(HEADER.pack(len(text), len(body)) + text + body, np.uint8)
    longest = int(group.all_reduce(np.array(len(message)), np.maximum, "the length of the results"))
    rows = group.all_gather(np.pad(message, (0, longest - len(message))), "the results")
    found = []
    for data in (row.tobytes() for row in rows):
        middle, end = np.cumsum(HEADER.unpack(data[: HEADER.size])) + HEADER.size
        found.append(decode(data[HEADER.size : middle], data[middle:end]))
    return found
