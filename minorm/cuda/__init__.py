"""Functions for the GPUs of this machine and their memory, with PyTorch's names.

To compute on a GPU, `x.to("cuda")` and `model.to("cuda")` are enough. An argument `device` is a number, a name such as
"cuda:1", or None for the current GPU.
"""

from __future__ import annotations

from typing import Any

from minorm import devices
from minorm.cuda.graphed_callables import make_graphed_callables
from minorm.cuda.graphed_step import make_graphed_step
from minorm.cuda.graphs import CUDAGraph, graph, graph_pool_handle, is_current_stream_capturing
from minorm.cuda.streams import Event, Stream, current_stream, default_stream, stream
from minorm.devices import capture, generators
from minorm.support import elsewhere
from minorm.support.documented import documented

__getattr__ = elsewhere.absent(__name__)

DEVICE = {"device": 'the GPU: a number, or a name such as "cuda:1"; None is the current GPU'}


def is_available() -> bool:
    """Return whether CUDA can be used, which needs CuPy, a driver that fits, and a GPU. Never raises an error."""
    try:
        return int(devices.library().cuda.runtime.getDeviceCount()) > 0
    except RuntimeError:
        return False


def device_count() -> int:
    """Return the number of GPUs that can be used; 0 if CUDA is not available."""
    return int(devices.library().cuda.runtime.getDeviceCount()) if is_available() else 0


def current_device() -> int:
    """Return the number of the GPU that "cuda" means in this thread."""
    return int(devices.library().cuda.runtime.getDevice())


@documented({}, seed="an int of at least 0")
def manual_seed(seed: int) -> None:
    """Call `minorm.manual_seed(seed)` if CUDA is available; all devices have the same generator."""
    if is_available():
        generators.manual_seed(seed)


@documented({}, seed="an int of at least 0")
def manual_seed_all(seed: int) -> None:
    """Call `manual_seed`."""
    manual_seed(seed)


@documented(DEVICE)
def set_device(device: Any) -> None:
    """Set the GPU that "cuda" means in this thread."""
    _device(device).use()


@documented(DEVICE)
def get_device_name(device: Any = None) -> str:
    """Return the name of the GPU."""
    name = devices.library().cuda.runtime.getDeviceProperties(_device(device).id)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


@documented(DEVICE)
def synchronize(device: Any = None) -> None:
    """Wait until all work on the GPU is done. If a kernel has failed, its error is raised here at the latest."""
    _device(device).synchronize()


@documented(DEVICE)
def memory_stats(device: Any = None) -> dict[str, int]:
    """Return a dict with PyTorch's names: the bytes of arrays, and the bytes of arrays and idle buffers together."""
    with _device(device):
        pool = devices.library().get_default_memory_pool()
        return {
            "allocated_bytes.all.current": int(pool.used_bytes()),
            "reserved_bytes.all.current": int(pool.total_bytes()),
        }


@documented(DEVICE)
def memory_allocated(device: Any = None) -> int:
    """Return how many bytes arrays use."""
    return memory_stats(device)["allocated_bytes.all.current"]


_peaks: dict[int, int] = {}  # the most bytes in use by device, since counting began


@documented(DEVICE)
def max_memory_allocated(device: Any = None) -> int:
    """Return the largest number of bytes that arrays used at one time since counting began.

    Counting begins with the first call of this function or of `reset_peak_memory_stats`, but not during the capture of
    a CUDA graph. It does not begin with the program, because counting adds a Python call to each allocation. The cost
    does not grow with the number of arrays, because CuPy's pool keeps their sum since version 14.1.
    """
    with _device(device) as place:
        _watch()
        return max(_peaks.get(place.id, 0), memory_allocated(device))


@documented(DEVICE)
def reset_peak_memory_stats(device: Any = None) -> None:
    """Restart the count of `max_memory_allocated` from the bytes that arrays use now."""
    with _device(device) as place:
        _watch()
        _peaks[place.id] = memory_allocated(device)


def _watch() -> None:
    """Let every later allocation in CuPy's pool update the peak of its device."""
    if capture.recording() is not None:
        return  # the current allocator belongs to the graph, and is gone after the capture
    library = devices.library()
    pool, allocate, current = library.get_default_memory_pool(), library.cuda.get_allocator(), library.cuda.runtime
    if getattr(allocate, "watches", False):
        return

    def watched(size: int) -> Any:
        memory = allocate(size)
        index = current.getDevice()
        _peaks[index] = max(_peaks.get(index, 0), int(pool.used_bytes()))
        return memory

    watched.watches = True  # type: ignore[attr-defined]
    library.cuda.set_allocator(watched)


@documented(DEVICE)
def memory_reserved(device: Any = None) -> int:
    """Return the bytes that arrays use, plus the bytes of idle buffers that later arrays can reuse."""
    return memory_stats(device)["reserved_bytes.all.current"]


@documented(DEVICE)
def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return (free, total): the free bytes and the total bytes of the GPU's memory.

    Memory that other programs use does not count as free.
    """
    free, total = _device(device).mem_info
    return int(free), int(total)


def empty_cache() -> None:
    """Give the idle buffers of the current GPU back to the driver; do nothing if CUDA is not available."""
    if is_available():
        devices.library().get_default_memory_pool().free_all_blocks()


def _device(device: Any) -> Any:
    cuda = devices.library().cuda
    if device is None:
        return cuda.Device()
    index = device if isinstance(device, int) else devices.device_index(device)
    if index is None:
        raise ValueError(f"cuda: {device!r} is no GPU; expected a number or a name, such as 'cuda:0'")
    return cuda.Device(index)
