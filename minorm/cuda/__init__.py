"""The GPUs of this machine and their memory. Names are PyTorch's.

Nothing here is needed to compute: `x.to("cuda")` and `model.to("cuda")` are enough. Where a function takes a device,
it is a number, a name as "cuda:1", or None for the current one.
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

DEVICE = {"device": 'the GPU, a number or a name as "cuda:1"; None is the current one'}


def is_available() -> bool:
    """True where CuPy, a driver that it can use and a GPU are there; never raises."""
    try:
        return int(devices.library().cuda.runtime.getDeviceCount()) > 0
    except RuntimeError:
        return False


def device_count() -> int:
    """How many GPUs can be used; 0 where CUDA is not available."""
    return int(devices.library().cuda.runtime.getDeviceCount()) if is_available() else 0


def current_device() -> int:
    """The number of the GPU that "cuda" means in this thread."""
    return int(devices.library().cuda.runtime.getDevice())


@documented({}, seed="an int of at least 0")
def manual_seed(seed: int) -> None:
    """`minorm.manual_seed(seed)` where CUDA is available, as one generator draws for all devices; else nothing."""
    if is_available():
        generators.manual_seed(seed)


@documented({}, seed="an int of at least 0")
def manual_seed_all(seed: int) -> None:
    """As `manual_seed`."""
    manual_seed(seed)


@documented(DEVICE)
def set_device(device: Any) -> None:
    """Let "cuda" mean this GPU in this thread from now on."""
    _device(device).use()


@documented(DEVICE)
def get_device_name(device: Any = None) -> str:
    """What the GPU is called."""
    name = devices.library().cuda.runtime.getDeviceProperties(_device(device).id)["name"]
    return name.decode() if isinstance(name, bytes) else str(name)


@documented(DEVICE)
def synchronize(device: Any = None) -> None:
    """Wait until everything that was started on the GPU is done; a failure in a kernel shows here at the latest."""
    _device(device).synchronize()


@documented(DEVICE)
def memory_stats(device: Any = None) -> dict[str, int]:
    """Bytes in use by arrays, and bytes held in all, idle buffers included, under PyTorch's names."""
    with _device(device):
        pool = devices.library().get_default_memory_pool()
        return {
            "allocated_bytes.all.current": int(pool.used_bytes()),
            "reserved_bytes.all.current": int(pool.total_bytes()),
        }


@documented(DEVICE)
def memory_allocated(device: Any = None) -> int:
    """Bytes in use by arrays."""
    return memory_stats(device)["allocated_bytes.all.current"]


_peaks: dict[int, int] = {}  # by device, once somebody has asked for them


@documented(DEVICE)
def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that arrays had at once, since the first call of this or of `reset_peak_memory_stats`.

    Not since the program began: counting costs each allocation a function of Python, however many arrays are alive
    (CuPy's pool keeps their sum since 14.1). Called while a CUDA graph is captured, it does not begin to count.
    """
    with _device(device) as place:
        _watch()
        return max(_peaks.get(place.id, 0), memory_allocated(device))


@documented(DEVICE)
def reset_peak_memory_stats(device: Any = None) -> None:
    """Let `max_memory_allocated` count from what arrays have now."""
    with _device(device) as place:
        _watch()
        _peaks[place.id] = memory_allocated(device)


def _watch() -> None:
    """From now on every allocation of CuPy's pool keeps the peak of its device."""
    if capture.recording() is not None:
        return  # the allocator of now is the graph's own, and goes with the capture
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
    """Bytes held: those in use, and idle buffers that the next arrays are served from."""
    return memory_stats(device)["reserved_bytes.all.current"]


@documented(DEVICE)
def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of the GPU, whatever program uses them."""
    free, total = _device(device).mem_info
    return int(free), int(total)


def empty_cache() -> None:
    """Give the idle buffers of the current GPU back to the driver; nothing where CUDA is not available."""
    if is_available():
        devices.library().get_default_memory_pool().free_all_blocks()


def _device(device: Any) -> Any:
    cuda = devices.library().cuda
    if device is None:
        return cuda.Device()
    index = device if isinstance(device, int) else devices.device_index(device)
    if index is None:
        raise ValueError(f"cuda: {device!r} is no GPU; expected a number or a name as 'cuda:0'")
    return cuda.Device(index)
