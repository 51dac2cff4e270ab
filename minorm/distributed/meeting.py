"""Runs the ranks of one process as threads, of which only one runs at a time.

At a collective, a rank leaves its value and lets the next rank run. The last rank to arrive computes the result for all
ranks and goes on. So kernels can use all processors of the process, and data that ranks share need no lock. If ranks
make different calls, or a rank ends while others wait, an error names the ranks. So no rank waits for ever.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

HEADER = 256  # bytes
CUT = b"..."  # follows the beginning of a name that a header cuts


class RankError(RuntimeError):
    """Raised if ranks did not make the same calls."""

    __module__ = "minorm.distributed"  # the module that users import it from, and that a traceback shows


class Call(NamedTuple):
    """A rank's call of a collective, which must be the same on all ranks."""

    serial: int
    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()

    def header(self) -> bytes:
        """Return the call as HEADER bytes, which are sent before every payload.

        The name is at the end, with its length, because a name may have any characters. If the name is too long, the
        header has the name's beginning and a digest, so that different long names have different headers.
        """
        name = self.name.encode(errors="backslashreplace")
        before = f"{self.serial}|{self.dtype}|{','.join(map(str, self.shape))}|".encode()
        room = HEADER - len(before) - len("256|")
        if len(name) > room:
            digest = hashlib.sha256(name).hexdigest()[:8].encode()
            name = name[: room - len(CUT) - len(digest)].decode(errors="ignore").encode() + CUT + digest
        # The shape of any array fits: its 64 axes have 2^63 elements at most.
        return (before + b"%d|" % len(name) + name)[:HEADER].ljust(HEADER)

    @classmethod
    def of(cls, header: bytes) -> Call:
        """Return the call that a header describes; a long name may be cut off."""
        serial, dtype, shape, length, name = header.split(b"|", 4)
        counts = tuple(int(count) for count in shape.split(b",") if count)
        return cls(int(serial), name[: int(length)].decode(), dtype.decode(), counts)

    def __str__(self) -> str:
        return self.name if self.serial < 0 else f"{self.name} (call {self.serial})"


THE_END = "the end of the program"


def compare(rank: int, call: Call, other: int, others: Call) -> None:
    """Raise RankError unless two ranks make the same call; the error names both calls."""
    if call == others:
        return
    if other < rank:
        rank, call, other, others = other, others, rank, call
    if call.name != others.name:
        for waits, waiting, gone, last in ((rank, call, other, others), (other, others, rank, call)):
            if last.name == THE_END:
                raise RankError(f"rank {waits} waits in {waiting.name} for rank {gone}, which has ended")
        raise RankError(
            f"rank {rank} calls {call.name}, but rank {other} calls {others.name}; expected the same call on all ranks"
        )
    if call.shape != others.shape:
        raise RankError(
            f"{call.name}: rank {rank} sends an array of shape {call.shape}, but rank {other} one of shape "
            f"{others.shape}; expected one shape"
        )
    if call.dtype != others.dtype:
        raise RankError(
            f"{call.name}: rank {rank} sends {call.dtype}, but rank {other} sends {others.dtype}; expected one type"
        )
    raise RankError(
        f"{call.name}: this is call number {call.serial} on rank {rank}, but number {others.serial} on "
        f"rank {other}; expected the same calls on all ranks"
    )


class Meeting:
    """The meeting point of the ranks of this process; it decides which rank runs.

    stopping  True if the user pressed Ctrl-C; then the ranks agree on a step after which all ranks stop
    """

    def __init__(self, ranks: range) -> None:
        self.ranks = ranks
        self.stopping = False
        self._turns = {rank: threading.Semaphore(0) for rank in ranks}
        self._calls: dict[int, tuple[Call, Any]] = {}
        self._results: dict[int, Any] = {}
        self._ended: set[int] = set()
        self._trouble: BaseException | None = None

    def meet(self, rank: int, call: Call, value: Any, together: Callable[[Call, list[Any]], Sequence[Any]]) -> Any:
        """Leave `value`, let the other ranks run, and return this rank's result when all ranks have left their values.

        together(call, values) computes the results of all ranks. It is called only once.
        """
        if self._trouble is None:
            self._calls[rank] = call, value
            if len(self._calls) == len(self.ranks):
                self._conclude(together)
            else:
                self._hand_on()
                self._turns[rank].acquire()
        if self._trouble is not None:
            if isinstance(self._trouble, RankError):
                raise RankError(str(self._trouble)) from None
            raise self._trouble
        return self._results.pop(rank)

    def _conclude(self, together: Callable[[Call, list[Any]], Sequence[Any]]) -> None:
        """Compute the results when all ranks have arrived, or record the error."""
        calls, values = zip(*[self._calls[rank] for rank in self.ranks], strict=True)
        try:
            for rank, call in zip(self.ranks, calls, strict=True):
                compare(self.ranks[0], calls[0], rank, call)
            results = together(calls[0], list(values))
        except BaseException as error:  # noqa: BLE001  every rank raises it
            self._trouble = error
        else:
            self._results = dict(zip(self.ranks, results, strict=True))
        self._calls.clear()

    def start(self, rank: int) -> None:
        """Wait for the rank's first turn; raise the error if the run was stopped meanwhile."""
        self._turns[rank].acquire()
        if self._trouble is not None:
            raise self._trouble

    def begin(self) -> None:
        """Let the first rank run."""
        self._turns[self.ranks[0]].release()

    def leave(self, rank: int) -> None:
        """Mark the rank as ended, and let the next rank run."""
        self._ended.add(rank)
        self._hand_on()

    def stop(self, reason: BaseException) -> None:
        """Let every rank raise `reason` at its next collective."""
        self._trouble = self._trouble or reason

    def _hand_on(self) -> None:
        """Let a rank run that has not arrived yet; if all have ended, let a waiting rank run, which raises an error."""
        coming = [rank for rank in self.ranks if rank not in self._calls and rank not in self._ended]
        if coming and self._trouble is None:
            self._turns[coming[0]].release()
        elif self._calls:
            waiting = min(self._calls)
            call, _ = self._calls.pop(waiting)
            if self._trouble is None:
                gone = min(self._ended)
                self._trouble = RankError(f"rank {waiting} waits in {call.name} for rank {gone}, which has ended")
            self._turns[waiting].release()
        elif coming:
            self._turns[coming[0]].release()
