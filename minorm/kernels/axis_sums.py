"""Sums over some axes: merges neighbouring axes, then sums one axis at a time, from the innermost to the outermost.

    x (32, 64, 56, 56) over (0, 2, 3)        32 added, 64 kept, 3136 added
    first                                    2048 batches, 3136 rows, 1 column     -> 32 x 64
    then                                     1 batch, 32 rows, 64 columns          -> 64

Each stage views its array as (batches, rows, columns) and sums the middle axis. An array without gaps, in any memory
order, can be summed over any set of its axes by a sequence of such stages. The kernels of cpu/ and gpu/ compute one
stage; this module computes which stages are necessary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

from minorm.devices import dtypes
from minorm.kernels.reference import sums as reference

Stage = tuple[int, int, int]  # batches, rows, columns
Total = Callable[[Any, frozenset[int], bool], Any]


class Sums:
    """The functions of reference/sums.py, computed by total(x, summed, mean), which adds or averages floats over axes.

    `total` never gets an empty array. The result of `total` has x's type, and its elements are in the order of the axes
    that are not in `summed`. The shape of this result does not matter, since `Sums` reshapes the result.
    """

    def __init__(self, total: Total) -> None:
        self._total = total

    def sum_axes(self, x: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
        if x.size == 0 or x.dtype not in dtypes.FLOATS:
            return reference.sum_axes(x, axes, keepdims)
        return self._total(x, frozenset(axes), False).reshape(_shape(x.shape, axes, keepdims))

    def mean_axes(self, x: Any, axes: tuple[int, ...], keepdims: bool = False) -> Any:
        if x.size == 0 or x.dtype not in dtypes.FLOATS:
            return reference.mean_axes(x, axes, keepdims)
        return self._total(x, frozenset(axes), True).reshape(_shape(x.shape, axes, keepdims))

    def sum_to(self, x: Any, shape: tuple[int, ...]) -> Any:
        if x.shape == shape:
            return x
        if x.size == 0 or x.dtype not in dtypes.FLOATS:
            return reference.sum_to(x, shape)
        total = self._total(x, _stretched(x.shape, shape), False)
        return total if total.shape == shape else total.reshape(shape)  # p.grad would have to copy a view


@functools.lru_cache(maxsize=4096)
def _shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape) if keepdims or axis not in axes)


@functools.lru_cache(maxsize=4096)
def _stretched(shape: tuple[int, ...], small: tuple[int, ...]) -> frozenset[int]:
    """Return the axes along which an array of shape `small` is repeated if it is broadcast to `shape`."""
    lead = len(shape) - len(small)
    return frozenset(range(lead)) | {i + lead for i, n in enumerate(small) if n == 1}


@functools.lru_cache(maxsize=4096)
def stages(shape: tuple[int, ...], summed: frozenset[int]) -> tuple[Stage, ...]:
    """Return the stages that sum a C-ordered array of this shape. Neighbouring axes merge first; the first stage sums
    the last summed axis.
    """
    loops: list[tuple[int, bool]] = []
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        before, kind = loops.pop() if loops and loops[-1][1] == (axis in summed) else (1, axis in summed)
        loops.append((before * length, kind))
    found = []
    while any(kind for _, kind in loops):
        last = max(i for i, (_, kind) in enumerate(loops) if kind)
        rows, _ = loops.pop(last)
        found.append((prod(n for n, _ in loops[:last]), rows, prod(n for n, _ in loops[last:])))
    return tuple(found) or ((prod(shape), 1, 1),)


def in_memory_order(
    total: Total, x: Any, summed: frozenset[int], mean: bool, order: list[int], plain: Callable[[Any], Any]
) -> Any:
    """Call `total` for an x that is not in C order: transpose x to memory order, and transpose the result back.

    `order` lists the axes in memory order. Along an axis of step 0 the same numbers repeat, for example in the gradient
    of a sum; the function reads these numbers only once. plain(y) returns y in C order.
    """
    repeated = [axis for axis in summed if x.strides[axis] == 0 and x.shape[axis] > 1]
    kept = [axis for axis in order if axis not in summed]
    y = x[tuple(slice(0, 1) if axis in repeated else slice(None) for axis in range(x.ndim))]
    y = plain(y.transpose(order))
    found = total(y, frozenset(i for i, axis in enumerate(order) if axis in summed), mean)
    if repeated and not mean:
        found = (found.astype(dtypes.float64) * prod(x.shape[axis] for axis in repeated)).astype(x.dtype)
    return found.reshape([x.shape[axis] for axis in kept]).transpose([kept.index(axis) for axis in sorted(kept)])
