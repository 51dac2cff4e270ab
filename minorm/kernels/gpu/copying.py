"""Copies and fills CuPy arrays: casts, changes the memory order, repeats along axes, or adds to an array.

Each function takes one launch of copying.cu, for arrays of one type or of two float types. CuPy computes all other
cases: other casts, negative steps, more than six loops.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any

import cupy

from minorm.devices import dtypes
from minorm.kernels.gpu import launch, memory
from minorm.kernels.gpu.plans import copy_plan
from minorm.kernels.gpu.plans.structs import Struct
from minorm.kernels.gpu.program import Launch, Program, cached
from minorm.kernels.order import is_dense, is_in_rows, memory_order

__all__ = ["assign", "cast", "concatenate", "copy", "fill", "full", "full_like", "in_rows", "pad", "reshaped"]

Ints = tuple[int, ...]

_program = Program("copying.cu")


def assign(to: Any, x: Any) -> None:
    """Set to[...] = x, where x broadcasts and is cast."""
    if cupy.may_share_memory(to, x):
        x = x.copy()
    _move(to, x)


def cast(x: Any, dtype: Any, order: str = "K") -> Any:
    """Return x in another type, in x's memory order ("K") or row by row ("C")."""
    if _kinds(x.dtype, dtype, False) is None:
        return x.astype(dtype, order)
    out = _like(x, dtype, order)
    _move(out, x)
    return out


def as_type(x: Any, dtype: Any) -> Any:
    """Return x itself if its type is `dtype`, else a copy that is cast to `dtype`."""
    return x if x.dtype == dtype else cast(x, dtype)


def copy(x: Any, order: str = "K") -> Any:
    """Return a copy of x, in x's memory order ("K") or row by row ("C")."""
    out = _like(x, x.dtype, order)
    _move(out, x)
    return out


def _like(x: Any, dtype: Any, order: str) -> Any:
    """Allocate an array of x's shape in C order. With order="K", keep x's memory order unless x has a step of 0."""
    if order == "C" or is_in_rows(x) or 0 in x.strides:
        return memory.empty(x.shape, dtype)
    return memory.empty_like(x, dtype)


def in_rows(x: Any) -> Any:
    """Return x itself if it is row-major without gaps, else a row-major copy."""
    return x if is_in_rows(x) else copy(x, "C")


def reshaped(x: Any, shape: Ints) -> Any:
    """Return the elements of x, row by row, in another shape: a view if strides can give it, else a copy."""
    if is_in_rows(x) or not x.size or _is_view(x.shape, x.strides, shape):
        return x.reshape(shape)
    return copy(x, "C").reshape(shape)


@functools.lru_cache(maxsize=4096)
def _is_view(shape: Ints, strides: Ints, new: Ints) -> bool:
    """Return True if an array of this shape and these strides has the shape `new` without a copy.

    Both shapes are cut into the shortest groups of axes with the same number of elements. Within such a group, the old
    axes must lie as one.
    """
    if -1 in new:
        new = tuple(-prod(shape) // prod(new) if n == -1 else n for n in new)
    old, wanted = [(n, step) for n, step in zip(shape, strides, strict=True) if n != 1], [n for n in new if n != 1]
    if prod(shape) != prod(new):
        return True  # CuPy raises the error
    i = j = 0
    while i < len(old):
        first, before, after = i, old[i][0], wanted[j]
        i, j = i + 1, j + 1
        while before != after:
            if before < after:
                before, i = before * old[i][0], i + 1
            else:
                after, j = after * wanted[j], j + 1
        if any(old[k][1] != old[k + 1][0] * old[k + 1][1] for k in range(first, i - 1)):
            return False
    return True


def in_order_of(x: Any, like: Any) -> Any:
    """Return x itself if it has the memory layout of `like`, else a copy of x with the layout of `like`.

    x and `like` have the same shape.
    """
    if lies_as(x, like):
        return x
    out = memory.empty_like(like, x.dtype)
    _move(out, x)
    return out


def lies_as(x: Any, like: Any) -> bool:
    """Return True if two arrays of the same shape have the same memory order and the same gaps."""
    if is_in_rows(x) and is_in_rows(like):
        return True
    return _same_steps(x.shape, x.strides, like.strides, x.itemsize, like.itemsize)


@functools.lru_cache(maxsize=4096)
def _same_steps(shape: Ints, one: Ints, other: Ints, size: int, other_size: int) -> bool:
    return all(n == 1 or a * other_size == b * size for n, a, b in zip(shape, one, other, strict=True))


def concatenate(arrays: Sequence[Any], axis: int) -> Any:
    """Join arrays of one type along an axis, in the memory order of the first array that is not in C order."""
    first = arrays[0]
    axis %= first.ndim
    others = {(x.dtype, x.shape[:axis], x.shape[axis + 1 :]) for x in arrays}
    if len(others) > 1:
        return cupy.concatenate(arrays, axis)  # CuPy casts, or raises an error
    shape = list(first.shape)
    shape[axis] = sum(x.shape[axis] for x in arrays)
    out = _empty(tuple(shape), first.dtype, next((x for x in arrays if not x.flags.c_contiguous), first))
    start = 0
    for x in arrays:
        end = start + x.shape[axis]
        _move(out[(*(slice(None),) * axis, slice(start, end))], x)
        start = end
    return out


def pad(x: Any, widths: Sequence[tuple[int, int]], value: float) -> Any:
    """Return x with (before, after) elements of `value` added at the ends of each axis, in x's memory order."""
    shape = tuple(n + low + high for n, (low, high) in zip(x.shape, widths, strict=True))
    out = _empty(shape, x.dtype, x)
    fill(out, value)
    _move(out[tuple(slice(low, low + n) for n, (low, _) in zip(x.shape, widths, strict=True))], x)
    return out


def _empty(shape: Ints, dtype: Any, like: Any) -> Any:
    """Allocate a dense array whose axes have the memory order of `like`."""
    if like.flags.c_contiguous or 0 in like.strides:
        return memory.empty(shape, dtype)
    steps, step = [0] * len(shape), dtype.itemsize
    for axis in reversed(memory_order(like)):
        steps[axis], step = step, step * shape[axis]
    return cupy.ndarray(shape, dtype, memptr=memory.empty(shape, dtype).data, strides=tuple(steps))  # not a view


def accumulate(total: Any, x: Any) -> bool:
    """Add x to `total` in place. If no kernel can do this, return False and change nothing.

    The two arrays have the same shape. Their memory orders may differ.
    """
    return total.dtype in dtypes.FLOATS and x.dtype == total.dtype and _launched(total, x, True)


def fill(to: Any, value: float) -> None:
    """Set to[...] = value."""
    dtype = to.dtype
    if dtype not in dtypes.FLOATS or not to.size or not is_dense(to):
        to[...] = value
        return
    number = dtypes.compute_type(dtype).type(value)
    _planned_fill(dtype, to.size, launch.is_aligned(to))(to, last=(number,))


@cached
def _planned_fill(dtype: Any, n: int, aligned: bool) -> Launch:
    index, width = launch.index_type(n), launch.ACCESS // dtype.itemsize if aligned else 1
    kernel = _program.kernel("fill", dtype, dtypes.compute_type(dtype), width, index)
    return Launch(
        kernel, (launch.blocks(-(-n // width), copy_plan.THREADS),), (copy_plan.THREADS,), (), (index.type(n),)
    )


def full(shape: Ints, value: float, dtype: Any) -> Any:
    """Return an array of the given shape and type, filled with `value`."""
    if dtype not in dtypes.FLOATS or not prod(shape):
        return cupy.full(shape, value, dtype)
    out = memory.empty(shape, dtype)
    fill(out, value)
    return out


def full_like(x: Any, value: float) -> Any:
    """Return an array with x's shape, type and memory order, filled with `value`."""
    out = _like(x, x.dtype, "K")
    fill(out, value)
    return out


def _move(to: Any, x: Any) -> None:
    if to.size and not _launched(to, x, False):
        to[...] = x


def _launched(to: Any, x: Any, add: bool) -> bool:
    """Copy x to `to` in one launch, or add x to `to` if add=True. Return False if no kernel takes these arrays."""
    bits = to.data.ptr | x.data.ptr | launch.ACCESS
    run = _planned(to.shape, to.strides, x.shape, x.strides, to.dtype, x.dtype, bits & -bits, add)
    if run is None:
        return False
    run(x, to)
    return True


def _kinds(source: Any, to: Any, add: bool) -> tuple[Any, Any] | None:
    """Return the types that the kernel reads and writes, or None if there is no such kernel."""
    if source == to and not add:
        bits = copy_plan.BITS.get(to.itemsize)
        return None if bits is None else (bits, bits)
    return (source, to) if source in dtypes.FLOATS and to in dtypes.FLOATS else None


@cached
def _planned(
    shape: Ints, to: Ints, given: Ints, source: Ints, to_dtype: Any, source_dtype: Any, alignment: int, add: bool
) -> Launch | None:
    """Return the launch of a kernel, or None if no kernel takes these arrays.

    `to` and `source` are strides in bytes. The source's shape `given` is broadcast to `shape`.
    """
    kinds = _kinds(source_dtype, to_dtype, add)
    if kinds is None:
        return None
    to_size, source_size = to_dtype.itemsize, source_dtype.itemsize
    lead = len(shape) - len(given)
    if lead < 0 or any(n not in (1, m) for n, m in zip(given, shape[lead:], strict=True)):
        return None  # CuPy raises the error
    steps = (0,) * lead + tuple(0 if n == 1 else step // source_size for n, step in zip(given, source, strict=True))
    places = tuple(step // to_size for step in to)
    if min((*steps, *places), default=0) < 0 or any(n > 1 and step == 0 for n, step in zip(shape, places, strict=True)):
        return None
    plan = copy_plan.plan(shape, places, steps, (to_size, source_size), alignment)
    if plan is None:
        return None
    key: tuple[Any, ...]
    if plan.turned:
        key, last = ("turn", *kinds, *plan.widths, plan.rows, add, plan.integer), []
    else:
        key, last = ("move", *kinds, *plan.widths, add, plan.integer), [dtypes.bool.type(plan.whole)]
    before = Struct(plan.axes), *map(plan.integer.type, plan.sizes), *last
    return Launch(_program.kernel(*key), plan.grid, (copy_plan.THREADS,), before)
