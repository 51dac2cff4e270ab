"""Engine: the interface for sending messages between processes in four ways, and for ending all processes.

There is one engine, MPI (mpi.py); an engine that sends arrays between GPUs over NCCL is possible, but not written.
For all engines collectives.py decides the messages, the order of sums and the errors.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

Array = Any
NOTE = 4096 + 256  # bytes: the longest note, a header and a small array


class Engine(Protocol):
    """One process among `processes`; `place` is its number among the processes of its machine."""

    process: int
    processes: int
    place: int

    def swap(self, note: bytes, process: int) -> bytes:
        """Send a note of at most NOTE bytes to another process, and return that process's note."""

    def exchange(self, give: Array, get: Array, process: int) -> None:
        """Send `give` to another process, and receive its array in `get`; both processes know that sizes agree."""

    def gather(self, block: Array) -> Array:
        """Return the blocks of all processes, of one shape and type, along a new first axis."""

    def broadcast(self, array: Array, process: int) -> Array:
        """Return the array of process `process`, on all processes."""

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Mark that the block waits for other processes, in the call `what`; the job ends if that takes too long."""

    def abort(self, code: int) -> None:
        """End all processes at once; does not return."""
