"""simulate runs all ranks of a program in this process, without MPI. `run` uses the same code in each process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from minorm.devices import generators
from minorm.distributed.collectives import Collectives
from minorm.distributed.meeting import Meeting, RankError
from minorm.distributed.process_group import Group
from minorm.support.documented import documented

ON = "on rank "  # the beginning of a note that is added to an error
MOST = 1024  # the most ranks in a process, each in a thread
GRACE = 30.0  # seconds in which ranks should reach their next collective after Ctrl-C; a second Ctrl-C ends at once

Program = Callable[[Group], Any]


@documented({}, size="how many ranks", program="a function of the group, which every rank runs")
def simulate(size: int, program: Program) -> list[Any]:
    """Run program(group) for each rank in this process, without MPI, and return the list of results.

    The bits are the same as with `mpiexec -n R` for any R. An error of a rank is raised here, with a note that names
    the rank. Raises RankError if ranks do not call the same collectives.

    Example:
        >>> mn.distributed.simulate(3, lambda group: group.rank)
        [0, 1, 2]
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"simulate: size={size!r}; expected an int of at least 1")
    check_threads(f"simulate: size={size}", size, 1)
    ranks = range(size)
    return carry(program, Collectives(ranks, size, None), Meeting(ranks))


def check_threads(said: str, size: int, processes: int) -> None:
    """Raise ValueError if there are more ranks than the processes can run; the message begins with `said`."""
    if size > MOST * processes:
        raise ValueError(
            f"{said}; expected at most {MOST * processes:,}, because a process runs each rank in a "
            f"thread, and at most {MOST:,} threads"
        )


def carry(
    program: Program, collectives: Collectives, meeting: Meeting, device: str = "cpu", state: Any = None
) -> list[Any]:
    """Run the ranks of this process to their ends; return their results, or raise the error of one rank.

    state  the random state of rank 0, from which the states of the other ranks are derived. If it is None, the state of
           this process is used
    """
    groups = [Group(rank, collectives, meeting, device) for rank in meeting.ranks]
    streams = generators.streams(meeting.ranks, state)
    if len(groups) == 1:  # in this thread, which receives Ctrl-C
        with _stream(groups[0], streams[0]):
            return [_noted(groups[0], program)]
    results: list[Any] = [None] * len(groups)
    errors: list[BaseException] = []

    def run(place: int) -> None:
        group = groups[place]
        try:
            meeting.start(group.rank)
            with _stream(group, streams[place]):
                results[place] = _noted(group, program)
        except BaseException as error:  # noqa: BLE001  it is raised again below
            errors.append(error)
        finally:
            meeting.leave(group.rank)
            finished.append(place)
            ended.release()

    # No join: if Ctrl-C interrupts a join, CPython 3.11 believes that the thread has ended.
    ended, finished, started = threading.Semaphore(0), list[int](), 0
    try:
        for place in range(len(groups)):
            threading.Thread(target=run, args=(place,), daemon=True).start()
            started += 1
    except (KeyboardInterrupt, MemoryError, RuntimeError) as error:
        refused = RuntimeError(
            f"ranks: this process needs a thread for each of its {len(groups)} ranks, but the "
            f"system could start only {started}: {error}"
        )
        errors.append(error if isinstance(error, KeyboardInterrupt) else refused)
        meeting.stop(errors[-1])
    meeting.begin()
    try:
        while len(finished) < started:
            ended.acquire()
    except KeyboardInterrupt as stop:
        errors.append(stop)
        meeting.stop(KeyboardInterrupt())
        end = time.monotonic() + GRACE
        while len(finished) < started and ended.acquire(timeout=max(0.0, end - time.monotonic())):
            pass
    for first in sorted(errors, key=_weight):
        raise first
    return results


def _noted(group: Group, program: Program) -> Any:
    try:
        return program(group)
    except (Exception, SystemExit) as error:
        if group.size > 1 and not is_everybodys(error):
            error.add_note(f"{ON}{group.rank} of {group.size}")
        raise


def _weight(error: BaseException) -> int:
    """Return a sort key: 0 for an error of the rank itself, 1 if another rank caused the error, 2 for sys.exit(0)."""
    if isinstance(error, SystemExit) and not error.code:
        return 2
    return int(isinstance(error, RankError) or (isinstance(error, KeyboardInterrupt) and not error.args))


def is_everybodys(error: BaseException) -> bool:
    """Return True if all ranks raise this error. The message of such an error already names a rank."""
    return isinstance(error, RankError) or getattr(error, "rank", None) is not None


def _stream(group: Group, own: Any) -> AbstractContextManager[None]:
    """Return a context in which this rank draws from its own random generator."""
    gather = None if group.size == 1 else lambda state: group.all_gather(state, "the random states")
    return generators.stream(own, group.rank, group.size, gather)
