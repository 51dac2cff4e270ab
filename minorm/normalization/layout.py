"""Converts an array and its parameters to the form that the kernels need: four loops and no gaps.

Usually no conversion is necessary: the array is gapless in some order of its axes, `nest.plan` finds four loops, and
the parameters have the order in memory that the nest expects. This file handles the other cases:

- An array with gaps, negative steps or unaligned elements is copied.
- Parameters of two or more axes are transposed if the data's axes have another order in memory. Parameters are small.
- Some nests do not fit (rank 5 and more, odd broadcasts). Then the data is copied with its kept axes first, as a matrix
  (kept, reduced), and the parameters are broadcast to one number for each element. The nest of this matrix always fits.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from minorm.kernels.order import is_in_rows
from minorm.kernels.select import backend
from minorm.normalization.nest import Nest, is_dense, plan

Array = Any
ndarray = np.ndarray


def is_plain(x: Array) -> bool:
    """Return True if x is row-major without gaps and aligned, so that kernels can read it."""
    if type(x) is not ndarray:
        return is_in_rows(x)  # CuPy's arrays are always aligned
    flags = x.flags
    return flags.c_contiguous and flags.aligned


class Layout:
    """Converts data, parameters and statistics to the kernels' order, and back, for a nest that the kernels can run."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        self.origin = nest  # the nest of the data before any copy; differs from `nest` in a CopiedLayout
        shape = tuple(axis.count for axis in nest.axes if axis.varies)
        order = nest.param_order  # usually None
        self.param_shape = shape
        self.param_order = order
        self.param_back = None if order is None else tuple(order.index(i) for i in range(len(order)))
        self.shape_in_order = shape if order is None else tuple(shape[i] for i in order)
        self.kept_shape = nest.kept_shape
        self.in_order = nest.kept_order == tuple(range(len(self.kept_shape)))

    def data(self, x: Array) -> Array:
        """Return the data x in the form that the kernels need."""
        return x

    def result(self, y: Array, like: Array) -> Array:  # noqa: ARG002
        """Return y, a kernel's result, with the shape and memory order of `like`."""
        return y

    def parameter(self, s: Array | None) -> Array | None:
        """Return the parameter s, which is scale or bias, in the order of the nest's axes."""
        if s is None:
            return None
        if self.param_order is not None:
            s = s.reshape(self.param_shape).transpose(self.param_order)
        return s if is_plain(s) else s.copy("C")

    def parameter_gradient(self, ds: Array, like: Array) -> Array:
        """Return ds, the gradient of scale or bias, in the shape and type of the parameter `like`."""
        if self.param_back is not None:
            ds = ds.reshape(self.shape_in_order).transpose(self.param_back).copy("C")
        ds = ds if ds.dtype == like.dtype else ds.astype(like.dtype)
        return ds if ds.shape == like.shape else ds.reshape(like.shape)

    def statistics(self, flat: Array) -> Array:
        """Return `flat`, statistics in loop order, in the shape of the kept axes."""
        return flat.reshape(self.kept_shape) if self.in_order else self.nest.statistics(flat)

    def flat(self, statistics: Array) -> Array:
        """Return `statistics` in loop order, as a flat array. This is the inverse of the method `statistics`."""
        return statistics.reshape(-1) if self.in_order else self.nest.flat(statistics)


class CopiedLayout(Layout):
    """Copies data to a matrix (kept, reduced), and broadcasts parameters to one number for each element."""

    def __init__(self, origin: Nest, with_params: bool) -> None:
        kept = [i for i, axis in enumerate(origin.axes) if not axis.reduced]
        reduced = [i for i, axis in enumerate(origin.axes) if axis.reduced]
        super().__init__(plan((origin.rows, origin.columns), (1,), 1, (0, 1) if with_params else ()))
        self.with_params = with_params  # False: scale and bias have one element, which is not widened
        self.origin = origin
        self.kept_shape = origin.kept_shape
        self.order = (*kept, *reduced)
        self.back = tuple(self.order.index(i) for i in range(len(self.order)))
        self.ordered_shape = tuple(origin.axes[i].count for i in self.order)
        self.wide_shape = tuple(axis.count if axis.varies else 1 for axis in origin.axes)

    def data(self, x: Array) -> Array:
        return x.reshape(self.origin.shape).transpose(self.order).reshape(self.nest.shape).copy("C")

    def result(self, y: Array, like: Array) -> Array:
        result = np.empty_like(like)
        result[...] = y.reshape(self.ordered_shape).transpose(self.back).reshape(like.shape)
        return result

    def parameter(self, s: Array | None) -> Array | None:
        if s is None:
            return None
        if not self.with_params:
            return super().parameter(s)
        wide = np.broadcast_to(s.reshape(self.wide_shape), self.origin.shape)
        return wide.transpose(self.order).copy("C").reshape(-1)  # reshape alone may give a view of step 0

    def parameter_gradient(self, ds: Array, like: Array) -> Array:
        if not self.with_params:
            return super().parameter_gradient(ds, like)
        shared = tuple(i for i, axis in enumerate(self.origin.axes) if not axis.varies)
        wide = ds.reshape(self.ordered_shape).transpose(self.back)
        return wide.sum(axis=shared, dtype=np.float64).astype(like.dtype).reshape(like.shape)

    def statistics(self, flat: Array) -> Array:
        return flat.reshape(self.kept_shape)

    def flat(self, statistics: Array) -> Array:
        return statistics.reshape(-1)


@functools.lru_cache(maxsize=4096)
def layout_of(
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    axes: tuple[int, ...],
    num_groups: int,
    param: tuple[int, ...],
) -> Layout:
    """Return the layout for gapless data. See `nest.plan` for the arguments. strides are in elements; if None, the data
    is row-major.
    """
    nest = plan(shape, axes, num_groups, param, strides)
    return Layout(nest) if nest.fits else CopiedLayout(nest, bool(param))


def arrange(x: Array, axes: tuple[int, ...], num_groups: int, param: tuple[int, ...]) -> tuple[Layout, Array]:
    """Return the layout for x, and x itself. If x has gaps, a copy of x is returned."""
    if is_plain(x):
        return layout_of(x.shape, None, axes, num_groups, param), x
    aligned = type(x) is not ndarray or x.flags.aligned
    strides = tuple([step // x.itemsize for step in x.strides])
    if aligned and prod(x.shape) and is_dense(x.shape, strides):
        return layout_of(x.shape, strides, axes, num_groups, param), x
    return layout_of(x.shape, None, axes, num_groups, param), backend(x).copying.copy(x, "C")


def mask_like(mask: Array, x: Array) -> Array:
    """Return the mask, broadcast to x's shape and in x's memory order."""
    if mask.shape == x.shape and mask.flags.c_contiguous and x.flags.c_contiguous:
        return mask
    wide = np.empty_like(x, dtype=bool)
    wide[...] = mask
    return wide


def same_order(dy: Array, x: Array) -> Array:
    """Return dy in x's memory order. If dy has another order, a copy is returned."""
    aligned = type(dy) is not ndarray or dy.flags.aligned
    if aligned and (dy.strides == x.strides or (dy.flags.c_contiguous and x.flags.c_contiguous)):
        return dy
    copy = backend(x).memory.empty_like(x)
    backend(x).copying.assign(copy, dy)
    return copy
