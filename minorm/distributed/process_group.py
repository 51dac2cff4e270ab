"""Group: what a rank talks to the others through. Collectives over ranks, whoever carries them.

As with MPI and NCCL, all ranks call the same collectives in the same order, with arrays of one shape and type; where
they do not, both calls are named in a RankError. Every rank gets the same bits, an array of its own.
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
    collectives="what carries arrays from rank to rank",
    meeting="where the ranks of this process wait for one another",
    device="where this rank's model and data belong: `model.to(group.device)`",
)
class Group:
    """The ranks of a run, seen by one of them; `run` and `simulate` make one for each.

        rank, size  this rank's number and how many there are: `size` decides the bits of a run
        processes   how many processes carry them: this decides the time alone

    Example:
        >>> mn.distributed.simulate(3, lambda group: group.all_reduce(mn.ones(1).numpy()).tolist())
        [[3.0], [3.0], [3.0]]
    """

    def __init__(self, rank: int, collectives: Collectives, meeting: Meeting, device: str = "cpu") -> None:
        self.rank, self.size, self.processes, self.device = rank, collectives.size, collectives.processes, device
        self._collectives, self._meeting = collectives, meeting
        self._calls = 0

    def all_gather(self, array: Array, label: str = "") -> Array:
        """The arrays of all ranks along a new first axis. `label` says in messages what they are."""
        return self._meet("all_gather", label, array, self._collectives.all_gather)

    def all_reduce(self, array: Array, combine: Callable[[Array, Array], Array] = np.add, label: str = "") -> Array:
        """The sum of the arrays of all ranks, added in one order whatever carries them.

        combine(lower, higher) adds up two arrays, of the lower and of the higher ranks of a subtree, and changes
        neither. It need not be commutative; it must give an array of their shape and type.
        """
        return self._meet(
            "all_reduce", label, array, lambda call, values: self._collectives.all_reduce(call, values, combine)
        )

    def broadcast(self, array: Array, root: int = 0, label: str = "") -> Array:
        """The array of rank `root`; the others give one of its shape and type, whose values do not matter."""
        if not 0 <= root < self.size:
            raise ValueError(f"broadcast: root={root}; expected a rank from 0 to {self.size - 1}")
        name = f"broadcast from rank {root}"
        return self._meet(name, label, array, lambda call, values: self._collectives.broadcast(call, values, root))

    def all_gather_text(self, text: str, label: str) -> list[str]:
        """A short text of every rank, by rank, to be shown; what is beyond TEXT bytes is left out."""
        row = np.zeros(TEXT, np.uint8)
        data = np.frombuffer(text.encode(errors="backslashreplace")[:TEXT], np.uint8)
        row[: len(data)] = data
        return [found.tobytes().rstrip(b"\0").decode(errors="ignore") for found in self.all_gather(row, label)]

    def barrier(self) -> None:
        """Wait until all ranks are here."""

        def together(call: Call, _: list[Array]) -> Array:
            self._collectives.agree(call)
            return np.zeros(())

        self._meet("barrier", "", np.zeros(()), together)

    @property
    def stopping(self) -> bool:
        """Did somebody ask this process to stop? The ranks tell each other before they do."""
        return self._meeting.stopping

    def _meet(self, name: str, label: str, array: Array, together: Callable[[Call, list[Array]], Array]) -> Array:
        """Bring the array to the host, meet the others, and bring the result to where the array is."""
        if not select.is_array(array):
            array = np.asarray(array)
        host = devices.to_device(array, "cpu")
        call = Call(self._calls, f"{name} of {label}" if label else name, host.dtype.name, host.shape)
        self._calls += 1
        result = self._meeting.meet(self.rank, call, host, lambda call, values: self._own(together(call, values)))
        return devices.to_device(result, devices.device_of(array))

    def _own(self, result: Array) -> list[Array]:
        """The result once for each rank of this process, so that none changes another's."""
        return [np.array(result) for _ in self._meeting.ranks]

    def __deepcopy__(self, memo: Any) -> Group:
        """A model's copy talks through the same group."""
        return self

    def __repr__(self) -> str:
        return f"Group(rank={self.rank}, size={self.size}, processes={self.processes}, device={self.device!r})"
