"""What a CUDA graph reads anew at each replay: numbers of the host, kept in memory of the device.

A captured launch keeps its arguments, and a learning rate among them would stay what it was. So while a step is
captured, whoever hands such numbers to a kernel keeps them in a slot instead,

    slot = recording.keep(fields)      # slot.device is a device array that will hold `fields` at each replay

and whoever counts steps leaves a note how: `recording.again.append(function)`. Before each replay the notes are
called; they meet `recording.replaying`, launch nothing, and write their numbers into the same slots, in the same order.
One copy then brings all of them to the device. minorm/cuda/graphs.py is what users see.

A note counts something, so all of them are called or none: `recording.checks` says before the first one whether the
memory is still that of the capture.

`watched()` collects what a step touches, be it captured or not: make_graphed_step looks there before it replays.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

ALIGNED = 256  # bytes: where a slot begins
CHUNK = 1 << 16  # bytes that one copy brings to the device


class _Here(threading.local):
    recording: Recording | None = None
    watch: Watch | None = None


_here = _Here()


def recording() -> Recording | None:
    """What is being captured, or replayed, by this thread."""
    return _here.recording


def is_captured() -> bool:
    """Is this thread capturing: are launches written down, and not done?"""
    return _here.recording is not None and not _here.recording.replaying


def noted(function: Callable[[], Any]) -> bool:
    """Whether this thread is capturing. If so, `function` is called before each replay, and need not be now."""
    if _here.recording is None or _here.recording.replaying:
        return False
    _here.recording.again.append(function)
    return True


def hold(array: Any) -> None:
    """Keep an array that a captured launch reads as long as its graph."""
    if _here.recording is not None:
        _here.recording.held.append(array)


def refuse_copies(what: str) -> None:
    """RuntimeError while a graph is captured: its replay would copy from memory that means something else by then."""
    if is_captured():
        raise RuntimeError(
            f"cuda.graph: {what} is copied between the CPU and a GPU while a graph is captured; a graph replays what "
            "the GPU does, and nothing of the CPU: make the array on the GPU before the capture, and fill it with "
            "copy_() before a replay"
        )


def refuse_draws() -> None:
    """RuntimeError while a graph is captured, before the CPU draws numbers: each replay would use the same ones."""
    if is_captured():
        raise RuntimeError(
            "cuda.graph: numbers are drawn on the CPU while a graph is captured, and each replay would use the same "
            "ones; expected uniform numbers and dropout, which are drawn on the GPU, or numbers that are drawn before "
            "the replay and copied to the GPU"
        )


def refuse_number(operation: str, name: str) -> None:
    """RuntimeError while a graph is captured, for an operation that is given a number of the CPU."""
    if is_captured():
        raise RuntimeError(
            f"{operation}: {name} is a number of the CPU, and each replay of a CUDA graph would be given the same one; "
            "expected the call outside the graph, after a replay"
        )


class Watch:
    """What a step touches, in order.

    gradients  (leaf, its gradient by then) whenever backward() adds to one or an optimizer reads one
    modules    those that were called
    """

    def __init__(self) -> None:
        self.gradients: list[tuple[Any, Any]] = []
        self.modules: list[Any] = []


watches: list[Watch] = []  # open in any thread; while the list is empty, a call of a module skips the rest


@contextmanager
def watched() -> Iterator[Watch]:
    """Inside, what this thread touches is collected."""
    before, watch = _here.watch, Watch()
    _here.watch = watch
    watches.append(watch)
    try:
        yield watch
    finally:
        watches.remove(watch)
        _here.watch = before


def watch() -> Watch | None:
    """What collects in this thread."""
    return _here.watch if watches else None


class Slot:
    """Numbers on both sides: `host` is a structured array without axes, `device` the bytes that kernels read."""

    __slots__ = ("device", "host")

    def __init__(self, host: Any, device: Any) -> None:
        self.host, self.device = host, device


class Recording:
    """The numbers of one graph.

    library     the module cupy
    again       what the host does before each replay
    checks      each gives a sentence where something is not as it was at the capture, else an empty text
    held        arrays that captured launches read, and that would be gone otherwise
    replaying   True while it does so, False while the graph is captured
    """

    def __init__(self, library: Any) -> None:
        self.library = library
        self.again: list[Callable[[], None]] = []
        self.checks: list[Callable[[], str]] = []
        self.held: list[Any] = []
        self.replaying = False
        self._slots: list[Slot] = []
        self._chunks: list[tuple[Any, Any]] = []  # (bytes on the host, in pinned memory; bytes on the device)
        self._used = CHUNK  # bytes of the last chunk
        self._next = 0  # slot of a replay
        self._copied = library.cuda.Event(disable_timing=True)
        self._scratch: Any = None
        # CuPy gives pinned memory to the next who asks, though a copy that was started may still have to read it.
        weakref.finalize(self, self._copied.synchronize).atexit = False

    def keep(self, fields: Any) -> Slot:
        """A slot for the fields of a structured array without axes, which it holds until a replay changes them."""
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
        """Bytes on the device that captured launches may use one after the other."""
        if self._scratch is None:
            self._scratch = self._apart(size)
        return self._scratch

    def _apart(self, size: int) -> Any:
        """Not from the graph's own pool: there it could be memory that launches before this one write to."""
        with self.library.cuda.using_allocator(self.library.get_default_memory_pool().malloc):
            return self.library.empty(size, np.uint8)

    def next(self) -> Slot:
        """In a replay, the slot that the capture got at this place."""
        self._next += 1
        return self._slots[self._next - 1]

    @contextmanager
    def captured(self) -> Iterator[None]:
        """Inside, this thread captures."""
        _here.recording = self
        try:
            yield
        finally:
            _here.recording = None

    def changed(self) -> str:
        """What is not as it was at the capture, so that there can be no replay; an empty text where all is."""
        return next(filter(None, (check() for check in self.checks)), "")

    def renew(self) -> None:
        """Work the numbers of the next replay out, and start their copy to the device on the current stream."""
        self._copied.synchronize()  # the copy of the replay before has read them
        _here.recording, self.replaying, self._next = self, True, 0
        try:
            for again in self.again:
                again()
        finally:
            _here.recording, self.replaying = None, False
        for host, device in self._chunks:
            device.data.copy_from_host_async(host.ctypes.data, host.nbytes)
        self._copied.record()
