"""Copies batches to a GPU ahead of time: while the GPU computes a step, the next batch is already being copied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from minorm import devices
from minorm.cuda.streams import Stream, current_stream
from minorm.support.documented import documented
from minorm.support.nested import mapped
from minorm.tensor.tensor import Tensor


@documented(
    {},
    batches="the iterable of batches, such as a DataLoader; a batch is a Tensor, or a tuple, list or dict with Tensors",
    device="the device to copy to",
)
def prefetch(batches: Iterable[Any], device: Any = "cuda") -> Iterator[Any]:
    """Yield the batches on the GPU; each is copied on a separate stream while the previous step runs.

    NumPy's arrays are copied through CuPy's page-locked buffers, so that the host does not wait for a copy. Use each
    batch on the stream that is current when you take the next batch. The memory of a batch is reused only when the work
    on this stream is done. Within an epoch, the loader has yielded one batch more than you have seen, so its
    `state_dict` is one batch ahead.

    If device="cpu", batches are copied one by one, and no batch is read ahead.

    Example:
        >>> mn.cuda.is_available()  # with True: for images, labels in mn.data.prefetch(loader)
        False
    """
    if devices.device_index(device) is None:
        yield from (_moved(batch, device) for batch in batches)
        return
    side, ready = Stream(device), None
    for batch in batches:
        # The copy may write to memory of earlier batches, which steps in progress still read.
        side.wait_stream(current_stream(device))
        with side:
            moved = _moved(batch, device)
        if ready is not None:
            yield _awaited(*ready, device)
        ready = moved, side.record_event()
    if ready is not None:
        yield _awaited(*ready, device)


def _awaited(batch: Any, event: Any, device: Any) -> Any:
    current_stream(device).wait_event(event)
    return batch


def _moved(batch: Any, device: Any) -> Any:
    return mapped(batch, Tensor, lambda tensor: tensor.to(device))
