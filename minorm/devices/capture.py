"""Gives each replay of a CUDA graph new numbers from the host, through memory of the device.

A captured launch keeps its arguments, and a learning rate among them would never change. So while a step is captured,
code that passes such numbers to a kernel keeps them in a slot instead,

    slot = recording.keep(fields)      # slot.device is a device array that will hold `fields` at each replay

and code that counts steps adds a function that does so: `recording.again.append(function)`. These functions are called
before each replay. They see `recording.replaying`, launch nothing, and write their numbers into the same slots in the
same order. One copy then brings all of them to the device. Users see minorm/cuda/graphs.py.

These functions count, so either all of them are called or none: before the first one, `recording.checks` tests whether
the memory is still that of the capture.

`watched()` collects what a step touches, captured or not; make_graphed_step looks there before it replays.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

ALIGNED = 256  # bytes: each slot begins at a multiple of it
CHUNK = 1 << 16  # bytes that one copy brings to the device


class _Here(threading.local):
    recording: Recording | None = None
    watch: Watch | None = None


_here = _Here()


def recording() -> Recording | None:
    """Return the recording that this thread captures or replays, or None."""
    return _here.recording


def is_captured() -> bool:
    """Is this thread capturing? Then launches are recorded, and not run."""
    return _here.recording is not None and not _here.recording.replaying


def noted(function: Callable[[], Any]) -> bool:
    """Is this thread capturing? If so, `function` is called before each replay, and the caller need not call it."""
    if _here.recording is None or _here.recording.replaying:
        return False
    _here.recording.again.append(function)
    return True


def hold(array: Any) -> None:
    """Keep an array alive as long as the graph whose launches read it."""
    if _here.recording is not None:
        _here.recording.held.append(array)


def refuse_copies(what: str) -> None:
    """Raise RuntimeError during a capture: a replay would copy from memory that may hold other values by then."""
    if is_captured():
        raise RuntimeError(
            f"cuda.graph: {what} is copied between the CPU and a GPU while a graph is captured; a graph replays what "
            "the GPU does, and nothing of the CPU: make the array on the GPU before the capture, and fill it with "
            "copy_() before a replay"
        )


def refuse_draws() -> None:
    """Raise RuntimeError during a capture, before the CPU draws numbers: each replay would use the same ones."""
    if is_captured():
        raise RuntimeError(
            "cuda.graph: numbers are drawn on the CPU while a graph is captured, and each replay would use the same "
            "ones; expected uniform numbers and dropout, which are drawn on the GPU, or numbers that are drawn before "
            "the replay and copied to the GPU"
        )


def refuse_number(operation: str, name: str) -> None:
    """Raise RuntimeError during a capture, for an operation whose argument is a number of the CPU."""
    if is_captured():
        raise RuntimeError(
            f"{operation}: {name} is a number of the CPU, and each replay of a CUDA graph would be given the same one; "
            "expected the call outside the graph, after a replay"
        )


class Watch:
    """The gradients and modules that a step touches, in order.

    gradients  (leaf, its gradient at that time) whenever backward() adds to one or an optimizer reads one
    modules    the called modules
    """

    def __init__(self) -> None:
        self.gradients: list[tuple[Any, Any]] = []
        self.modules: list[Any] = []


watches: list[Watch] = []  # open in any thread; while the list is empty, a module's call skips the rest


@contextmanager
def watched() -> Iterator[Watch]:
    """Collect the gradients and modules that this thread touches inside the block."""
    before, watch = _here.watch, Watch()
    _here.watch = watch
    watches.append(watch)
    try:
        yield watch
    finally:
        watches.remove(watch)
        _here.watch = before


def watch() -> Watch | None:
    """Return the open watch of this thread, or None."""
    return _here.watch if watches else None


class Slot:
    """Numbers on host and device: `host` is a structured array without axes, `device` the bytes that kernels read."""

    __slots__ = ("device", "host")

    def __init__(self, host: Any, device: Any) -> None:
        self.host, self.device = host, device


class Recording:
    """The numbers of one graph that change from replay to replay.

    library     the module cupy
    again       functions that the host calls before each replay
    checks      functions that return a sentence if something has changed since the capture, else ""
    held        arrays that captured launches read, kept alive here
    replaying   True while `again` is called, False while the graph is captured
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.again: list[Callable[[], None]] = []
        self.checks: list[Callable[[], str]] = []
        self.held: list[Any] = []
        self.replaying = False
        self._slots: list[Slot] = []
        self._chunks: list[tuple[Any, Any]] = []  # (bytes on the host, in pinned memory; bytes on the device)
        self._used = CHUNK  # used bytes of the last chunk
        self._next = 0  # the next slot in a replay
        self._copied = library.cuda.Event(disable_timing=True)
        self._scratch: Any = None
        # CuPy reuses freed pinned memory at once, though a copy in progress may still have to read it.
        weakref.finalize(self, self._copied.synchronize).atexit = False

    def keep(self, fields: Any) -> Slot:
        """Return a slot with the fields of a structured array without axes; a replay may change them."""
        size = fields.nbytes
        if size > CHUNK:
            raise ValueError(f"cuda.graph: {size} bytes of numbers for one launch; expected at most {CHUNK}")
        if self._used + size > CHUNK:
            pinned = self.library.cuda.alloc_pinned_memory(CHUNK)
            self._chunks.append((np.frombuffer(pinned, np.uint8, CHUNK), self._apart(CHUNK)))
            self._used = 0
        host, device = (part[self._used : self._used + size] for part in self._chunks[-1])
        self._used += -(-size // ALIGNED) * ALIGNED
        slot = Slot(host.view(fields.dtype).reshape(()), device)
        slot.host[...] = fields
        self._slots.append(slot)
        return slot

    def scratch(self, size: int) -> Any:
        """Return bytes on the device that captured launches may use one after another."""
        if self._scratch is None:
            self._scratch = self._apart(size)
        return self._scratch

    def _apart(self, size: int) -> Any:
        """Allocate bytes outside the graph's own pool, where earlier launches could write to the same memory."""
        with self.library.cuda.using_allocator(self.library.get_default_memory_pool().malloc):
            return self.library.empty(size, np.uint8)

    def next(self) -> Slot:
        """Return, in a replay, the slot that the capture got at this place."""
        self._next += 1
        return self._slots[self._next - 1]

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Capture in this thread inside the block."""
        _here.recording = self
        try:
            yield
        finally:
            _here.recording = None

    def changed(self) -> str:
        """Return a sentence on what has changed since the capture, which forbids a replay; "" if nothing has."""
        return next(filter(None, (check() for check in self.checks)), "")

    def renew(self) -> None:
        """Compute the numbers of the next replay, and start their copy to the device on the current stream."""
        self._copied.synchronize()  # wait until the last replay's copy has read them
        _here.recording, self.replaying, self._next = self, True, 0
        try:
            for again in self.again:
                again()
        finally:
            _here.recording, self.replaying = None, False
        for host, device in self._chunks:
            device.data.copy_from_host_async(host.ctypes.data, host.nbytes)
        self._copied.record()
