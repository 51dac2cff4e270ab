"""Operations that move elements without changing them. The gradient moves in the opposite direction."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from minorm.devices import constant_of
from minorm.graph.expressions import LinearMap, summed_to
from minorm.graph.graph import Function
from minorm.kernels.select import backend, overlap
from minorm.ops.elementwise import sum_to


class Reshape(Function):
    """The same elements, in row-major order, in another shape. The result is a copy if no strides give that shape."""

    view = True

    def forward(self, x: Any, *, shape: tuple[int, ...]) -> Any:
        self.shape = x.shape
        y = backend(x).copying.reshaped(x, shape)
        if not x.flags.c_contiguous:
            self.view = overlap(x, y)
        return y

    def backward(self, dy: Any) -> Any:
        return backend(dy).copying.reshaped(dy, self.shape)

    def gradient(self, dy: Any) -> Any:
        return Reshape.apply(dy, shape=self.shape)


class Permute(Function):
    """Puts the axes into another order: axis i of the result is axis order[i] of the input."""

    view = True

    def forward(self, x: Any, *, order: tuple[int, ...]) -> Any:
        self.order = order
        return x.transpose(order)

    def backward(self, dy: Any) -> Any:
        return dy.transpose([int(i) for i in np.argsort(self.order)])

    def gradient(self, dy: Any) -> Any:
        return Permute.apply(dy, order=tuple([int(i) for i in np.argsort(self.order)]))


class Expand(Function):
    """Repeats axes of length 1, and adds leading axes, without a copy."""

    view = True

    def forward(self, x: Any, *, shape: tuple[int, ...]) -> Any:
        self.shape = x.shape
        return np.broadcast_to(x, shape)

    def backward(self, dy: Any) -> Any:
        return sum_to(dy, self.shape)

    def gradient(self, dy: Any) -> Any:
        return summed_to(dy, self.shape)


class Flip(Function):
    """Reverses the elements along `axes`."""

    def forward(self, x: Any, *, axes: tuple[int, ...]) -> Any:
        self.axes = axes
        return backend(x).copying.copy(np.flip(x, axes))

    def backward(self, dy: Any) -> Any:
        return np.flip(dy, self.axes)

    def gradient(self, dy: Any) -> Any:
        return Flip.apply(dy, axes=self.axes)


class Cat(Function):
    """Joins several arrays along an existing axis."""

    def forward(self, *arrays: Any, axis: int) -> Any:
        self.axis, self.lengths = axis, [a.shape[axis] for a in arrays]
        return backend(arrays[0]).copying.concatenate(arrays, axis)

    def backward(self, dy: Any) -> Any:
        return tuple(np.split(dy, list(itertools.accumulate(self.lengths))[:-1], self.axis))

    def gradient(self, dy: Any) -> Any:
        ends = list(itertools.accumulate(self.lengths))
        before = (slice(None),) * self.axis
        return tuple([dy[(*before, slice(end - n, end))] for n, end in zip(self.lengths, ends, strict=True)])


def stacked(tensors: Sequence[Any], axis: int) -> Any:
    """Join Tensors of one shape along a new axis."""
    return Cat.apply(*[x.unsqueeze(axis) for x in tensors], axis=axis)


class Unbind(Function):
    """The slices of a copy of x along `axis`. The gradients of all slices share one array, while x[i] needs a separate
    array for the gradient of each i.
    """

    def forward(self, x: Any, *, axis: int) -> Any:
        self.shape, self.axis = x.shape, axis
        rows = np.moveaxis(x, axis, 0).copy()
        return tuple(rows[i, ...] for i in range(len(rows)))

    def backward(self, *slices: Any) -> Any:
        dx = np.zeros_like(next(dy for dy in slices if dy is not None), shape=self.shape)
        rows = np.moveaxis(dx, self.axis, 0)
        for i, dy in enumerate(slices):
            if dy is not None:
                rows[i] = dy
        return dx

    def gradient(self, *slices: Any) -> Any:
        like = next(dy for dy in slices if dy is not None)
        zero = like.from_array(np.zeros_like(like.array))
        return stacked([zero if dy is None else dy for dy in slices], self.axis)


class Pad(Function):
    """Adds `widths[i] = (before, after)` elements of `value` around axis i; a negative width cuts elements away."""

    def forward(self, x: Any, *, widths: tuple[tuple[int, int], ...], value: float) -> Any:
        self.shape, self.widths = x.shape, widths
        cut = x[tuple(slice(max(0, -lo), n - max(0, -hi)) for n, (lo, hi) in zip(x.shape, widths, strict=True))]
        grown = [(max(0, lo), max(0, hi)) for lo, hi in widths]
        if not any(map(any, grown)):
            return backend(x).copying.copy(cut)
        return backend(x).copying.pad(cut, grown, value)

    def backward(self, dy: Any) -> Any:
        sides = list(zip(dy.shape, self.widths, strict=True))
        inner = dy[tuple(slice(max(0, lo), n - max(0, hi)) for n, (lo, hi) in sides)]
        cut = [(max(0, -lo), max(0, -hi)) for lo, hi in self.widths]
        return backend(dy).copying.pad(inner, cut, 0) if any(map(any, cut)) else inner

    def gradient(self, dy: Any) -> Any:
        return Pad.apply(dy, widths=tuple([(-lo, -hi) for lo, hi in self.widths]), value=0)


class Repeat(Function):
    """Repeats the whole array `counts[i]` times along axis i."""

    def forward(self, x: Any, *, counts: tuple[int, ...]) -> Any:
        self.shape = (1,) * (len(counts) - x.ndim) + x.shape
        self.original, self.counts = x.shape, counts
        if 0 in counts:  # np.tile would repeat the other axes first
            return np.empty_like(x, shape=[m * n for m, n in zip(counts, self.shape, strict=True)])
        return np.tile(x, counts)

    def backward(self, dy: Any) -> Any:
        pairs = [m for pair in zip(self.counts, self.shape, strict=True) for m in pair]
        return dy.reshape(pairs).sum(axis=tuple(range(0, len(pairs), 2))).astype(dy.dtype).reshape(self.original)

    def gradient(self, dy: Any) -> Any:
        pairs = [m for pair in zip(self.counts, self.shape, strict=True) for m in pair]
        return dy.reshape(pairs).sum(tuple(range(0, len(pairs), 2))).reshape(self.original)


class Diagonal(Function):
    """y[i, j] = x[i, j, i] for the letters "iji". The result has one axis for each letter, in the order in which the
    letters first occur.
    """

    def forward(self, x, *, letters):
        lengths = dict(zip(letters, x.shape, strict=True))
        axes = np.indices(tuple(lengths.values()), sparse=True)
        counting = dict(zip(lengths, (constant_of(axis, x) for axis in axes), strict=True))
        self.shape, self.places = x.shape, tuple(counting[letter] for letter in letters)
        return x[self.places]

    def backward(self, dy):
        dx = np.zeros_like(dy, shape=self.shape)
        dx[self.places] = dy
        return dx

    def gradient(self, dy):
        return LinearMap.apply(dy, of=self, there=self.backward, back=lambda dx: dx[self.places])


class MatrixDiagonal(Function):
    """y[..., i] = x[..., i, i + offset], or for a negative offset x[..., i - offset, i]. The result is a view."""

    view = True

    def forward(self, x, *, offset):
        self.shape, self.offset = x.shape, offset
        y = np.diagonal(x, offset, -2, -1)
        if type(y) is np.ndarray:  # NumPy's view is read-only
            y.flags.writeable = x.flags.writeable
        return y

    def backward(self, dy):
        dx = np.zeros_like(dy, shape=self.shape)
        MatrixDiagonal().forward(dx, offset=self.offset)[...] = dy
        return dx

    def gradient(self, dy):
        return LinearMap.apply(
            dy, of=self, there=self.backward, back=lambda dx: np.diagonal(dx, self.offset, -2, -1).copy()
        )
