"""Convolutions of bfloat16. The terms are added in the order of tiles.py, so the bits are the same as those of the
CPU's kernels (docs/maths-narrow-types.md).

The depth of a matrix product is the axis over which the product sums. For y, the depth is (tap, input channel). For the
gradient of the input, the depth is (tap, output channel), with the taps that read this element of the input. Both
depths are in memory order. For the gradient of the weights, the depth is (image, pixel): several images form one depth,
and several depths form a chunk.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from minorm.kernels.reference.tiles import BLOCK, flushed, product

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
CHUNKS = 16  # the most chunks of images
LONG = 512  # the fewest results of a chunk
PARTIAL = 2 << 20  # the most numbers in all chunks


def images_together(results: int, images: int) -> int:
    """Return how many images are summed together in the gradient of the weights, so that they fill a block of terms."""
    return max(1, min(images, -(-BLOCK // max(1, results))))


def chunks_of(images: int, results: int, weights: int) -> int:
    """Return the number of chunks into which the sum for the gradient of the weights is divided.

    With many weights there are fewer chunks, since each chunk has a separate sum for every weight.
    """
    depths = -(-images // images_together(results, images))
    return max(1, min(CHUNKS, depths, images * results // LONG, PARTIAL // max(1, weights)))


def forward(padded: Any, w: Any, out: Ints, stride: Ints, dilation: Ints, groups: int) -> Any:
    """Return y (N, groups * O, *out), as sums in float32. `padded` is x with zeros around it."""
    taps = list(itertools.product(*map(range, w.shape[2:])))
    views = [_view(padded, _starts(tap, dilation), out, stride) for tap in taps]
    return _summed(views, w, taps, groups, False).reshape(len(padded), len(w), *out)


def grad_input(dy: Any, w: Any, x_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    """Return dx of shape `x_shape`, as sums in float32."""
    spread, before = _spread(dy, w.shape[2:], x_shape[2:], stride, padding, dilation)
    dx: Any = np.zeros(x_shape, np.float32)
    for start in itertools.product(*(range(min(s, n)) for s, n in zip(stride, x_shape[2:], strict=True))):
        taps = [
            tap
            for tap in itertools.product(*map(range, w.shape[2:]))
            if all(
                (i + low - t * d) % s == 0
                for i, (low, _), t, d, s in zip(start, padding, tap, dilation, stride, strict=True)
            )
        ]
        places = (..., *(slice(i, None, s) for i, s in zip(start, stride, strict=True)))
        size = dx[places].shape[2:]
        views = []
        for tap in taps:
            rows = zip(start, padding, tap, dilation, before, strict=True)
            views.append(_view(spread, tuple(b + i + low - t * d for i, (low, _), t, d, b in rows), size, stride))
        if views:
            dx[places] = _summed(views, w, taps, groups, True).reshape(*x_shape[:2], *size)
    return dx


def grad_weight(dy: Any, padded: Any, w_shape: Ints, stride: Ints, dilation: Ints, groups: int) -> Any:
    """Return dw of shape `w_shape`, as sums in float32."""
    images, out = len(dy), dy.shape[2:]
    taps = list(itertools.product(*map(range, w_shape[2:])))
    views = [_view(padded, _starts(tap, dilation), out, stride) for tap in taps]
    columns = np.stack([view.reshape(images, groups, w_shape[1], -1) for view in views], axis=-1)
    columns = columns.transpose(1, 0, 3, 2, 4).reshape(groups, images, math.prod(out), -1)
    rows = dy.reshape(images, groups, w_shape[0] // groups, -1).transpose(1, 2, 0, 3)
    together = images_together(math.prod(out), images)
    depths = -(-images // together)
    chunks = chunks_of(images, math.prod(out), math.prod(w_shape))
    total: Any = None
    for chunk in range(chunks):
        pieces = [
            slice(i * together, (i + 1) * together)
            for i in range(depths * chunk // chunks, depths * (chunk + 1) // chunks)
        ]
        sums = np.zeros((groups, w_shape[0] // groups, columns.shape[-1]), np.float32)
        for piece in pieces:
            left = rows[:, :, piece].reshape(*rows.shape[:2], -1)
            sums = product(left, columns[:, piece].reshape(groups, -1, columns.shape[-1]), sums)
        total = sums if total is None else flushed(total + sums)
    return total.reshape(w_shape)


def _starts(tap: Ints, dilation: Ints) -> Ints:
    return tuple(t * d for t, d in zip(tap, dilation, strict=True))


def _view(x: Any, starts: Ints, size: Ints, stride: Ints) -> Any:
    """Return a view of `size` elements along each axis, which begin at `starts` with a step of `stride`."""
    rows = zip(starts, size, stride, strict=True)
    return x[(..., *(slice(start, start + (n - 1) * s + 1, s) for start, n, s in rows))]


def _summed(views: list[Any], w: Any, taps: list[Ints], groups: int, transposed: bool) -> Any:
    """Return the sums over the taps and channels of `views` as (N, groups, results of a group, positions)."""
    channels = views[0].shape[1] // groups
    flat = np.stack([view.reshape(len(view), groups, channels, -1) for view in views], axis=2)  # N, G, taps, C, places
    left = flat.reshape(*flat.shape[:2], -1, flat.shape[-1]).swapaxes(2, 3)
    by_group = w.reshape(groups, -1, *w.shape[1:])
    some = np.stack([by_group[(..., *tap)] for tap in taps], axis=1)  # G, taps, O, I
    some = some if transposed else some.swapaxes(2, 3)
    return product(left, some.reshape(groups, -1, some.shape[-1])).swapaxes(2, 3)


def _spread(dy: Any, kernel: Ints, x_size: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> tuple[Any, Ints]:
    """Return dy with its elements `stride` apart, and the number of zeros before the first element. There are also
    zeros between and after the elements.
    """
    before = tuple(d * (k - 1) for k, d in zip(kernel, dilation, strict=True))
    rows = zip(dy.shape[2:], x_size, stride, padding, before, strict=True)
    size = tuple(b + max((n - 1) * s + 1, low + x) for n, x, s, (low, _), b in rows)
    spread: Any = np.zeros((*dy.shape[:2], *size), dy.dtype)
    _view(spread, before, dy.shape[2:], stride)[...] = dy
    return spread, before
