"""Group: connects a rank to the other ranks, and has the collectives, for ranks in one or several processes.

As with MPI and NCCL, all ranks must call the same collectives in the same order, with arrays of the same shape and
type; otherwise a RankError names the calls that differ. Every rank gets a result with the same bits, in a separate
array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm import devices
from minorm.distributed.collectives import Collectives
from minorm.distributed.meeting import Call, Meeting
from minorm.kernels import select
from minorm.support.documented import documented

Array = Any
TEXT = 1024


@documented(
    {},
    rank="this rank's number",
    collectives="the Collectives that carry arrays from rank to rank",
    meeting="the barrier of the ranks of this process",
    device="the device of this rank's model and data: `model.to(group.device)`",
)
class Group:
    """Connects one rank of a run with all ranks; `run` and `simulate` make a Group for each rank.

        rank, size  this rank's number, and the number of ranks, which determines the bits of a run
        processes   the number of processes that run the ranks, which only affects the time

    Example:
        >>> mn.distributed.simulate(3, lambda group: group.all_reduce(mn.ones(1).numpy()).tolist())
        [[3.0], [3.0], [3.0]]
    """

    def __init__(self, rank: int, collectives: Collectives, meeting: Meeting, device: str = "cpu") -> None:
        self.rank, self.size, self.processes, self.device = rank, collectives.size, collectives.processes, device
        self._collectives, self._meeting = collectives, meeting
        self._calls = 0

    def all_gather(self, array: Array, label: str = "") -> Array:
        """Return the arrays of all ranks along a new first axis; `label` is the arrays' name in messages."""
        return self._meet("all_gather", label, array, self._collectives.all_gather)

    def all_reduce(self, array: Array, combine: Callable[[Array, Array], Array] = np.add, label: str = "") -> Array:
        """Return the sum of the arrays of all ranks, added in the same order on any number of processes.

        combine(lower, higher) adds two arrays: the sum of some lower ranks and the sum of the ranks that follow. It
        must not change the two arrays, and must return an array of the same shape and type. It need not be commutative.
        """
        return self._meet(
            "all_reduce", label, array, lambda call, values: self._collectives.all_reduce(call, values, combine)
        )

    def broadcast(self, array: Array, root: int = 0, label: str = "") -> Array:
        """Return the array of rank `root`; other ranks pass any array of the same shape and type."""
        if not 0 <= root < self.size:
            raise ValueError(f"broadcast: root={root}; expected a rank from 0 to {self.size - 1}")
        name = f"broadcast from rank {root}"
        return self._meet(name, label, array, lambda call, values: self._collectives.broadcast(call, values, root))

    def all_gather_text(self, text: str, label: str) -> list[str]:
        """Return a list of all ranks' texts, for messages; a text is cut off after TEXT bytes."""
        row = np.zeros(TEXT, np.uint8)
        data = np.frombuffer(text.encode(errors="backslashreplace")[:TEXT], np.uint8)
        row[: len(data)] = data
        return [found.tobytes().rstrip(b"\0").decode(errors="ignore") for found in self.all_gather(row, label)]

    def barrier(self) -> None:
        """Wait until all ranks have called this method."""

        def together(call: Call, _: list[Array]) -> Array:
            self._collectives.agree(call)
            return np.zeros(())

        self._meet("barrier", "", np.zeros(()), together)

    @property
    def stopping(self) -> bool:
        """Whether this process was asked to stop; ranks tell each other about this before they stop."""
        return self._meeting.stopping

    def _meet(self, name: str, label: str, array: Array, together: Callable[[Call, list[Array]], Array]) -> Array:
        """Copy the array to the host, meet the other ranks, and copy the result to the array's device."""
        if not select.is_array(array):
            array = np.asarray(array)
        host = devices.to_device(array, "cpu")
        call = Call(self._calls, f"{name} of {label}" if label else name, host.dtype.name, host.shape)
        self._calls += 1
        result = self._meeting.meet(self.rank, call, host, lambda call, values: self._own(together(call, values)))
        return devices.to_device(result, devices.device_of(array))

    def _own(self, result: Array) -> list[Array]:
        """Return a copy of the result for each rank of this process, so that no rank changes another rank's copy."""
        return [np.array(result) for _ in self._meeting.ranks]

    def __deepcopy__(self, memo: Any) -> Group:
        """Return the group itself: a copied model communicates through the same group."""
        return self

    def __repr__(self) -> str:
        return f"Group(rank={self.rank}, size={self.size}, processes={self.processes}, device={self.device!r})"
