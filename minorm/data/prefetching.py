"""Batches copied ahead: while the GPU computes a step, the next batch is already on its way to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from minorm import devices
from minorm.cuda.streams import Stream, current_stream
from minorm.support.documented import documented
from minorm.support.nested import mapped
from minorm.tensor.tensor import Tensor


@documented(
    {}, batches="what to iterate over, a DataLoader: Tensors in tuples, lists and dicts", device="where they shall be"
)
def prefetch(batches: Iterable[Any], device: Any = "cuda") -> Iterator[Any]:
    """The same batches on the GPU, each copied on a stream of its own while the step before it runs.

    NumPy's arrays pass through page-locked buffers of CuPy's, so that the host does not wait for a copy. Use a batch
    on the stream that is current when the next one is asked for: its memory is written again only behind that. A loader
    has handed out one batch more than you have seen, so within an epoch its `state_dict` is one ahead of the step.

    On "cpu" batches go there one by one, and none is asked for ahead.

    Example:
        >>> mn.cuda.is_available()  # with True: for images, labels in mn.data.prefetch(loader)
        False
    """
    if devices.device_index(device) is None:
        yield from (_moved(batch, device) for batch in batches)
        return
    side, ready = Stream(device), None
    for batch in batches:
        # What the copy writes to, memory of earlier batches among it, is read by steps that have been started already.
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
