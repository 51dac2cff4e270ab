"""What carries messages between processes: four ways to send, and an end, for all ranks of a process together.

Two engines are possible: MPI (mpi.py), and one that carries arrays between GPUs over NCCL, which is not written yet.
What is sent, in which order sums are taken and what is an error is the same for all of them, and stands in
collectives.py.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

Array = Any
NOTE = 4096 + 256  # bytes: the longest note, a header and a small array


class Engine(Protocol):
    """One process among `processes`; `place` is its number among those of its machine."""

    process: int
    processes: int
    place: int

    def swap(self, note: bytes, process: int) -> bytes:
        """Send a note of at most NOTE bytes to another process, and get the one that it sends."""

    def exchange(self, give: Array, get: Array, process: int) -> None:
        """Send `give` to another process and fill `get`, of which both sizes are known to agree."""

    def gather(self, block: Array) -> Array:
        """The blocks of all processes, which have one shape and type, along a new first axis."""

    def broadcast(self, array: Array, process: int) -> Array:
        """The array of one process."""

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Inside, this process waits for others in `what`; where that takes too long the job ends."""

    def abort(self, code: int) -> None:
        """End all processes at once; does not return."""
