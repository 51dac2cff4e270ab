"""DeformConv: a convolution in which `offset` moves the taps to points between the pixels.

    y = b + sum over taps k of w[k] mask[k] x(p + k + offset[k]), x bilinear, and 0 outside

The gradient flows to x, w, b and mask, and also to offset, through the weights of the neighbouring pixels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads
from minorm.onnx.operators.nn.convolution import windows
from minorm.onnx.operators.traced_as_one_call import whole
from minorm.tensor.tensor import Tensor


@reads("DeformConv", since=19)
def read_deform_conv(node: Node) -> Callable[..., Tensor]:
    groups, parts = node["group"], node["offset_group"]

    def conv(x: Tensor, w: Tensor, offset: Tensor, b: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        rank, kernel = x.ndim - 2, w.shape[2:]
        if rank < 1 or w.ndim != x.ndim or parts < 1 or x.shape[1] % parts or x.shape[1] != w.shape[1] * groups:
            raise ValueError(
                f"X has shape {x.shape}, W {w.shape}, group is {groups}, offset_group {parts}; expected (N, C, ...), "
                "(M, C / group, ...), and C a multiple of offset_group"
            )
        strides, dilations = windows(node, rank, kernel)
        pads = node["pads"] or [0] * (2 * rank)
        if len(pads) != 2 * rank or w.shape[0] % groups:
            raise ValueError(
                f"pads is {pads}, group is {groups}, W has shape {w.shape}; expected two pads per axis, and a group "
                "that divides W.shape[0]"
            )
        spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
        padded = [n + low + high for n, low, high in zip(x.shape[2:], pads[:rank], pads[rank:], strict=True)]
        size = [(n - span) // s + 1 for n, span, s in zip(padded, spans, strides, strict=True)]
        taps, batch = math.prod(kernel), x.shape[0]
        expected = (batch, parts * taps * rank, *size), (batch, parts * taps, *size)
        if min(size) < 0 or offset.shape != expected[0] or (mask is not None and mask.shape != expected[1]):
            raise ValueError(
                f"offset has shape {offset.shape}, mask {None if mask is None else mask.shape}; expected {expected[0]} "
                f"and {expected[1]}"
            )
        places = math.prod(size)
        node.fits((2**rank + 1, batch, x.shape[1], taps, places), x.dtype)
        node.check_work(batch * w.numel(), places)
        moved = offset.reshape(batch, parts, taps, rank, places)
        fixed = _grid(size, strides, pads, kernel, dilations)
        columns = _sampled(x, [moved[:, :, :, i] + Tensor(fixed[i].astype(x.dtype)) for i in range(rank)], parts)
        if mask is not None:
            columns = columns * mask.reshape(batch, parts, 1, taps, places)
        columns = columns.reshape(batch, groups, w.shape[1] * taps, places)
        y = (w.reshape(groups, w.shape[0] // groups, w.shape[1] * taps) @ columns).reshape(batch, w.shape[0], *size)
        return y if b is None else y + b.reshape(-1, *(1,) * rank)

    return whole(node, conv)


def _grid(
    size: Sequence[int], strides: Sequence[int], pads: Sequence[int], kernel: Sequence[int], dilations: Sequence[int]
) -> list[np.ndarray]:
    """Return the positions of the taps before `offset` moves the taps: an array (taps, places) for each axis."""
    rank = len(size)
    found = []
    for axis in range(rank):
        begins = np.arange(size[axis]) * strides[axis] - pads[axis]
        steps = np.arange(kernel[axis]) * dilations[axis]
        along = begins.reshape([-1 if i == axis else 1 for i in range(rank)])
        tap = steps.reshape([-1 if i == axis else 1 for i in range(rank)])
        places = np.broadcast_to(along, size).reshape(-1)
        found.append(np.broadcast_to(tap, kernel).reshape(-1, 1) + places)
    return found


def _sampled(x: Tensor, positions: Sequence[Tensor], parts: int) -> Tensor:
    """Sample x between pixels; each part of the channels has its own positions.

    The result has the shape (batch, parts, channels, taps, places).
    """
    batch, channels, *lengths = x.shape
    flat = x.reshape(batch, parts, channels // parts, math.prod(lengths))
    lows = [np.floor(p.array).astype(np.int64) for p in positions]
    rests = [p - Tensor(low.astype(x.dtype)) for p, low in zip(positions, lows, strict=True)]
    index = (np.arange(batch).reshape(-1, 1, 1, 1), np.arange(parts).reshape(-1, 1, 1))
    total: Tensor | None = None
    for corner in itertools.product((0, 1), repeat=len(lengths)):
        place, inside = np.zeros_like(lows[0]), np.ones(lows[0].shape, np.bool_)
        weight: Tensor | None = None
        for low, rest, step, n in zip(lows, rests, corner, lengths, strict=True):
            at = low + step
            inside &= (at >= 0) & (at < n)
            place = place * n + np.clip(at, 0, max(0, n - 1))
            share = rest if step else 1 - rest
            weight = share if weight is None else weight * share
        assert weight is not None
        # (batch, parts, taps, places, channels): arrays in the index put the axes that they share in front.
        values = flat[(*index, slice(None), place)].movedim(-1, 2)
        part = values * (weight * Tensor(inside.astype(x.dtype))).unsqueeze(2)
        total = part if total is None else total + part
    assert total is not None
    return total
