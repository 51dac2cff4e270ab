"""The part of cupy.cuda that minorm uses, for the double: devices, memory and streams of a machine that is not there.

There are two devices. `transfers` counts the events that a test of speed wants to be zero. cupy_graphs.py captures.
"""

from __future__ import annotations

import ctypes
import types
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import cupy_graphs
import cupy_orders
import numpy as np


class CUDARuntimeError(RuntimeError):
    """cupy_backends.cuda.api.runtime.CUDARuntimeError."""


class Transfers:
    """Count the transfers between host and device since `clear`; CUDA refuses them while it captures a stream."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._to_host = self._to_device = 0
        self.atomics = 0  # sums of floats in no fixed order
        self.events_awaited = 0  # by the host
        self.waits: list[tuple[int, int]] = []  # (stream, the stream whose work it waits for)
        self.places: list[tuple[int, int]] = []  # (device of that stream, device of the event that it waits for)
        self.streams: list[Any] = []  # what consumers of DLPack asked for
        self.launches: Counter[str] = Counter()  # by the name of the kernel, ours and CuPy's own
        self.turned = cupy_orders.turned  # the shapes of arrays that were brought into another order of memory
        self.turned.clear()

    @property
    def to_host(self) -> int:
        """Copies that the host waits for, and numbers that it asks for."""
        return self._to_host

    @to_host.setter
    def to_host(self, count: int) -> None:
        refuse_copies_while_capturing("D2H")
        self._to_host = count

    @property
    def to_device(self) -> int:
        return self._to_device

    @to_device.setter
    def to_device(self, count: int) -> None:
        refuse_copies_while_capturing("H2D")
        self._to_device = count


def refuse_copies_while_capturing(which: str) -> None:
    """CuPy asks the stream first and does not start the copy: the capture itself goes on."""
    if Current.capture is not None:
        raise RuntimeError(f"the current stream is capturing, so {which} transfers are disallowed")


def refuse_while_capturing() -> None:
    """CUDA itself refuses it, and nothing comes of the capture."""
    if Current.capture is not None:
        Current.capture.broken = True
        raise CUDARuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")


transfers = Transfers()


class Current:
    """The current device, and the current stream of each; 0 is the default one."""

    index = 0
    streams: ClassVar = {0: 0, 1: 0}
    capture: Any = None  # of cupy_graphs.py
    pool: Any = None  # that serves memory instead of the default one
    allocator: Any = None  # of set_allocator


class Device:
    """cupy.cuda.Device."""

    COUNT = 2
    mem_info = (3 << 30, 4 << 30)

    def __init__(self, device: int | None = None) -> None:
        self.id = Current.index if device is None else device
        self._before: list[int] = []

    compute_capability = "90"
    attributes: ClassVar = {"MaxSharedMemoryPerBlockOptin": 227 << 10}

    def use(self) -> None:
        assert 0 <= self.id < self.COUNT
        Current.index = self.id

    def synchronize(self) -> None:
        refuse_while_capturing()
        transfers.to_host += 1

    def __enter__(self) -> Device:
        self._before.append(Current.index)
        self.use()
        return self

    def __exit__(self, *error: Any) -> None:
        Current.index = self._before.pop()

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"


class Memory:
    """cupy.cuda.Memory; `content` is what lies there."""

    def __init__(self, size: int) -> None:
        self._set(np.empty(size, np.uint8), Current.index)

    @classmethod
    def of(cls, content: np.ndarray, device: int) -> Memory:
        memory = cls.__new__(cls)
        memory._set(content, device)
        return memory

    def _set(self, content: np.ndarray, device: int) -> None:
        self.content, self.size, self.device_id = content, content.nbytes, device
        self.ptr = content.ctypes.data  # the address in the host's memory


class MemoryPointer:
    """cupy.cuda.MemoryPointer: where an array begins."""

    def __init__(self, mem: Memory, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    @property
    def content(self) -> np.ndarray:
        """The content from this address to the end of the memory."""
        offset = self.ptr - self.mem.ptr
        return self.mem.content if offset == 0 else self.mem.content.reshape(-1).view(np.uint8)[offset:]

    def copy_from_host_async(self, mem: int, size: int, stream: Any = None) -> None:
        refuse_copies_while_capturing("H2D")
        assert size <= self.mem.size
        transfers.launches["copy from pinned memory"] += 1
        ctypes.memmove(self.ptr, mem, size)


class Pool:
    """cupy.cuda.MemoryPool: the bytes of arrays; what they leave stays until free_all_blocks."""

    live: ClassVar = weakref.WeakValueDictionary()  # the memory of all pools, by its id

    def __init__(self, allocator: Any = None) -> None:
        self.allocator = allocator  # of memory for the pool, which is asked for and not used
        self.used = self.held = 0

    def malloc(self, size: int) -> Any:
        """Do nothing: `took` has already counted the memory."""

    def took(self, memory: np.ndarray) -> None:
        self.live[id(memory)] = memory
        (Current.pool or self)._took(memory)
        if Current.pool is None and Current.allocator is not None:
            Current.allocator(memory.nbytes)

    def _took(self, memory: np.ndarray) -> None:
        size = memory.nbytes
        if self.allocator is not None and size:
            pointer = self.allocator(size)
            assert isinstance(pointer, MemoryPointer)
            assert pointer.mem.size == size
        self.used += size
        self.held = max(self.held, self.used)
        weakref.finalize(memory, self._left, size)

    def _left(self, size: int) -> None:
        self.used -= size

    def used_bytes(self) -> int:
        return self.used

    def total_bytes(self) -> int:
        return self.held

    def free_bytes(self) -> int:
        return self.held - self.used

    def free_all_blocks(self) -> None:
        self.held = self.used


pool = Pool()


class Stream:
    """cupy.cuda.Stream: everything happens at once; its address is only a number to be passed on.

    The default stream is that of whatever device is the current one, any other belongs to where it was made.
    """

    null: Stream
    made = 0
    done = True

    def __init__(self, ptr: int | None = None, non_blocking: bool = False, priority: int | None = None) -> None:
        Stream.made += ptr is None
        self.ptr = 0x5000 + 16 * Stream.made if ptr is None else ptr
        self.device_id = Current.index if self.ptr else -1
        self._before: list[tuple[int, int]] = []

    def record(self, event: Event | None = None) -> Event:
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        transfers.waits.append((self.ptr, event.stream))
        transfers.places.append((Current.index if self.device_id < 0 else self.device_id, event.device))

    def begin_capture(self, mode: Any = None) -> None:
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if Current.capture is not None:
            raise CUDARuntimeError("cudaErrorIllegalState: the operation cannot be performed in the present state")
        Current.capture = cupy_graphs.Capture(Pool.live)

    def end_capture(self) -> Any:
        capture, Current.capture = Current.capture, None
        capture.undo()
        if capture.broken:
            raise CUDARuntimeError("cudaErrorStreamCaptureInvalidated: operation failed due to a previous error")
        return cupy_graphs.Graph(capture)

    def use(self) -> Stream:
        if self.device_id not in (-1, Current.index):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with the current device "
                f"({Current.index})"
            )
        Current.streams[Current.index] = self.ptr
        return self

    def __enter__(self) -> Stream:
        before = Current.index, Current.streams[Current.index]
        self.use()
        self._before.append(before)
        return self

    def __exit__(self, *error: Any) -> None:
        index, stream = self._before.pop()
        Current.streams[index] = stream

    def synchronize(self) -> None:
        refuse_while_capturing()
        transfers.to_host += 1


class Event:
    """cupy.cuda.Event: what it stands for has happened already."""

    done = True
    recorded = 0

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        self.stream, self.time, self.device = -1, 0.0, Current.index

    def record(self, stream: Any = None) -> None:
        refuse_while_capturing()
        device = Current.index if stream is None or stream.device_id < 0 else stream.device_id
        if device != self.device:
            raise CUDARuntimeError("cudaErrorInvalidResourceHandle: invalid resource handle")
        Event.recorded += 1
        self.stream = Current.streams[device] if stream is None else stream.ptr
        self.time = float(Event.recorded)

    def synchronize(self) -> None:
        """CUDA lets the host wait while a stream is captured, for events that are no part of it: all are."""
        transfers.events_awaited += 1


Stream.null = Stream(0)


@contextmanager
def using_allocator(allocator: Any = None) -> Iterator[None]:
    """cupy.cuda.using_allocator, of a pool's malloc."""
    before, Current.pool = Current.pool, allocator.__self__
    try:
        yield
    finally:
        Current.pool = before


def set_allocator(allocator: Any) -> None:
    """cupy.cuda.set_allocator."""
    if Current.pool is not None:
        raise ValueError("Can't change the global allocator inside `using_allocator` context manager")
    Current.allocator = allocator


def alloc(size: int) -> MemoryPointer:
    """cupy.cuda.alloc: bytes of the pool, filled with what would be NaN."""
    content = np.full(size, 0xFF, np.uint8)
    pool.took(content)
    return MemoryPointer(Memory.of(content, Current.index), 0)


class CPointer:
    """cupy.cuda.function.CPointer: the address of an argument, which stays."""

    ptr = property(lambda self: self._ptr)

    def __init__(self, p: int = 0) -> None:
        self._ptr = p


def submodule() -> types.ModuleType:
    """cupy.cuda."""
    function = types.ModuleType("cupy.cuda.function")
    function.__dict__.update(CPointer=CPointer)
    runtime = types.ModuleType("cupy.cuda.runtime")
    runtime.__dict__.update(
        getDevice=lambda: Current.index,
        setDevice=lambda index: Device(index).use(),
        getDeviceCount=lambda: Device.COUNT,
        getDeviceProperties=lambda index: {"name": b"NVIDIA Double", "multiProcessorCount": 4, "major": 9, "minor": 0},
        driverGetVersion=lambda: 12080,
        runtimeGetVersion=lambda: 12090,
        CUDA_R_16F=2,
        CUDA_R_16BF=14,
        CUDA_R_32F=0,
        CUDA_R_64F=1,
        CUDARuntimeError=CUDARuntimeError,
    )
    import cublas_double  # it counts here

    device = types.ModuleType("cupy.cuda.device")
    device.__dict__.update(get_cublas_handle=lambda: cublas_double.HANDLE)
    cuda = types.ModuleType("cupy.cuda")
    cuda.__dict__.update(
        runtime=runtime,
        function=function,
        cublas=cublas_double,
        device=device,
        Device=Device,
        Memory=Memory,
        MemoryPointer=MemoryPointer,
        Stream=Stream,
        Graph=cupy_graphs.Graph,
        Event=Event,
        MemoryPool=Pool,
        using_allocator=using_allocator,
        get_allocator=lambda: Current.pool.malloc if Current.pool else Current.allocator or pool.malloc,
        set_allocator=set_allocator,
        get_elapsed_time=lambda start, end: end.time - start.time,
        alloc=alloc,
        alloc_pinned_memory=bytearray,
        get_current_stream=lambda: Stream(Current.streams[Current.index]),
        is_available=lambda: True,
    )
    return cuda
