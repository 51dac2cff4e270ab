"""A CUDA graph launches a whole training step at once; this takes the host no longer than launching one kernel.

    graph = mn.cuda.CUDAGraph()
    with mn.cuda.graph(graph):                       # launches are only recorded here; nothing is computed
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    for batch in loader:
        images.copy_(batch[0]); labels.copy_(batch[1])
        graph.replay()                               # the same step with the present contents of `images` and `labels`

Names are PyTorch's. A replay reads and writes the same memory as the capture. So fill the inputs in place, and read
`loss` after a replay. Learning rates and step counts are on the host, and are copied to the device before each replay
(minorm/devices/capture.py). So a schedule works, and `optimizer.state_dict()` is right.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

from minorm import devices
from minorm.devices import capture
from minorm.support.documented import documented

_CAPTURING = re.compile("stream is capturing|stream ?capture", re.IGNORECASE)  # in the words of CuPy and of CUDA
POOL = {
    "pool": (
        "the pool of another graph, `graph.pool()`, so that the two graphs use the same memory; they must then never "
        "replay at the same time. None makes a new pool"
    )
}


@documented({})
class CUDAGraph:
    """Recorded work of a GPU, such as a training step; it can be replayed any number of times, without Python.

    Run at least one step before the capture, so that kernels are compiled and optimizers have their state. Raises
    RuntimeError for work that cannot be captured: copies between CPU and GPU, numbers that the host reads, and
    optimizers other than SGD, Adam and AdamW.

    Example:
        >>> mn.cuda.is_available()  # else CUDAGraph() raises a RuntimeError that says what is missing
        False

    CUDA Programming Guide, "CUDA Graphs"; torch.cuda.CUDAGraph.
    """

    def __init__(self) -> None:
        self._library = devices.library()
        self._graph: Any = None
        self._pool: Any = None
        self._place: Any = None  # the GPU of the capture
        self._recording: capture.Recording | None = None
        self._open: ExitStack | None = None  # the context managers that capture_end leaves

    @documented(POOL, capture_error_mode="accepted but ignored")
    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:  # noqa: ARG002
        """Begin to record the work that the current stream gets; `graph` does the same on a separate stream."""
        self._check_free()
        cuda = self._library.cuda
        self._pool = graph_pool_handle() if pool is None else pool
        self._recording = capture.Recording(self._library)
        self._stream, self._place = cuda.get_current_stream(), cuda.Device()
        if self._stream.ptr == 0:
            raise RuntimeError(
                "CUDAGraph.capture_begin: the current stream is the default stream, which cannot be captured; use "
                "`with mn.cuda.graph(g):`, which records on a separate stream"
            )
        with ExitStack() as stack:  # all are left at once if something fails
            stack.enter_context(self._recording.captured())
            stack.enter_context(cuda.using_allocator(self._pool.malloc))
            self._stream.begin_capture()
            self._open = stack.pop_all()

    def _check_free(self) -> None:
        if self._graph is not None or self._open is not None:
            raise RuntimeError(
                "CUDAGraph.capture_begin: this CUDAGraph already holds a graph; expected a new "
                "CUDAGraph, or a call of reset() first"
            )
        if capture.recording() is not None:
            raise RuntimeError(
                "CUDAGraph.capture_begin: another graph is being captured; expected one capture at a time"
            )

    def capture_end(self) -> None:
        """End the recording, and keep the graph."""
        if self._open is None:
            raise RuntimeError("CUDAGraph.capture_end: no capture has begun; call capture_begin() first")
        with self._open:
            self._open = None
            self._graph = self._stream.end_capture()

    def replay(self) -> None:
        """Run the graph on the current stream of its GPU, with the current learning rates and step counts."""
        if self._graph is None or self._recording is None:
            raise RuntimeError("CUDAGraph.replay: nothing was captured; capture with `with mn.cuda.graph(g):` first")
        if capture.recording() is not None:
            raise RuntimeError("CUDAGraph.replay: another graph is being captured; replay after that capture has ended")
        if changed := self._recording.changed():
            raise RuntimeError(f"CUDAGraph.replay: {changed}; capture the graph again")
        self._launch()

    def _launch(self) -> None:
        """Replay the graph, and do not check if something has changed since the capture."""
        assert self._recording is not None
        with self._place:
            self._recording.renew()
            self._graph.launch()

    def _is_stale(self) -> bool:
        """Return whether `replay` would raise an error, because captured arrays have moved to other memory."""
        return self._recording is not None and bool(self._recording.changed())

    def reset(self) -> None:
        """Delete the graph; its memory is freed when no Tensor uses this memory any more."""
        self._graph = self._pool = self._recording = None

    def pool(self) -> Any:
        """Return the graph's memory pool, for `graph(..., pool=...)` of another graph."""
        return self._pool


@documented(
    POOL,
    cuda_graph="the CUDAGraph that records the work of the block",
    stream="the stream to capture on; None is a new stream",
    capture_error_mode="accepted but ignored",
)
class graph:  # noqa: N801  PyTorch's name
    """In this block, record the GPU's work in `cuda_graph` instead of running the work; the graph has its own memory.

    Raises RuntimeError if work in the block cannot be captured. Then the CUDAGraph is empty, parameters and optimizers
    are unchanged, and gradients and Tensors from the block have no values.

    Example:
        >>> mn.cuda.is_available()  # with True: with mn.cuda.graph(g): optimizer.step()
        False

    torch.cuda.graph.
    """

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global"
    ) -> None:
        self.cuda_graph, self._pool, self._mode = cuda_graph, pool, capture_error_mode
        self._stream = devices.library().cuda.Stream(non_blocking=True) if stream is None else stream

    def __enter__(self) -> None:
        self.cuda_graph._check_free()
        library = devices.library()
        library.cuda.Device().synchronize()
        library.get_default_memory_pool().free_all_blocks()  # the graph needs as much memory, in its own pool
        self._stream.__enter__()
        try:
            self.cuda_graph.capture_begin(self._pool, self._mode)
        except BaseException:
            self._stream.__exit__(None, None, None)
            raise

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self.cuda_graph.capture_end()
        except Exception:
            if error is None:  # otherwise CUDA only repeats that the capture has failed
                raise
        finally:
            self._stream.__exit__(None, None, None)
            if error is not None:
                self.cuda_graph.reset()
        if _CAPTURING.search(str(error)):
            raise RuntimeError(
                "cuda.graph: CUDA or CuPy refused an operation that cannot be captured, such as one that reads a "
                f"number back (item(), `if x > 0`, an index of booleans): {error}"
            ) from error


def graph_pool_handle() -> Any:
    """Return a pool of memory that several graphs may share: `graph(g, pool=graph_pool_handle())`."""
    cuda = devices.library().cuda

    def malloc(size: int) -> Any:
        try:
            return cuda.MemoryPointer(cuda.Memory(size), 0)
        except cuda.runtime.CUDARuntimeError as error:  # it would make a pool free memory that launches still use
            raise MemoryError(f"cuda.graph: cannot allocate {size} bytes for a graph: {error}") from error

    return cuda.MemoryPool(malloc)


def is_current_stream_capturing() -> bool:
    """Return whether a graph is being captured in this thread."""
    return capture.is_captured()
