"""Streams: a stream runs its work in order, and waits for another stream only if the program says so.

    side = mn.cuda.Stream()
    with mn.cuda.stream(side):                    # work that is started here goes to `side`
        y = f(x)
    mn.cuda.current_stream().wait_stream(side)    # before y is used outside

Names are PyTorch's, and streams are CuPy's. CuPy's pool gives freed memory only to the stream that freed it, so no
other stream overwrites this memory while it may still be read. But if another stream reads an array, the array must
live until this stream has finished. So keep the array until `synchronize()`, or let the stream that made the array
wait. There is no `record_stream`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from minorm import devices
from minorm.support.documented import documented

STREAM = {"stream": "a Stream; None is the current stream"}


def _on(operation: str, device: Any) -> AbstractContextManager[Any]:
    """Yield the module cupy, and make the GPU `device` current in the block.

    Raises ValueError if `device` is the CPU.
    """
    if device is not None and devices.device_index(device) is None:
        raise ValueError(f"{operation}: device is {str(device)!r}; expected a GPU, such as 'cuda:1'")
    return devices.on("cuda" if device is None else device)


@documented(
    {},
    device='the GPU: a number, or a name such as "cuda:1"; None is the current GPU',
    priority="the priority of the stream's work; numbers below 0 are preferred to the usual 0",
)
class Stream:
    """A queue of work for a GPU, in addition to the default stream.

    Example:
        >>> mn.cuda.is_available()  # else Stream() raises a RuntimeError that says what is missing
        False

    CUDA Programming Guide, "Streams"; torch.cuda.Stream.
    """

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        with _on("Stream", device) as library:
            self._set(library.cuda.Stream(non_blocking=True, priority=priority or None))

    @classmethod
    def _of(cls, cupys: Any) -> Stream:
        made = cls.__new__(cls)
        made._set(cupys)
        return made

    def _set(self, cupys: Any) -> None:
        # The default stream has the same handle on every GPU, and an event belongs to one GPU. So for every call of a
        # stream, its own GPU is made the current one.
        self._cupy, self._place = cupys, devices.library().cuda.Device()
        self.device_index = int(self._place.id)

    @property
    def cuda_stream(self) -> int:
        """CUDA's handle of the stream; 0 is the default stream."""
        return int(self._cupy.ptr)

    def synchronize(self) -> None:
        """Make the host wait until all work of this stream is done."""
        with self._place:
            self._cupy.synchronize()

    def query(self) -> bool:
        """Return whether all work of this stream is done."""
        with self._place:
            return bool(self._cupy.done)

    @documented({}, event="an Event that was recorded")
    def wait_event(self, event: Event) -> None:
        """Make all later work of this stream wait for the event; the host does not wait."""
        event.wait(self)

    @documented({}, stream="another Stream")
    def wait_stream(self, stream: Stream) -> None:
        """Make all later work of this stream wait for all earlier work of `stream`."""
        self.wait_event(stream.record_event())

    @documented({}, event="the Event to record; None makes a new Event")
    def record_event(self, event: Event | None = None) -> Event:
        """Return an event that happens when all earlier work of this stream is done."""
        found = Event() if event is None else event
        found.record(self)
        return found

    def __enter__(self) -> Stream:
        self._place.__enter__()
        try:
            self._cupy.__enter__()
        except BaseException:
            self._place.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._cupy.__exit__(*error)
        finally:
            self._place.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Stream)
            and self.device_index == other.device_index
            and self.cuda_stream == other.cuda_stream
        )

    def __hash__(self) -> int:
        return self.cuda_stream


@documented(
    {},
    enable_timing="True makes the event record its time, for `elapsed_time`",
    blocking="True lets the host sleep while it waits for the event",
)
class Event:
    """A point in a stream's work; other streams can wait for it, and two events measure time.

    An event belongs to the GPU of the stream that records it first. Waiting for an event that no stream has recorded
    has no effect.

    Example:
        >>> mn.cuda.is_available()  # else Event() raises a RuntimeError that says what is missing
        False

    torch.cuda.Event.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self._timed, self._blocking = enable_timing, blocking
        self._library = devices.library()
        self._cupy: Any = None  # it must be made on the GPU of the stream that records it
        self._device_index = -1

    @documented(STREAM)
    def record(self, stream: Stream | None = None) -> None:
        """Let the event happen when all earlier work of the stream is done.

        Raises RuntimeError if the stream is on another GPU than the stream that recorded the event first.
        """
        stream = current_stream() if stream is None else stream
        if self._cupy is not None and self._device_index != stream.device_index:
            raise RuntimeError(
                f"Event.record: the stream is on cuda:{stream.device_index}; expected a stream on "
                f"cuda:{self._device_index}, where the event was first recorded"
            )
        with stream._place:
            if self._cupy is None:
                self._cupy = self._library.cuda.Event(block=self._blocking, disable_timing=not self._timed)
                self._device_index = stream.device_index
            self._cupy.record(stream._cupy)

    @documented(STREAM)
    def wait(self, stream: Stream | None = None) -> None:
        """Make all later work of the stream wait for the event."""
        stream = current_stream() if stream is None else stream
        if self._cupy is not None:
            with stream._place:
                stream._cupy.wait_event(self._cupy)

    def query(self) -> bool:
        """Return whether the event has happened; also return True if no stream has recorded the event."""
        return self._cupy is None or bool(self._cupy.done)

    def synchronize(self) -> None:
        """Make the host wait for the event."""
        if self._cupy is not None:
            self._cupy.synchronize()

    @documented({}, end_event="a later Event")
    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to `end_event`.

        The two events must have been made with enable_timing=True, and both must have happened.
        """
        if not (self._timed and end_event._timed):
            raise ValueError(
                "Event.elapsed_time: an event has no time; expected both events to be created with enable_timing=True"
            )
        if self._cupy is None or end_event._cupy is None:
            raise ValueError("Event.elapsed_time: an event was not recorded; expected both events to be recorded first")
        return float(self._library.cuda.get_elapsed_time(self._cupy, end_event._cupy))


@documented({}, stream="the Stream for the work of the block; None changes nothing")
class stream:  # noqa: N801  PyTorch's name
    """In the block `with mn.cuda.stream(s):`, new work goes to the stream s, and "cuda" means the GPU of s.

    Example:
        >>> with mn.cuda.stream(None):
        ...     x = mn.ones(2)
    """

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


@documented({}, device='the GPU: a number, or a name such as "cuda:1"; None is the current GPU')
def current_stream(device: Any = None) -> Stream:
    """Return the stream that gets the work that starts now."""
    with _on("current_stream", device) as library:
        return Stream._of(library.cuda.get_current_stream())


@documented({}, device='the GPU: a number, or a name such as "cuda:1"; None is the current GPU')
def default_stream(device: Any = None) -> Stream:
    """Return the stream that gets all work if no other stream is chosen."""
    with _on("default_stream", device) as library:
        return Stream._of(library.cuda.Stream.null)
