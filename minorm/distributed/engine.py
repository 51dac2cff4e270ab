"""The interface of an engine, which sends messages between processes in four ways, and can end all processes.

There is one engine, MPI (mpi.py); a second one, which sends arrays between GPUs over NCCL, is possible and not written
yet. collectives.py decides the messages, the order of sums and the errors, the same for all engines.
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
        """Send a note of at most NOTE bytes to another process, and return the note that it sends."""

    def exchange(self, give: Array, get: Array, process: int) -> None:
        """Send `give` to another process and fill `get`; both processes know that the sizes agree."""

    def gather(self, block: Array) -> Array:
        """Return the blocks of all processes, of one shape and type, along a new first axis."""

    def broadcast(self, array: Array, process: int) -> Array:
        """Return the array of one process."""

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Mark the block as waiting for other processes in `what`; the job ends if that takes too long."""

    def abort(self, code: int) -> None:
        """End all processes at once; does not return."""
