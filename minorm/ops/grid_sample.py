"""GridSample: reads images or volumes at positions between their elements.

Along each axis, a position p reads a few elements (taps), each with a weight. With "nearest" there is one tap, the
nearest element. With "bilinear" the taps are the two neighbours of p, with weights 1 - t and t, where t = p - floor(p).
With "bicubic" there are four taps, with the weights of a cubic. A result is a sum over all combinations of one tap for
each axis: the product of the taps' weights, times the element of x there. The gradient of p is computed from the slopes
of the weights.
"""

from __future__ import annotations

import itertools
from math import factorial, prod
from typing import Any

import numpy as np

from minorm.devices import constant_of, dtypes
from minorm.graph.expressions import passing
from minorm.graph.graph import Function
from minorm.graph.recorded import expressed
from minorm.kernels.select import backend
from minorm.ops.indexing import Take

A = -0.75  # the parameter of the cubic, as in PyTorch and ONNX


class GridSample(Function):
    """y[n, c, q] = x[n, c] at the position grid[n, q], where -1 and 1 are the ends of x. The last number of grid[n, q]
    is the position along x's first spatial axis.

    mode is "bilinear", "nearest" or "bicubic", for images and for volumes. Beyond its ends, x continues with 0
    ("zeros"), with the nearest element ("border"), or mirrored ("reflection"). With align_corners=True, -1 and 1 are
    the centres of the elements at the ends; otherwise they are the outer edges of these elements.
    """

    def forward(self, x, grid, *, mode, padding_mode, align_corners):
        self.x, self.grid = x, grid
        self.options = mode, padding_mode, align_corners
        self.wide = dtypes.compute_type(x.dtype)
        rows = self._rows(x)
        y = sum(rows[places] * prod(weights)[:, None] for places, weights, _ in self._taps())
        shape = (len(x), *grid.shape[1:-1], x.shape[1])
        return np.moveaxis(y.reshape(shape), -1, 1).astype(x.dtype).copy("C")

    def backward(self, dy):
        x, rows, rows_dy = self.x, self._rows(self.x), self._rows(dy)
        dx = dgrid = None
        slopes = [0] * (x.ndim - 2)
        for places, weights, changes in self._taps():
            if self.needs[0]:
                part = backend(dy).indexing.add_at(rows_dy * prod(weights)[:, None], places, rows.shape)
                dx = part if dx is None else dx + part
            if self.needs[1]:
                there = (rows[places] * rows_dy).sum(1)
                for k, change in enumerate(changes):
                    slopes[k] = slopes[k] + there * change * prod(w for i, w in enumerate(weights) if i != k)
        if dx is not None:
            shape = (len(x), *x.shape[2:], x.shape[1])
            dx = np.moveaxis(dx.reshape(shape), -1, 1).astype(x.dtype).copy("C")
        if self.needs[1]:
            dgrid = np.stack(slopes[::-1], -1).reshape(self.grid.shape).astype(self.grid.dtype)
        return dx, dgrid

    def gradient(self, dy):
        inputs = [self.input(0, self.x, dy), self.input(1, self.grid, dy)]
        return expressed(self.expression, inputs, [dy])

    def expression(self, x, grid):
        """Compute the forward pass with Tensors."""
        positions = [passing(g, np.isfinite(g.array)) for g in self._positions(grid.to(self.wide))]
        moved = [g - g.detach() for g in positions]
        axes = [_along(g.array, n, *self.options, bends=True) for g, n in zip(positions, x.shape[2:], strict=True)]
        weights = [{id(tap): self._weight(tap, by) for tap in taps} for taps, by in zip(axes, moved, strict=True)]
        rows = x.to(self.wide).movedim(1, -1).reshape(prod((len(x), *x.shape[2:])), x.shape[1])
        y: Any = 0
        for places, combination in self._combined(axes):
            share = prod(of_axis[id(tap)] for of_axis, tap in zip(weights, combination, strict=True))
            y = y + Take.apply(rows, index=places) * share.unsqueeze(1)
        return y.reshape(len(x), *grid.shape[1:-1], x.shape[1]).movedim(-1, 1).to(x.dtype)

    def _rows(self, a):
        """Return a (batch, channels, ...) as (batch * positions, channels)."""
        return np.moveaxis(a.astype(self.wide, copy=False), 1, -1).reshape(prod((len(a), *a.shape[2:])), a.shape[1])

    def _taps(self):
        """Yield, for each combination of taps, the rows of x, and the weights and their slopes along each axis."""
        positions = self._positions(self.grid.astype(dtypes.compute_type(self.grid.dtype), copy=False))
        axes = [_along(g, n, *self.options) for g, n in zip(positions, self.x.shape[2:], strict=True)]
        for places, combination in self._combined(axes):
            yield (
                places,
                [w.astype(self.wide) for _, w, *_ in combination],
                [c.astype(self.wide) for _, _, c, *_ in combination],
            )

    def _positions(self, grid):
        """Return, for each axis of x, a vector of the positions of all samples, as an array or a Tensor."""
        axes = self.x.ndim - 2
        return [grid[..., axes - 1 - k].reshape(-1) for k in range(axes)]

    def _combined(self, axes):
        """Yield each combination of taps, and the rows of x that it reads."""
        lengths = self.x.shape[2:]
        first = constant_of(np.arange(len(self.x)).repeat(prod(self.grid.shape[1:-1])), self.x)
        for combination in itertools.product(*axes):
            places = first
            for n, (place, *_) in zip(lengths, combination, strict=True):
                places = places * n + place
            yield places, combination

    def _weight(self, tap, moved):
        """Return the weight of a tap as a Tensor. The weight is a finite Taylor series in `moved`, which is 0 but
        passes the gradient to the position.
        """
        _, weight, *slopes = tap
        total = 0
        for order in range(len(slopes), 0, -1):
            total = moved * (total + moved.from_array((slopes[order - 1] / factorial(order)).astype(self.wide)))
        return total + moved.from_array(weight.astype(self.wide))


def _along(g, n, mode, padding_mode, align_corners, bends=False):
    """Return the taps along an axis of n elements. A tap is (index of the element, weight, slope of the weight).

    With bends=True, the higher derivatives of a cubic's weight are appended to each tap.
    """
    position = (g + 1) / 2 * (n - 1) if align_corners else ((g + 1) * n - 1) / 2
    slope = np.full_like(g, (n - 1) / 2 if align_corners else n / 2)
    position = np.where(np.isfinite(position), position, -100).astype(g.dtype)
    if padding_mode == "reflection" and mode != "bicubic":
        position, sign = reflected(position, n, align_corners)
        slope = slope * sign
    if padding_mode != "zeros" and mode != "bicubic":
        slope = slope * ((position > 0) & (position < n - 1))
        position = np.clip(position, 0, n - 1)
    elif padding_mode != "reflection":
        position = np.clip(position, -4, n + 3)  # further out, the result is the same
    if mode == "nearest":
        found = [(np.rint(position), np.ones_like(g), np.zeros_like(g))]
    else:
        low = np.floor(position)
        t = position - low
        if mode == "bilinear":
            found = [(low, 1 - t, -slope), (low + 1, t, slope)]
        else:
            found = [
                (low + i, *_cubic(i, t, slope), *(_cubic_bends(i, t, slope) if bends else ())) for i in (-1, 0, 1, 2)
            ]
    return [_inside(tap, n, padding_mode, align_corners) for tap in found]


def _inside(tap, n, padding_mode, align_corners):
    """Return the tap with an index inside the n elements. With "zeros", a tap that was outside gets weight 0."""
    place, *weights = tap
    if padding_mode == "reflection":
        place, _ = reflected(place, n, align_corners)
    elif padding_mode == "zeros":
        there = (place >= 0) & (place < n)
        weights = [weight * there for weight in weights]
    return np.clip(place, 0, n - 1).astype(np.int64), *weights


def _cubic(i, t, slope):
    """Return the weight of element i at distance d = |t - i|, and the slope of this weight (Keys 1981, with a = A)."""
    d = abs(t - i)
    sign = np.where(t - i < 0, -1, 1).astype(t.dtype)
    if i in (0, 1):
        return ((A + 2) * d - (A + 3)) * d * d + 1, (3 * (A + 2) * d - 2 * (A + 3)) * d * sign * slope
    return ((A * d - 5 * A) * d + 8 * A) * d - 4 * A, ((3 * A * d - 10 * A) * d + 8 * A) * sign * slope


def _cubic_bends(i, t, slope):
    """Return the second and the third derivative of the weight that `_cubic` returns."""
    d = abs(t - i)
    sign = np.where(t - i < 0, -1, 1).astype(t.dtype)
    if i in (0, 1):
        return (6 * (A + 2) * d - 2 * (A + 3)) * slope**2, 6 * (A + 2) * sign * slope**3
    return (6 * A * d - 10 * A) * slope**2, 6 * A * sign * slope**3


def reflected(position, n, align_corners):
    """Return the position, mirrored at the ends of n elements until it is inside, and the slope of this map. The slope
    is -1 if the position was mirrored an odd number of times, else 1.

    With align_corners=True, the ends are the centres of the outer elements, otherwise the outer edges of these
    elements.
    """
    low, span = (0, n - 1) if align_corners else (-0.5, n)
    if span == 0:
        return np.zeros_like(position), np.zeros_like(position)
    distance = abs(position - low)
    turns = np.floor(distance / span)
    rest = distance - turns * span
    odd = turns % 2 == 1
    sign = np.where(odd, -1, 1) * np.where(position < low, -1, 1)
    return (np.where(odd, span - rest, rest) + low).astype(position.dtype), sign.astype(position.dtype)
