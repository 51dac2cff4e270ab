"""The gradient of reading elements by position, added up in a fixed order, so that two runs give the same bits.

CuPy's own add.at adds by atomics, in whatever order the threads come. Here positions are sorted, and the values of one
position, now neighbours, are added up by doubling:

    step 1   v[i] += v[i - 1]   where position i - 1 is that of i
    step 2   v[i] += v[i - 2]
    step 4   ...

after which the last value of every position holds its sum. All the others are written to one place too many.
"""

from __future__ import annotations

import math
from typing import Any

import cupy

from minorm import dtypes

COMBINE: dict[str, Any] = {"add": cupy.add, "mul": cupy.multiply, "min": cupy.minimum, "max": cupy.maximum}


def add_at(dy: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with dy added at `index`."""
    return _added(dy, _numbered(shape)[index], shape)


def add_along(dy: Any, index: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with dy[i, j] added at [index[i, j], j] for axis 0, and so on."""
    window = tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(index.shape))
    return _added(dy, cupy.take_along_axis(_numbered(shape)[window], index, axis), shape)


def _numbered(shape: tuple[int, ...]) -> Any:
    """0, 1, 2 ... in that shape: reading it as x was read tells which elements were."""
    return cupy.arange(math.prod(shape), dtype=dtypes.int64).reshape(shape)


def _added(dy: Any, places: Any, shape: tuple[int, ...]) -> Any:
    places = places.reshape(-1)
    values = dy.reshape(-1).astype(dtypes.compute_type(dy.dtype), copy=False)
    size = math.prod(shape)
    places, values, last = _combined(values, places, cupy.add)
    dx = cupy.zeros(size + 1, values.dtype)
    dx[cupy.where(last, places, size)] = values
    return dx[:size].reshape(shape).astype(dy.dtype)


def scatter(x: Any, index: Any, updates: Any, reduction: str) -> Any:
    """A copy of x with `updates` put at `index`, or combined with what is there: "add", "mul", "min" or "max"."""
    if reduction == "none":
        y = x.copy()
        y[index] = updates
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
    """Places in order, and values of which the last of every place is that place's combination; which are the last."""
    count = len(places)
    order = cupy.argsort(places)  # equal ones stay in order
    places, values = places[order], values[order]
    step = 1
    while step < count:
        same = places[step:] == places[:-step]
        grown = values.copy()
        grown[step:] = cupy.where(same, combine(values[step:], values[:-step]), values[step:])
        values, step = grown, 2 * step
    last = cupy.ones(count, dtypes.bool)
    last[:-1] = places[1:] != places[:-1]
    return places, values, last
