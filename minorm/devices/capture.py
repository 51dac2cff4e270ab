"""Gives each replay of a CUDA graph new numbers from the host, through memory on the device.

A captured launch keeps its arguments, so a learning rate that is an argument would never change. So while a step is
captured, code puts such numbers into a slot, instead of passing them to a kernel:

    slot = recording.keep(fields)      # slot.device is a device array that will hold `fields` at each replay

Code that counts steps adds a function that does the counting: `recording.again.append(function)`. These functions are
called before each replay, while `recording.replaying` is True. They launch nothing, and write their numbers into the
same slots in the same order. Then one copy brings all numbers to the device. The interface for users is
minorm/cuda/graphs.py.

Because these functions count, either all or none of them must run. So before the first function runs,
`recording.checks` tests that the step still uses the same memory as at the capture.

`watched()` collects the gradients and modules that a step touches; make_graphed_step checks them before it replays.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

ALIGNED = 256  # bytes: each slot begins at a multiple of this
CHUNK = 1 << 16  # bytes that one copy moves to the device


class _Here(threading.local):
    recording: Recording | None = None
    watch: Watch | None = None


_here = _Here()


def recording() -> Recording | None:
    """Return the recording that this thread captures or replays, or None."""
    return _here.recording


def is_captured() -> bool:
    """Return whether this thread is capturing a graph, so that launches are recorded and do not run."""
    return _here.recording is not None and not _here.recording.replaying


def noted(function: Callable[[], Any]) -> bool:
    """If this thread is capturing, let `function` run before each replay, and return True. Otherwise return False.

    If the result is True, the caller must not call `function` now.
    """
    if _here.recording is None or _here.recording.replaying:
        return False
    _here.recording.again.append(function)
    return True


def hold(array: Any) -> None:
    """During a capture, keep an array alive as long as the graph, because the graph's launches read the array."""
    if _here.recording is not None:
        _here.recording.held.append(array)


def refuse_copies(what: str) -> None:
    """Raise RuntimeError during a capture, because a replay would copy memory that may have other contents then."""
    if is_captured():
        raise RuntimeError(
            f"cuda.graph: {what} is copied between the CPU and a GPU while a graph is captured; a replay repeats only "
            "the work of the GPU, not that of the CPU; make the array on the GPU before the capture, and fill it with "
            "copy_() before a replay"
        )


def refuse_draws() -> None:
    """Raise RuntimeError if the CPU draws numbers during a capture, because each replay would use the same numbers."""
    if is_captured():
        raise RuntimeError(
            "cuda.graph: numbers are drawn on the CPU while a graph is captured, and each replay would use the same "
            "numbers; use operations that draw on the GPU (uniform numbers, dropout), or draw the numbers before the "
            "replay and copy them to the GPU"
        )


def refuse_number(operation: str, name: str) -> None:
    """Raise RuntimeError during a capture, because the argument `name` of this operation is a number on the CPU."""
    if is_captured():
        raise RuntimeError(
            f"{operation}: {name} is a number on the CPU, and each replay of a CUDA graph would use the same number; "
            f"call {operation} outside of the graph, after a replay"
        )


class Watch:
    """The gradients and modules that a step touches, in the order in which it touches them.

    gradients  pairs (leaf, gradient of the leaf at that time). A pair is added when backward() adds to the gradient of
               a leaf, and when an optimizer reads this gradient
    modules    the modules that were called
    """

    def __init__(self) -> None:
        self.gradients: list[tuple[Any, Any]] = []
        self.modules: list[Any] = []


watches: list[Watch] = []  # the open watches of all threads; without any, a module's call skips the rest


@contextmanager
def watched() -> Iterator[Watch]:
    """Collect the gradients and modules that this thread touches during the block."""
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
    """Numbers on host and device: `host` is a structured array without axes, and `device` has bytes for kernels."""

    __slots__ = ("device", "host")

    def __init__(self, host: Any, device: Any) -> None:
        self.host, self.device = host, device


class Recording:
    """The numbers of one graph that change from replay to replay.

    library     the module cupy
    again       functions that the host calls before each replay
    checks      functions that return "", or a sentence about a change that makes a replay impossible
    held        arrays that captured launches read and that must stay alive
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
        # CuPy reuses freed pinned memory at once, even if a copy in progress still has to read it.
        weakref.finalize(self, self._copied.synchronize).atexit = False

    def keep(self, fields: Any) -> Slot:
        """Return a slot that holds `fields`, a structured array without axes. Replays may change its numbers."""
        size = fields.nbytes
        if size > CHUNK:
            raise ValueError(
                f"cuda.graph: one launch needs {size} bytes of changing numbers; expected at most {CHUNK} bytes"
            )
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
        """Return device memory of `size` bytes that all captured launches may use in turn."""
        if self._scratch is None:
            self._scratch = self._apart(size)
        return self._scratch

    def _apart(self, size: int) -> Any:
        """Allocate bytes outside the graph's pool, because earlier launches may write to memory of this pool."""
        with self.library.cuda.using_allocator(self.library.get_default_memory_pool().malloc):
            return self.library.empty(size, np.uint8)

    def next(self) -> Slot:
        """Return the next slot, in the order in which `keep` made the slots during the capture.

        This method is called before a replay.
        """
        self._next += 1
        return self._slots[self._next - 1]

    @contextmanager
    def captured(self) -> Iterator[None]:
        """During the block, this thread captures a graph into this recording."""
        _here.recording = self
        try:
            yield
        finally:
            _here.recording = None

    def changed(self) -> str:
        """Return a sentence if something has changed since the capture and makes a replay impossible, else ""."""
        return next(filter(None, (check() for check in self.checks)), "")

    def renew(self) -> None:
        """Compute the numbers for the next replay, and start copying them to the device on the current stream."""
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
