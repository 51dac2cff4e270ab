"""The events of a profile. An event has a beginning and an end, and may be inside another event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

OPERATION, LAYER, USER, OPTIMIZER, DATA, WALK = "operation", "layer", "user", "optimizer", "data", "backward walk"


class Layer(NamedTuple):
    """A module that ran.

    root    the number of the outermost module around the layer
    path    the layer's path in the state_dict of the outermost module
    kind    the module's type; or the operation's name, if the module was not called and only its parameters were used
    """

    root: int
    path: str
    kind: str


@dataclass(slots=True, eq=False)
class Event:
    """An event in the thread of the profile. Times are nanoseconds since the profile began.

    kind          an operation, a layer's call, a user's range, an optimizer's step, a batch of a DataLoader, or a walk
                  backwards through the graph
    layers        the layers to which the event belongs, outermost first; a backward pass has the layers of its forward
                  pass
    parent        the event inside which this event ran; None for an outermost event
    nested        the part of the time that events inside this event took
    backward      whether the event is part of a backward pass
    allocated     the bytes of new arrays that the operation returned or keeps, if memory is profiled
    kept          the bytes that the operation was the first to keep for the backward pass, except for parameters and
                  the user's inputs
    shapes        the shapes of the inputs, if they are recorded
    device        (index of the GPU, beginning, time on the GPU); None for the CPU
    device_nested the part of the time on the GPU that events inside this event took
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
        """The time of the event, except for the events inside it."""
        return self.time - self.nested

    @property
    def self_device_time(self) -> int:
        """The event's time on the GPU, except for the events inside it."""
        return 0 if self.device is None else self.device[2] - self.device_nested
