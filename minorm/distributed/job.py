"""run executes a program on every rank, in all processes that a launcher has started, or only in this process."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import minorm_ext
from minorm import config, cuda, devices
from minorm.devices import generators
from minorm.distributed import mpi, sum_order
from minorm.distributed.collectives import Collectives
from minorm.distributed.launcher import launched
from minorm.distributed.meeting import THE_END, Call, Meeting, RankError
from minorm.distributed.mpi import Mpi
from minorm.distributed.simulation import ON, Program, carry, check_threads, is_everybodys
from minorm.support.documented import documented

FINGERPRINT = 4096  # bytes


@documented(
    {},
    program="a function of the group, which every rank runs",
    ranks="the number of ranks, on which the last bits of the results depend. None is the number of processes; if "
    "there are more ranks, a process runs several",
    device='"cpu" or "cuda"; with "cuda" the processes of a machine take its GPUs in turn',
    timeout="the seconds that a process waits for the others in one collective before it ends the job",
    brief="the types of errors that are printed without a traceback if they end the job",
)
def run(
    program: Program,
    ranks: int | None = None,
    *,
    device: str = "cpu",
    timeout: float = 300.0,
    brief: tuple[type[BaseException], ...] = (),
) -> list[Any]:
    """Return a list with the result program(group) of each rank that this process runs.

    Start the processes with `mpiexec -n 4 python program.py` or srun; this needs mpi4py. If there is no launcher, or
    only one process, this process runs all ranks and needs no MPI. An error of any rank, or sys.exit, ends the whole
    job with a message that names the rank; if there is only one process, the error is raised here. Raises ValueError if
    there are fewer ranks than processes, or more than 1,024 ranks per process.

    Example:
        >>> mn.distributed.run(lambda group: (group.rank, group.size), ranks=2)
        [(0, 2), (1, 2)]
    """
    _, processes = launched()
    size = processes if ranks is None else ranks
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ValueError(f"run: ranks={size!r}; expected an int of at least 1, or None")
    if size < processes:
        raise ValueError(
            f"run: there are {size} ranks, but {processes} processes; expected at least one rank for each process"
        )
    check_threads(f"run: ranks={size}", size, processes)
    if processes == 1:
        return carry(program, Collectives(range(size), size, None), Meeting(range(size)), place(device, 0))
    if not _started:
        _started.append(Mpi(processes, timeout))
        mpi.install(_started[0])
    return _carried(_started[0], program, size, device, timeout, brief)


_started: list[Mpi] = []  # MPI can start only once in a process


def _carried(engine: Mpi, program: Program, size: int, device: str, timeout: float, brief: Any) -> list[Any]:
    """Run the ranks of this process and return their results; any error ends the job."""
    ranks = sum_order.carried(engine.process, engine.processes, size)
    engine.name = f"rank {ranks[0]} of {size}"
    results, ended = [], None
    try:
        if len(ranks) > 1:
            engine.check_threads()
        with engine.watch(timeout) as watchdog:
            own = place(device, engine.place)
            with engine.waiting("the first message"):
                state = _agree(engine.gather(_fingerprint(size, own)))
            config.set_num_threads(min(config.get_num_threads(), engine.processors))
            collectives, meeting = Collectives(ranks, size, engine), Meeting(ranks)
            with _stopping(meeting, watchdog):
                try:
                    results = carry(program, collectives, meeting, own, state)
                except SystemExit as error:
                    if error.code:
                        raise
                    ended = error
                collectives.agree(Call(-1, THE_END))
    except BaseException as error:  # noqa: BLE001  the job ends here
        notes = getattr(error, "__notes__", [])
        for note in [note for note in notes if note.startswith(ON)]:
            notes.remove(note)
            engine.name = note.removeprefix("on ")
        mpi.end(engine, error, is_everybodys(error) or isinstance(error, KeyboardInterrupt), brief)
    if ended is not None:
        raise ended
    return results


def place(device: str, number: int) -> str:
    """Return the device of process `number` of a machine; if device is "cuda", the processes get the GPUs in turn."""
    if device != "cuda":
        return device
    try:
        devices.library()
    except RuntimeError as error:
        raise RuntimeError(f"run: device='cuda': {str(error).removeprefix('cuda: ')}") from None
    return f"cuda:{number % cuda.device_count()}"


def _fingerprint(size: int, device: str) -> Any:
    """Return, as a text of fixed length, the random state and all other facts that determine the bits."""
    facts = {
        "minorm": config.__version__,
        "rounding of multiply-adds": minorm_ext.multiply_adds(),
        "winograd": minorm_ext.WINOGRAD,
        "numpy": np.__version__,
        "ranks": size,
        "device": "cpu" if device == "cpu" else cuda.get_device_name(device),
        "cupy": None if device == "cpu" else devices.library().__version__,
    }
    text = json.dumps([facts, generators.get_state()]).encode()
    return np.frombuffer(text.ljust(FINGERPRINT), np.uint8)


def _agree(fingerprints: Any) -> Any:
    """Raise RankError unless all processes would compute the same bits; return the random state of process 0."""
    found = [json.loads(row.tobytes()) for row in fingerprints]
    facts, state = found[0]
    for process, (others, _) in enumerate(found):
        for name, value in facts.items():
            if others[name] != value:
                raise RankError(
                    f"run: {name} is {value} on process 0 and {others[name]} on process {process}; expected the same "
                    f"on all processes, because the bits of the results depend on {name}"
                )
    return state


@contextmanager
def _stopping(meeting: Meeting, watchdog: mpi.Watchdog) -> Iterator[None]:
    """Inside the block, Ctrl-C asks all ranks to stop after the current step; a second Ctrl-C stops them at once."""

    def interrupt(*_: Any) -> None:
        if meeting.stopping:
            raise KeyboardInterrupt
        meeting.stopping = watchdog.stop = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
