"""Engine: the interface that sends messages between processes, in four ways, and ends all processes.

There is one engine, MPI (mpi.py). An engine that sends arrays between GPUs by NCCL is possible, but does not exist.
collectives.py decides which messages are sent, the order of sums and the errors, for all engines.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

Array = Any
NOTE = 4096 + 256  # bytes: the longest note, a header and a small array


class Engine(Protocol):
    """One of `processes` processes. `place` is the number of this process among the processes of its machine."""

    process: int
    processes: int
    place: int

    def swap(self, note: bytes, process: int) -> bytes:
        """Send a note of at most NOTE bytes to another process, and return that process's note."""

    def exchange(self, give: Array, get: Array, process: int) -> None:
        """Send `give` to another process, and receive its array in `get`; the caller has checked that sizes agree."""

    def gather(self, block: Array) -> Array:
        """Return the blocks of all processes along a new first axis. All blocks must have the same shape and type."""

    def broadcast(self, array: Array, process: int) -> Array:
        """Return the array of process `process`, on all processes."""

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Mark that this block waits for other processes, in the call `what`; the job ends if this takes too long."""

    def abort(self, code: int) -> None:
        """End all processes at once; does not return."""
