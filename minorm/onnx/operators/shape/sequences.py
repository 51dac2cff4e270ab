"""Read ReverseSequence and TensorScatter, in which each sample of a batch has its own length or start index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads
from minorm.ops.operands import axis_of
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor


@reads("ReverseSequence", since=10, fixed=(1,))
def read_reverse(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    """Reverse the first lengths[b] elements of sample b; all later elements stay unchanged."""
    batch, time = node["batch_axis"], node["time_axis"]
    if {batch, time} != {0, 1}:
        raise ValueError(f"batch_axis is {batch}, time_axis {time}; expected 0 and 1, or 1 and 0")

    def reverse(x: Tensor, lengths: Tensor) -> Tensor:
        if x.ndim < 2 or lengths.shape != (x.shape[batch],):
            raise ValueError(
                f"x has shape {x.shape}, sequence_lens {lengths.shape}; expected a batch on axis {batch}, and one "
                "length for each sample"
            )
        given, steps = lengths.array.astype(np.int64), np.arange(x.shape[time])
        if given.size and not 0 <= given.min() <= given.max() <= len(steps):
            raise ValueError(
                f"sequence_lens holds {given.min()} to {given.max()}; expected 0 to {len(steps)}, the length of axis "
                f"{time}"
            )
        node.fits((2, *x.shape[:2]), np.int64)
        turned = np.where(steps < given[:, None], given[:, None] - 1 - steps, steps)
        samples = np.arange(x.shape[batch])[:, None]
        return x[(samples, turned)] if batch == 0 else x[(turned.T, samples.T)]

    return reverse


@reads("TensorScatter", since=24, fixed=(2,))
def read_tensor_scatter(node: Node) -> Callable[..., Tensor]:
    """Write the update of each sample into a cache from its start index on; mode "circular" goes on at the front."""
    circular, axis = node["mode"] == "circular", node["axis"]
    if node["mode"] not in ("linear", "circular"):
        raise ValueError(f"mode is {node['mode']!r}; expected linear or circular")

    def write(cache: Tensor, update: Tensor, begins: Tensor | None = None) -> Tensor:
        place = axis_of("TensorScatter", axis, cache)
        batch, room = cache.shape[0] if cache.ndim else 0, cache.shape[place]
        wanted = (*cache.shape[:place], *update.shape[place : place + 1], *cache.shape[place + 1 :])
        if place == 0 or update.shape != wanted or update.shape[place] > room:
            raise ValueError(
                f"past_cache has shape {cache.shape}, update {update.shape}, axis is {axis}; expected an axis other "
                "than 0, and shapes that are equal except along this axis, where update must not be longer"
            )
        first = np.zeros(batch, np.int64) if begins is None else begins.array
        if first.shape != (batch,):
            raise ValueError(f"write_indices has shape {first.shape}; expected ({batch},), one place for each sample")
        if first.size and (first.min() < 0 or (not circular and first.max() > room - update.shape[place])):
            raise ValueError(
                f"write_indices holds {first.min()} to {first.max()}; expected 0 to {room - update.shape[place]}"
            )
        # The distance of each place of the cache from the first written place; it is the place in the update.
        behind = np.arange(room) - first[:, None]
        behind = behind % max(1, room) if circular else behind
        written = (behind >= 0) & (behind < update.shape[place])
        shape = (batch, *(room if i == place else 1 for i in range(1, cache.ndim)))
        if not update.numel():
            return cache
        node.fits(cache.shape, np.int64)
        sources = np.broadcast_to(np.where(written, behind, 0).reshape(shape), cache.shape)
        return where(Tensor(written.reshape(shape)), update.gather(place, Tensor(sources)), cache)

    return write
