"""Sums, means, products and extremes over axes. The result loses the reduced axes, or with keepdims has length 1 there.

Floats are summed in float64, and the sum is rounded once. NumPy would sum 10,000 ones of bfloat16 to 256.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph import expressions
from minorm.graph.expressions import LinearMap, passing
from minorm.graph.graph import Function
from minorm.kernels.order import in_order_along
from minorm.kernels.select import backend, contiguous
from minorm.ops.shape import Cat, Flip


def spread(reduced: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    """Return a view of a reduced array in the full `shape`. Along `axes` the view repeats the values."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return np.broadcast_to(reduced.reshape(kept), shape)


def maximum_of(x: Any, axes: tuple[int, ...], nothing: float) -> Any:
    """Return the largest element over `axes`, which keep length 1. If there are no elements, return `nothing`."""
    if all(x.shape[axis] for axis in axes):
        return np.max(x, axis=axes, keepdims=True)
    return np.full_like(x, nothing, shape=tuple(1 if i in axes else n for i, n in enumerate(x.shape)))


SHORT = 16  # NumPy needs as much time for such short rows as for long ones


def of_short_rows(larger: Any, x: Any) -> Any:
    """Reduce the last axis, which is short, element by element. `larger` is np.maximum or np.minimum."""
    y = x[..., :1].copy()
    for i in range(1, x.shape[-1]):
        larger(y, x[..., i : i + 1], out=y)
    return y


class Sum(Function):
    """The sum over `axes`.

    Bools and integers, even unsigned ones, give int64, since a difference of two sums may be below 0.
    """

    def forward(self, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        self.shape, self.axes = x.shape, axes
        total = backend(x).sums.sum_axes(x, axes, keepdims)
        return total if dtypes.is_float(x.dtype) else total.astype(np.int64, copy=False)

    def backward(self, dy: Any) -> Any:
        return spread(dy, self.shape, self.axes)

    def gradient(self, dy: Any) -> Any:
        return expressions.spread(dy, self.shape, self.axes)


class Mean(Function):
    """The mean over `axes`, or NaN if there are no elements."""

    def forward(self, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        self.shape, self.axes = x.shape, axes
        return backend(x).sums.mean_axes(x, axes, keepdims)

    def backward(self, dy: Any) -> Any:
        count = math.prod(self.shape[axis] for axis in self.axes)
        return spread(backend(dy).elementwise.over(dy, max(1, count)), self.shape, self.axes)

    def gradient(self, dy: Any) -> Any:
        count = math.prod(self.shape[axis] for axis in self.axes)
        return expressions.spread(dy / max(1, count), self.shape, self.axes)


class Max(Function):
    """The largest element over `axes`, or NaN if an element is NaN. Equal largest elements share the gradient, as in
    PyTorch's amax.

    If the result is NaN, all gradients are NaN, since the largest element is unknown.
    """

    extreme: Any = staticmethod(np.max)
    larger: Any = np.maximum

    def forward(self, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        self.x, self.axes = x, axes
        if not x.size:
            self.y = np.empty_like(x, shape=[1 if i in axes else n for i, n in enumerate(x.shape)])
        elif type(x) is np.ndarray and axes == (x.ndim - 1,) and x.shape[-1] <= SHORT:
            self.y = of_short_rows(self.larger, x)
        else:
            self.y = self.extreme(x, axis=axes, keepdims=True)
        if keepdims:
            return self.y
        return self.y.reshape(
            [n for i, n in enumerate(x.shape) if i not in axes]
        ).copy()  # a change of a view would not be noticed

    def hits(self) -> Any:
        """Return True for each element that equals the extreme."""
        return self.x == self.y

    def backward(self, dy: Any) -> Any:
        hit = self.hits()
        count = hit.sum(axis=self.axes, keepdims=True)
        with np.errstate(invalid="ignore"):  # 0 / 0 without a hit
            share = np.where(hit, spread(dy, self.x.shape, self.axes), dy.dtype.type(0)) / count
        return share.astype(dy.dtype, copy=False)

    def gradient(self, dy: Any) -> Any:
        def gathered(dx: Any) -> Any:
            share = self.backward(np.ones_like(self.y, dx.dtype))
            return backend(dx).sums.sum_axes(dx * share, self.axes, True).reshape(dy.shape)

        return LinearMap.apply(dy, of=self, there=self.backward, back=gathered)


class Min(Max):
    """The smallest element over `axes`. Equal smallest elements share the gradient."""

    extreme = staticmethod(np.min)
    larger = np.minimum


class MaxOfAll(Max):
    """The largest of all elements, or NaN if an element is NaN. In this case the NaN elements share the gradient, as in
    PyTorch's max of a whole tensor.
    """

    def hits(self) -> Any:
        return (self.x == self.y) | ((self.x != self.x) & (self.y != self.y))


class MinOfAll(MaxOfAll):
    """The smallest of all elements, or NaN if an element is NaN."""

    extreme = staticmethod(np.min)
    larger = np.minimum


class Prod(Function):
    """The product over `axes`. The slope for an element is the product of all others, even if one of these is 0."""

    def forward(self, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        self.x, self.axes = x, axes
        product = np.prod(x, axis=axes, keepdims=keepdims, dtype=dtypes.compute_type(x.dtype))
        return product.astype(x.dtype, copy=False)

    def backward(self, dy: Any) -> Any:
        x, axes = self.x, self.axes
        kept = [i for i in range(x.ndim) if i not in axes]
        moved = x.transpose(*kept, *axes).astype(dtypes.compute_type(x.dtype))
        rows = moved.reshape(*[x.shape[i] for i in kept], math.prod(x.shape[i] for i in axes))
        one = np.ones_like(rows, shape=(*rows.shape[:-1], min(1, rows.shape[-1])))
        before = np.cumprod(np.concatenate([one, rows[..., :-1]], -1), -1)
        after = np.cumprod(np.concatenate([one, rows[..., :0:-1]], -1), -1)[..., ::-1]
        others = (before * after).reshape(moved.shape).transpose(np.argsort([*kept, *axes]).tolist())
        return (spread(dy, x.shape, axes) * others).astype(dy.dtype, copy=False)

    def gradient(self, dy: Any) -> Any:
        x, axes = self.input(0, self.x, dy), self.axes
        kept = [i for i in range(x.ndim) if i not in axes]
        moved = x.permute(*kept, *axes)
        rows = moved.reshape(*[x.shape[i] for i in kept], math.prod(x.shape[i] for i in axes))
        others = products_of_others(rows).reshape(moved.shape).permute(*np.argsort([*kept, *axes]).tolist())
        return expressions.spread(dy, x.shape, axes) * others


def products_before(rows: Any) -> Any:
    """Return, for each element along the last axis of a Tensor, the product of the elements before it."""
    ones = rows.from_array(np.ones_like(rows.array[..., :1]))
    last = rows.ndim - 1
    return CumProd.apply(Cat.apply(ones, rows[..., :-1], axis=last), axis=last)


def products_of_others(rows: Any) -> Any:
    """Return, for each element along the last axis of a Tensor, the product of all others, without a division."""
    if rows.shape[-1] == 0:
        return rows
    last = (rows.ndim - 1,)
    after = Flip.apply(products_before(Flip.apply(rows, axes=last)), axes=last)
    return products_before(rows) * after


class LogSumExp(Function):
    """The logarithm of the sum of e^x over `axes`. It is computed from x - max(x), so that nothing overflows."""

    def forward(self, x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        self.x, self.axes = x, axes
        wide = x.astype(dtypes.compute_type(x.dtype), copy=False)
        largest = maximum_of(wide, axes, -np.inf)
        largest = np.where(np.isfinite(largest), largest, 0)
        maps = backend(x).elementwise
        self.y = maps.log(maps.exp(wide - largest).sum(axis=axes, keepdims=True)) + largest
        y = self.y if keepdims else self.y.reshape([n for i, n in enumerate(x.shape) if i not in axes])
        return y.astype(x.dtype)  # a copy, since later changes of a view would not be noticed

    def backward(self, dy: Any) -> Any:
        slope = backend(dy).elementwise.exp(self.x - np.where(np.isfinite(self.y), self.y, 0))
        return (spread(dy, self.x.shape, self.axes) * slope).astype(dy.dtype, copy=False)

    def gradient(self, dy: Any) -> Any:
        x, shape = self.input(0, self.x, dy), self.x.shape
        y = self.output(self.y.reshape(dy.shape).astype(dy.dtype), dy)
        y = passing(y, np.isfinite(y.array))
        return expressions.spread(dy, shape, self.axes) * (x - expressions.spread(y, shape, self.axes)).exp()


class ArgMax(Function):
    """The int64 index of the first largest element along `axis`. If axis is None, x is flattened first."""

    differentiable = False
    search: Any = staticmethod(np.argmax)

    def forward(self, x: Any, *, axis: int | None, keepdims: bool) -> Any:
        if x.size:
            return self.search(x, axis=axis, keepdims=keepdims)
        kept = [1 if i == axis else n for i, n in enumerate(x.shape) if keepdims or i != axis]
        return np.empty_like(x, np.int64, shape=kept)  # empty, but not reduced over an empty axis


class ArgMin(ArgMax):
    """The int64 index of the first smallest element along `axis`. If axis is None, x is flattened first."""

    search = staticmethod(np.argmin)


class TopPlaces(Function):
    """The int64 indices of the `count` largest or smallest elements along `axis`, the most extreme first. Equal
    elements keep their order.
    """

    differentiable = False

    def forward(self, x: Any, *, count: int, axis: int, largest: bool) -> Any:
        x = x.astype(dtypes.compute_type(x.dtype), copy=False)  # CuPy does not sort bfloat16
        if largest:  # sort the reversed axis and read it backwards, so that equal elements keep their order
            order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
        else:
            order = np.argsort(x, axis, kind="stable")
        return contiguous(order[(*(slice(None),) * axis, slice(count))])


class CumSum(Function):
    """Running sums along `axis`. exclusive=True leaves out the element itself, and reverse=True starts at the end."""

    def forward(self, x: Any, *, axis: int, exclusive: bool, reverse: bool) -> Any:
        self.how = axis, exclusive, reverse
        return running_sum(x, axis, exclusive, reverse)

    def backward(self, dy: Any) -> Any:
        axis, exclusive, reverse = self.how
        return running_sum(dy, axis, exclusive, not reverse)

    def gradient(self, dy: Any) -> Any:
        axis, exclusive, reverse = self.how
        return CumSum.apply(dy, axis=axis, exclusive=exclusive, reverse=not reverse)


def running_sum(x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    """Return running sums in x's memory order. 16-bit floats are summed in float32."""
    return in_order_along(axis, lambda x, axis: _running_sum(x, axis, exclusive, reverse), x)


def _running_sum(x: Any, axis: int, exclusive: bool, reverse: bool) -> Any:
    wide = np.flip(x, axis) if reverse else x
    total = np.cumsum(wide, axis, dtype=dtypes.compute_type(x.dtype))
    if exclusive:
        moved = np.zeros_like(total)
        before = (slice(None),) * axis
        moved[(*before, slice(1, None))] = total[(*before, slice(0, -1))]
        total = moved
    return contiguous((np.flip(total, axis) if reverse else total).astype(x.dtype, copy=False))


class CumProd(Function):
    """Running products along `axis`.

    dx[i] = (x[0] ... x[i-1]) * s[i], where s[i] = dy[i] + x[i+1] * s[i+1]. There is no division, so x may contain
    zeros.
    """

    def forward(self, x: Any, *, axis: int) -> Any:
        self.x, self.axis = x, axis
        wide = dtypes.compute_type(x.dtype)
        return in_order_along(axis, lambda x, axis: np.cumprod(x, axis, dtype=wide).astype(x.dtype, copy=False), x)

    def backward(self, dy: Any) -> Any:
        return in_order_along(self.axis, self.of_factors, dy, self.x)

    @staticmethod
    def of_factors(dy: Any, x: Any, axis: int) -> Any:
        wide = dtypes.compute_type(dy.dtype)
        x, sums = (np.moveaxis(a.astype(wide), axis, 0) for a in (x, dy))
        for i in range(len(x) - 2, -1, -1):
            sums[i] += x[i + 1] * sums[i + 1]
        before = np.cumprod(np.concatenate([np.ones_like(x[:1]), x[:-1]]), 0)
        return contiguous(np.moveaxis(before * sums, 0, axis).astype(dy.dtype, copy=False))

    def gradient(self, dy: Any) -> Any:
        axis, count = self.axis, dy.shape[self.axis]
        if count < 2:
            return dy
        x, given = (a.movedim(axis, -1) for a in (self.input(0, self.x, dy), dy))
        sums = [given[..., count - 1 :]]
        for i in range(count - 2, -1, -1):
            sums.append(given[..., i : i + 1] + x[..., i + 1 : i + 2] * sums[-1])
        return (products_before(x) * Cat.apply(*sums[::-1], axis=x.ndim - 1)).movedim(-1, axis)
