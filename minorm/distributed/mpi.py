"""The engine that uses MPI. Error hooks, and a watchdog for waiting processes, make sure that a job cannot hang.

MPI waits in C code, and without a time limit. If one process raises an error or stops, the other processes never learn
of this. So a process whose program ends with an error ends the whole job (`Abort`). A process that waits too long
reports the call in which it waits, and then also ends the job. Only this file uses mpi4py.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

import numpy as np

from minorm.distributed.engine import NOTE

Array = Any
STDERR = 2
PROCESSORS = 4096  # of one machine, at most; others are not counted
INTERRUPTED = 130  # the exit code after Ctrl-C
TICK = 1.0  # seconds between two looks of the watchdog
STOPPING = 5.0  # seconds after Ctrl-C in which all ranks should reach the end of their step
GRACE = 3.0  # seconds that other processes wait so that the first process can report their common error


class Mpi:
    """The processes of MPI's COMM_WORLD; a separate communicator keeps their messages apart from a program's messages.

    name        the name of this process in messages: `rank 1 of 4`
    processors  how many of the machine's processors this process may use
    """

    def __init__(self, launched: int, timeout: float) -> None:
        # MPI starts when all processes do. If one has ended before, the others wait in C and hold Python's lock, so no
        # Python thread can watch. faulthandler's thread is in C: it shows where they wait, and ends the process.
        faulthandler.dump_traceback_later(timeout, exit=True, file=STDERR)
        try:
            self._start(launched)
        finally:
            faulthandler.cancel_dump_traceback_later()
        self.watchdog: Watchdog | None = None

    def _start(self, launched: int) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:  # mpi4py raises the latter if it finds no MPI
            advice = "pip install mpi4py" if isinstance(error, ImportError) else "pip install mpich, or load an MPI"
            raise ImportError(
                f"distributed: a launcher has started {launched} processes, which need MPI to communicate: "
                f"{str(error).splitlines()[0]}; {advice}"
            ) from None
        world = MPI.COMM_WORLD
        if world.Get_size() != launched:
            library = MPI.Get_library_version().splitlines()[0].strip("\0 ")
            raise RuntimeError(
                f"distributed: the launcher has started {launched} processes, but MPI sees {world.Get_size()}; the "
                f"launcher must be that of the MPI which mpi4py uses, {library}"
            )
        self._mpi, self._world = MPI, world.Dup()
        self.process, self.processes = world.Get_rank(), world.Get_size()
        self.name = f"process {self.process} of {self.processes}"
        machine = world.Split_type(MPI.COMM_TYPE_SHARED)
        self.place = machine.Get_rank()
        claims, mine = np.zeros(PROCESSORS, np.int32), usable()
        machine.Allreduce([np.isin(np.arange(PROCESSORS), mine).astype(np.int32), MPI.INT], [claims, MPI.INT])
        self.processors = max(1, int(sum(1 / claims[processor] for processor in mine)))
        self._level = MPI.Query_thread()

    def check_threads(self) -> None:
        """Raise RuntimeError if MPI lets only the main thread send messages, since several ranks need more threads."""
        if self._level < self._mpi.THREAD_SERIALIZED:
            raise RuntimeError(
                "distributed: this MPI lets only the main thread send messages, so a process can run only one rank; "
                "expected as many processes as ranks, or an MPI with MPI_THREAD_SERIALIZED"
            )

    # The engine

    def swap(self, note: bytes, process: int) -> bytes:
        """Send a note to another process, and return that process's note."""
        found, status = bytearray(NOTE), self._mpi.Status()
        byte = self._mpi.BYTE
        self._world.Sendrecv([note, byte], process, 0, [found, byte], process, 0, status)
        return bytes(found[: status.Get_count(byte)])

    def exchange(self, give: Array, get: Array, process: int) -> None:
        """Send `give` to another process, and receive its array in `get`."""
        self._world.Sendrecv(self._bytes(give), process, 1, self._bytes(get), process, 1)

    def gather(self, block: Array) -> Array:
        """Return the blocks of all processes along a new first axis."""
        block = np.ascontiguousarray(block)
        found = np.empty((self.processes, *block.shape), block.dtype)
        self._world.Allgather(self._bytes(block), self._bytes(found))
        return found

    def broadcast(self, array: Array, process: int) -> Array:
        """Return the array of process `process`, on all processes."""
        found = np.array(array, order="C")
        self._world.Bcast(self._bytes(found), process)
        return found

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """During the block, let the watchdog count the time as waiting in the call `what`."""
        assert self.watchdog is not None
        self.watchdog.waits = what
        try:
            yield
        finally:
            self.watchdog.waits = ""

    @contextmanager
    def watch(self, timeout: float) -> Iterator[Watchdog]:
        """During the block, let this process wait for others at most `timeout` seconds in one collective."""
        with Watchdog(self, timeout) as self.watchdog:
            yield self.watchdog

    def abort(self, code: int) -> None:
        """End all processes at once."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self._level == self._mpi.THREAD_MULTIPLE or threading.current_thread() is threading.main_thread():
            self._world.Abort(code)
        os._exit(code)  # the launcher ends the others

    def _bytes(self, array: Array) -> list[Any]:
        """Return the memory of an array of any type, in the form that MPI needs."""
        return [array.reshape(-1).view(np.uint8) if array.size else bytearray(), self._mpi.BYTE]


class Watchdog:
    """Ends the job if this process waits in one collective for `timeout` seconds of its running time.

    The watchdog counts ticks instead of reading a clock, so a job that was suspended as a whole can continue.
    """

    def __init__(self, engine: Mpi, timeout: float) -> None:
        self.engine, self.timeout = engine, timeout
        self.waits = ""  # the call in which this process waits, or ""
        self.stop = False  # True after Ctrl-C
        self._done = threading.Event()

    def __enter__(self) -> Watchdog:
        threading.Thread(target=self._look, daemon=True, name="minorm's watchdog").start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()

    def _look(self) -> None:
        seen, waited, stopping = "", 0.0, 0.0
        while not self._done.wait(TICK):
            waited = waited + TICK if self.waits and self.waits == seen else 0.0
            stopping = stopping + TICK if self.stop else 0.0
            seen = self.waits
            if waited >= self.timeout:
                say(f"{self.engine.name} waits {waited:g} s in {seen} for the others")
                self.engine.abort(1)
            if stopping >= STOPPING:
                say(f"{self.engine.name}: stopped")
                self.engine.abort(INTERRUPTED)


def usable() -> list[int]:
    """Return the numbers of the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        found = sorted(os.sched_getaffinity(0))
    else:
        found = list(range(os.cpu_count() or 1))
    return [processor for processor in found if processor < PROCESSORS] or [0]


def say(text: str) -> None:
    """Write a text to stderr at once and in one piece, because other processes write to the same terminal."""
    with suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def end(
    engine: Mpi, error: BaseException, everybodys: bool = False, brief: tuple[type[BaseException], ...] = ()
) -> None:
    """End the job after an exception in a program; this function does not return.

    everybodys  True if all processes have the same error, so that only the first process prints it
    brief       types of errors that are printed without a traceback
    """
    if everybodys and engine.process:
        threading.Event().wait(GRACE)
    code = 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) and error.code else 1
        say(f"{engine.name}: {error.code if isinstance(error.code, str) else f'sys.exit({error.code})'}")
    elif isinstance(error, KeyboardInterrupt):
        code = INTERRUPTED
        say(f"{engine.name}: stopped{f'; {error}' if str(error) else ''}")
    else:
        said = traceback.format_exception_only(error)
        where = [] if isinstance(error, brief) else traceback.format_exception(error)[: -len(said)]
        say("".join([*where, f"{engine.name}: ", *said]).rstrip())
    engine.abort(code)


def install(engine: Mpi) -> None:
    """Make every uncaught error in any thread end the job, because MPI's normal end waits for other processes."""

    def uncaught(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
        end(engine, error)

    def in_a_thread(what: threading.ExceptHookArgs) -> None:
        if what.exc_value is not None and not isinstance(what.exc_value, SystemExit):
            end(engine, what.exc_value)

    sys.excepthook, threading.excepthook = uncaught, in_a_thread
