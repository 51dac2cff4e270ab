"""Writes elements by position, and adds up the gradients of indexing. The order is fixed, so two runs give the same
bits.

CuPy's own add.at uses atomics, whose order depends on the threads. Here positions are sorted, so that the values of one
position are neighbours. These values are added up in steps of doubling length:

    step 1   v[i] += v[i - 1]   if both have the same position
    step 2   v[i] += v[i - 2]
    step 4   ...

Then the last value of every position is the sum of this position. All other values are written to one extra element,
which is dropped.

If an index selects whole rows, such as x[i] of a table x, each row has one position. Then rows are sorted instead of
elements.
"""

from __future__ import annotations

import math
from typing import Any

import cupy

from minorm.devices import dtypes
from minorm.kernels.gpu import copying

COMBINE: dict[str, Any] = {"add": cupy.add, "mul": cupy.multiply, "min": cupy.minimum, "max": cupy.maximum}


def add_at(dy: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros of `shape` with dy added at `index`."""
    axes = rows_of(index, len(shape))
    if axes is None:
        return _added(dy.reshape(-1), _numbered(shape)[index], math.prod(shape)).reshape(shape)
    first, last = axes
    places = _numbered(shape[first:last])[index[first:last] if isinstance(index, tuple) else index]
    order = [*range(first, first + places.ndim), *range(first), *range(first + places.ndim, dy.ndim)]
    whole = shape[:first] + shape[last:]  # the axes that are read completely, in order
    rows = dy.transpose(order).reshape(places.size, math.prod(whole))
    dx = _added(rows, places, math.prod(shape[first:last])).reshape(*shape[first:last], *whole)
    back = [*range(last - first, last), *range(last - first), *range(last, len(shape))]
    return dx.transpose(back)


def rows_of(index: Any, ndim: int) -> tuple[int, int] | None:
    """Return (first, last) if integer arrays index the axes first .. last - 1 and `:` all other axes, else None."""
    parts = index if isinstance(index, tuple) else (index,)
    read = [i for i, part in enumerate(parts) if getattr(part, "dtype", None) is not None and part.dtype.kind in "iu"]
    others = [part for i, part in enumerate(parts) if i not in read]
    if not read or any(not isinstance(part, slice) or part != slice(None) for part in others) or len(parts) > ndim:
        return None
    first, last = read[0], read[-1] + 1
    return (first, last) if last - first == len(read) else None


def add_along(dy: Any, index: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Return zeros of `shape` with dy[i, j] added at [index[i, j], j] if axis is 0; other axes work in the same way."""
    window = tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(index.shape))
    places = cupy.take_along_axis(_numbered(shape)[window], index, axis)
    return _added(dy.reshape(-1), places, math.prod(shape)).reshape(shape)


def _numbered(shape: tuple[int, ...]) -> Any:
    """Return the numbers 0, 1, 2 ... as an array of this shape. Indexing this array gives the positions of the elements
    that the same index would read from an array x of this shape.
    """
    return cupy.arange(math.prod(shape), dtype=dtypes.int64).reshape(shape)


def _added(dy: Any, places: Any, size: int) -> Any:
    """Return zeros with `size` positions, and dy added at `places`. An entry of dy is an element or a row."""
    values = dy.astype(dtypes.compute_type(dy.dtype), copy=False)
    places, values, last = _combined(values, places.reshape(-1), cupy.add)
    dx = cupy.zeros((size + 1, *values.shape[1:]), values.dtype)
    dx[cupy.where(last, places, size)] = values
    return dx[:size].astype(dy.dtype)


def put(x: Any, index: Any, values: Any) -> None:
    """Set x[index] = values, in place. If several values go to one position, the last value is written.

    CuPy writes values in an order that depends on the threads. So this function first replaces all values for one
    position by the last of these values.
    """
    if index is Ellipsis and hasattr(values, "dtype") and values.ndim <= x.ndim:
        copying.assign(x, values)
        return
    if index is Ellipsis and isinstance(values, (bool, int, float)):
        copying.fill(x, values)
        return
    if _may_repeat(index) and getattr(values, "size", 1) > 1:
        values = _with_last(x.shape, index, values)
    x[index] = values


def _may_repeat(index: Any) -> bool:
    """Return True if the index may contain a position twice. Slices, bools and single numbers cannot."""
    parts = index if isinstance(index, tuple) else (index,)
    kinds = [(getattr(part, "dtype", None), part) for part in parts]
    return any(isinstance(part, list) or (t is not None and t.kind in "iu" and part.size > 1) for t, part in kinds)


def _with_last(shape: tuple[int, ...], index: Any, values: Any) -> Any:
    """Return the values for x[index], each replaced by the last value for its position. `shape` is x's shape."""
    axes = rows_of(index, len(shape))
    first, last = axes or (0, len(shape))
    places = _numbered(shape[first:last])[index[first:last] if axes and isinstance(index, tuple) else index]
    wanted = (*shape[:first], *places.shape, *shape[last:])
    values = values.reshape(values.shape[max(0, values.ndim - len(wanted)) :])  # there may be extra axes of length 1
    rows = cupy.broadcast_to(values, wanted).reshape(math.prod(shape[:first]), places.size, math.prod(shape[last:]))
    places = places.reshape(-1)
    order = cupy.argsort(places)  # equal places keep their order
    winner = order[cupy.searchsorted(places[order], places, side="right") - 1]
    return rows[:, winner].reshape(wanted)


def bincount(x: Any, weights: Any, minlength: int) -> Any:
    """Count how often each number 0, 1, 2 ... occurs in x, without CuPy's atomics.

    With `weights`, add up the weights of each number instead, in float64.
    """
    if weights is None:
        return cupy.bincount(x, None, minlength)
    length = max(int(x.max()) + 1 if x.size else 0, minlength)
    return add_at(weights.astype(dtypes.float64), x.astype(dtypes.int64, copy=False), (length,))


def scatter(x: Any, index: Any, updates: Any, reduction: str) -> Any:
    """Return a copy of x with `updates` written at `index`. With "add", "mul", "min" or "max", the updates are combined
    with the elements of x.
    """
    if reduction == "none":
        y = x.copy()
        put(y, index, updates)
        return y
    wide = dtypes.compute_type(x.dtype)
    combine = COMBINE[reduction]
    places, values, last = _combined(updates.reshape(-1).astype(wide), _numbered(x.shape)[index].reshape(-1), combine)
    flat = cupy.zeros(x.size + 1, wide)
    flat[: x.size] = x.reshape(-1)
    chosen = cupy.where(last, places, x.size)
    flat[chosen] = combine(flat[chosen], values)
    return flat[: x.size].reshape(x.shape).astype(x.dtype)


def _combined(values: Any, places: Any, combine: Any) -> tuple[Any, Any, Any]:
    """Return the sorted places, the values in the same order, and a mask that is True at the last value of each place.

    The last value of a place is the combination of all values for this place. A value is an element or a row of
    elements.
    """
    count = len(places)
    order = cupy.argsort(places)  # equal places keep their order
    places, values = places[order], values[order]
    step = 1
    while step < count:
        same = (places[step:] == places[:-step]).reshape(-1, *(1,) * (values.ndim - 1))
        grown = values.copy()
        grown[step:] = cupy.where(same, combine(values[step:], values[:-step]), values[step:])
        values, step = grown, 2 * step
    last = cupy.ones(count, dtypes.bool)
    last[:-1] = places[1:] != places[:-1]
    return places, values, last
