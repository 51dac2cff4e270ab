"""The part of cupy.cuda that minorm uses, for the double: devices, memory and streams of a machine that is not there.

There are two devices. `transfers` counts what a test of speed wants to be none.
"""

from __future__ import annotations

import types
import weakref
from collections import Counter
from typing import Any

import numpy as np


class Transfers:
    """What went between host and device since `clear`."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.to_host = 0  # copies that the host waits for, and numbers that it asks for
        self.to_device = 0
        self.atomics = 0  # sums of floats in an order of their own
        self.streams: list[Any] = []  # what consumers of DLPack asked for
        self.launches: Counter[str] = Counter()  # by the name of the kernel, ours and CuPy's own


transfers = Transfers()


class Current:
    """The current device, and the current stream; 0 is the default one."""

    index = 0
    stream = 0


class Device:
    """cupy.cuda.Device."""

    COUNT = 2
    mem_info = (3 << 30, 4 << 30)

    def __init__(self, device: int | None = None) -> None:
        self.id = Current.index if device is None else device
        self._before: list[int] = []

    def use(self) -> None:
        assert 0 <= self.id < self.COUNT
        Current.index = self.id

    def synchronize(self) -> None:
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


class MemoryPointer:
    """Where an array begins: `ptr` is the address in the host's memory."""

    def __init__(self, memory: np.ndarray, device: int) -> None:
        self.ptr = memory.ctypes.data
        self.device_id = device
        self.mem = memory


class Pool:
    """cupy.get_default_memory_pool(): the bytes of arrays; what they leave stays until free_all_blocks."""

    def __init__(self) -> None:
        self.used = self.held = 0

    def took(self, memory: np.ndarray) -> None:
        size = memory.nbytes
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
    """cupy.cuda.Stream: everything happens at once; its address is only a number to be passed on."""

    def __init__(self, ptr: int | None = None) -> None:
        self.ptr = 0x5000 if ptr is None else ptr
        self._before: list[int] = []

    def use(self) -> Stream:
        Current.stream = self.ptr
        return self

    def __enter__(self) -> Stream:
        self._before.append(Current.stream)
        return self.use()

    def __exit__(self, *error: Any) -> None:
        Current.stream = self._before.pop()

    def synchronize(self) -> None:
        transfers.to_host += 1


class CPointer:
    """cupy.cuda.function.CPointer: the address of an argument."""

    def __init__(self, p: int = 0) -> None:
        self.p = p


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
    )
    cuda = types.ModuleType("cupy.cuda")
    cuda.__dict__.update(
        runtime=runtime,
        function=function,
        Device=Device,
        MemoryPointer=MemoryPointer,
        Stream=Stream,
        get_current_stream=lambda: Stream(Current.stream),
        is_available=lambda: True,
    )
    return cuda
