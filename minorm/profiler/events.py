"""The events of a profile: each has a beginning and an end, and lies inside another event or outside of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

OPERATION, LAYER, USER, OPTIMIZER, DATA, WALK = "operation", "layer", "user", "optimizer", "data", "backward walk"


class Layer(NamedTuple):
    """A module that ran. root: the number of the outermost module around it; path: as in that one's state_dict.

    kind    its type; the operation's name where it was not called, and only its parameters were used
    """

    root: int
    path: str
    kind: str


@dataclass(slots=True, eq=False)
class Event:
    """One thing that ran in the thread of the profile. Times are nanoseconds since the profile began.

    kind          an operation, a layer's call, a range of the user's, an optimizer's step, a batch of a DataLoader, or
                  a walk backwards through the graph
    layers        the layers that it belongs to, outermost first; of a backward pass those of the forward pass
    parent        the event that it ran in, None for the outermost
    nested        how much of its time other events took that ran in it
    backward      whether it is part of a backward pass
    allocated     bytes of new arrays that it returned or keeps, where memory is profiled
    kept          bytes that it is the first to keep for the backward pass: no parameters, and no inputs of the user's
    shapes        of its inputs, where they are recorded
    device        the GPU's index, and when it began and how long it took there; None for the CPU
    device_nested how much of its time there other events took that ran in it
    """

    name: str
    kind: str
    start: int
    parent: Event | None = None
    layers: tuple[Layer, ...] = ()
    backward: bool = False
    end: int = 0
    nested: int = 0
    allocated: int = 0
    kept: int = 0
    shapes: tuple[Any, ...] = ()
    device: tuple[int, int, int] | None = None
    device_nested: int = 0

    @property
    def time(self) -> int:
        """The time from the beginning to the end."""
        return self.end - self.start

    @property
    def self_time(self) -> int:
        """The time without the events inside."""
        return self.time - self.nested

    @property
    def self_device_time(self) -> int:
        """The time on the GPU without the events inside."""
        return 0 if self.device is None else self.device[2] - self.device_nested
