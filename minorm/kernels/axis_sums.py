"""Sums over some axes: neighbouring axes merge, and what is left is summed from the inside out, an axis at a time.

    x (32, 64, 56, 56) over (0, 2, 3)        32 added, 64 kept, 3136 added
    first                                    2048 batches, 3136 rows, 1 column     -> 32 x 64
    then                                     1 batch, 32 rows, 64 columns          -> 64

Each stage sums the middle axis of (batches, rows, columns); that covers every set of axes of an array without gaps,
whatever the order of its axes in memory. The kernels of cpu/ and of gpu/ sum a stage; the rest is here.
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
    """The functions of reference/sums.py; total(x, summed, mean) adds up or averages floats over the axes `summed`.

    It gets an array that has elements and gives the kept axes in their order, in any shape, of x's type.
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
        return total if total.shape == shape else total.reshape(shape)  # a view would be copied once more for p.grad


@functools.lru_cache(maxsize=4096)
def _shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape) if keepdims or axis not in axes)


@functools.lru_cache(maxsize=4096)
def _stretched(shape: tuple[int, ...], small: tuple[int, ...]) -> frozenset[int]:
    """The axes along which an array of shape `small` is repeated in `shape`."""
    lead = len(shape) - len(small)
    return frozenset(range(lead)) | {i + lead for i, n in enumerate(small) if n == 1}


@functools.lru_cache(maxsize=4096)
def stages(shape: tuple[int, ...], summed: frozenset[int]) -> tuple[Stage, ...]:
    """How a C-ordered array of this shape is summed: the last of its merged summed axes first."""
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
    """`total` of an x that is not in C order: its axes in `order`, as they lie in memory, and the result's back again.

    An axis of step 0, along which x holds the same numbers again and again as in the gradient of a sum, is not walked.
    plain(y) is y in C order.
    """
    repeated = [axis for axis in summed if x.strides[axis] == 0 and x.shape[axis] > 1]
    kept = [axis for axis in order if axis not in summed]
    y = x[tuple(slice(0, 1) if axis in repeated else slice(None) for axis in range(x.ndim))]
    y = plain(y.transpose(order))
    found = total(y, frozenset(i for i, axis in enumerate(order) if axis in summed), mean)
    if repeated and not mean:
        found = (found.astype(dtypes.float64) * prod(x.shape[axis] for axis in repeated)).astype(x.dtype)
    return found.reshape([x.shape[axis] for axis in kept]).transpose([kept.index(axis) for axis in sorted(kept)])
