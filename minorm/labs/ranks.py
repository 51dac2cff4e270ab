"""Ranks of a data-parallel program, simulated: each is a thread, and what they say to each other goes through here.

    def average(rank):
        return rank.all_reduce(np.array(rank.number)) / rank.size

    simulate(4, average)          # [1.5, 1.5, 1.5, 1.5]

As with MPI or NCCL, all ranks must call the same collectives in the same order, with arrays of the same shape. Where a
real program would hang, because one rank calls another collective or has ended, here is an error. Sums are added in the
order of the ranks, so all ranks get the same bits, each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

SECONDS = 60.0  # that a rank waits for the others


class RankError(RuntimeError):
    """The ranks did not do the same."""


class Rank:
    """One rank: number, size, and the collectives.

    messages, numbers_sent   how many collectives it has called, and how many numbers it has sent
    """

    def __init__(self, number: int, size: int, meeting: _Meeting) -> None:
        self.number, self.size, self._meeting = number, size, meeting
        self.messages = self.numbers_sent = 0

    def all_gather(self, value: Any) -> Any:
        """An array with what each rank sent, along a new first axis."""
        return self._send("all_gather", value).copy()

    def all_reduce(self, value: Any) -> Any:
        """The sum over the ranks of the arrays that they sent."""
        total = self._send("all_reduce", value)
        return np.add.accumulate(total, axis=0)[-1]

    def _send(self, name: str, value: Any) -> Any:
        array = np.array(value)
        self.messages += 1
        self.numbers_sent += array.size
        return self._meeting.exchange(self.number, name, array)


def simulate(size: int, program: Callable[[Rank], Any]) -> list[Any]:
    """Run program(rank) on so many ranks at once: the results, by rank. An error of one rank ends all of them."""
    meeting = _Meeting(size)
    results: list[Any] = [None] * size
    errors: list[BaseException | None] = [None] * size

    def run(number: int) -> None:
        try:
            results[number] = program(Rank(number, size, meeting))
        except BaseException as error:  # noqa: BLE001  it is raised again below
            errors[number] = error
        finally:
            meeting.leave(number)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [error for error in errors if error is not None]
    for error in sorted(found, key=lambda error: isinstance(error, RankError)):
        raise error  # a rank's own error rather than what became of it in the others
    return results


class _Meeting:
    """Where ranks wait for each other and exchange values."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.sent: dict[int, tuple[str, Any]] = {}
        self.left: set[int] = set()
        self.rounds = 0
        self.result: Any = None
        self.trouble = ""

    def exchange(self, number: int, name: str, array: Any) -> Any:
        with self.changed:
            self.sent[number] = (name, array)
            mine = self.rounds
            self._look()
            self.changed.wait_for(lambda: self.rounds > mine or self.trouble, SECONDS)
            if self.rounds > mine:
                return self.result
            raise RankError(self.trouble or f"rank {number} waited {SECONDS:g} s in {name} for the others")

    def leave(self, number: int) -> None:
        with self.changed:
            self.left.add(number)
            self._look()

    def _look(self) -> None:
        """Finish the round if all are here; note what keeps them from ever being."""
        if len(self.sent) == self.size:
            self.trouble = self.trouble or self._difference()
            if not self.trouble:
                self.result = np.stack([self.sent[number][1] for number in range(self.size)])
                self.sent.clear()
                self.rounds += 1
        elif self.left and self.sent and not self.trouble:
            waiting, gone = min(self.sent), min(self.left)
            self.trouble = f"rank {waiting} waits in {self.sent[waiting][0]} for rank {gone}, which has ended"
        self.changed.notify_all()

    def _difference(self) -> str:
        name, array = self.sent[0]
        for number in range(1, self.size):
            other, sent = self.sent[number]
            if other != name:
                return f"rank 0 calls {name}, rank {number} {other}"
            if sent.shape != array.shape:
                return f"{name}: rank 0 sends an array of shape {array.shape}, rank {number} of shape {sent.shape}"
        return ""
