"""Write x[1:3, None] as Slice, Squeeze and Unsqueeze; read Slice; read and write Gather and GatherElements.

x[indices] is written as Gather, and x.gather as GatherElements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.onnx.graph.sizes import Length, Size, size_of
from minorm.onnx.operators.shape.generation import count
from minorm.onnx.operators.shape.shape import INT_MAX, INT_MIN, expand, reshape, slice_, squeeze, unsqueeze
from minorm.ops import indexing as ops
from minorm.ops.operands import axes_of, axis_of
from minorm.ops.shape import MatrixDiagonal, Unbind
from minorm.tensor.tensor import Tensor

Ints = Sequence[int]


def _axis_by_axis(index: Any, ndim: int) -> list[Any]:
    """Replace `...` in an index by full slices.

    Then the index has one entry for each axis of x, and perhaps entries None in addition.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [np.asarray(part) if isinstance(part, list) else part for part in parts]
    used = sum(part is not None and part is not Ellipsis for part in parts)
    place = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    return parts[:place] + [slice(None)] * (ndim - used) + parts[place + 1 :]


@lowers(ops.GetItem)
def write_getitem(g: Graph, x: Value, index: Any) -> Value:
    axes: list[int] = []
    starts: list[Length] = []
    ends: list[Length] = []
    steps: list[int] = []
    shape = list(x.known_shape)
    gone, new, kept, axis = [], [], 0, 0
    for part in _axis_by_axis(index, x.ndim):
        if part is None:
            new.append(kept)
            kept += 1
            continue
        if isinstance(part, slice):
            kept += 1
            step = 1 if part.step is None else int(part.step)
            start, end = part.start, part.stop
            if start is None:
                start = 0 if step > 0 else -1
            if end is None:
                end = INT_MAX if step > 0 else INT_MIN
        else:
            gone.append(axis)
            start, step = part, 1
            end = INT_MAX if not isinstance(part, Size) and part == -1 else part + 1
        if (start, end, step) != (0, INT_MAX, 1):
            axes, starts, ends, steps = [*axes, axis], [*starts, start], [*ends, end], [*steps, step]
            shape[axis] = _taken(x.known_shape[axis], start, end, step)
        axis += 1
    y = unsqueeze(g, squeeze(g, slice_(g, x, axes, starts, ends, steps, tuple(shape)), gone), new)
    return g.add("Identity", x) if y is x else y


@lowers(Unbind)
def write_unbind(g: Graph, x: Value, axis: int) -> tuple[Value, ...]:
    n = x.known_shape[axis]
    if isinstance(n, Size):
        raise RuleNotApplicable("the number of slices depends on a free axis")
    return tuple(write_getitem(g, x, (*(slice(None),) * axis, i)) for i in range(n))


def _taken(length: Length, start: Length, end: Length, step: int) -> Length:
    """Return the number of elements that a slice takes from an axis: an int, or a Size if runs differ."""
    count = next((len(n.values) for n in (length, start, end) if isinstance(n, Size)), 1)
    runs = [[n.values[r] if isinstance(n, Size) else n for n in (length, start, end)] for r in range(count)]
    # An end of INT_MIN going backwards means "to the first element", which Python writes as None.
    return size_of([len(range(*slice(a, None if b == INT_MIN else b, step).indices(n))) for n, a, b in runs])


@lowers(ops.SetItem)
def write_setitem(g: Graph, x: Value, value: Value, steps: Any, index: Any) -> Value:
    if steps or index is not Ellipsis:
        raise RuleNotApplicable("a graph cannot change a part of a tensor; build it with minorm.cat or minorm.where")
    if value.ndim > x.ndim:
        value = reshape(g, value, value.known_shape[value.ndim - x.ndim :])
    return expand(g, value, x.known_shape)


@writes(ops.Take, "Gather", since=1)
def write_take(g: Graph, x: Value, index: Any) -> Value:
    parts = _axis_by_axis(index, x.ndim)
    arrays = [i for i, part in enumerate(parts) if isinstance(part, (np.ndarray, Value))]
    others = [part for i, part in enumerate(parts) if i not in arrays]
    if len(arrays) != 1 or any(part != slice(None) for part in others):
        raise RuleNotApplicable("only x[:, ..., indices] with one array among full slices has an ONNX form (Gather)")
    axis = arrays[0]
    where = parts[axis]
    if isinstance(where, np.ndarray):
        if where.dtype == dtypes.bool:
            raise RuleNotApplicable("a mask gives a shape that depends on the values; use minorm.where")
        lowest = x.known_shape[axis]
        if (where < 0).any():
            where = np.where(where < 0, where + int(lowest), where)
        where = g.constant(where, np.int64, "indices")
    elif where.dtype == dtypes.bool:
        raise RuleNotApplicable("a mask gives a shape that depends on the values; use minorm.where")
    elif not g.has("Gather", 11):
        g.warn("before opset 11 Gather does not count negative indices from the end; indices must not be negative")
    return _gather(g, x, where, axis)


def _gather(g: Graph, x: Value, where: Value, axis: int) -> Value:
    if where.dtype not in (dtypes.int32, dtypes.int64):
        where = g.cast(where, dtypes.int64)
    return g.add("Gather", x, where, shape=g.result.shape, axis=axis)


@writes(MatrixDiagonal, "Gather", since=1)
def write_diagonal(g: Graph, x: Value, offset: int) -> Value:
    """Flatten the matrices and gather the elements of the diagonal."""
    *stack, rows, columns = x.known_shape
    if isinstance(rows, Size) or isinstance(columns, Size):
        raise RuleNotApplicable("the length of the diagonal depends on a free axis")
    places = np.diagonal(np.arange(rows * columns).reshape(rows, columns), offset)
    flat = reshape(g, x, (*stack, rows * columns))
    return g.add("Gather", flat, g.constant(places, np.int64, "indices"), shape=g.result.shape, axis=len(stack))


@writes(ops.Take, "GatherND", since=11)
def write_take_several(g: Graph, x: Value, index: Any) -> Value:
    """Write x[i, j] as a GatherND; i, j ... are constant arrays of numbers, one for each of the first axes."""
    parts = _axis_by_axis(index, x.ndim)
    count = sum(isinstance(part, np.ndarray) for part in parts)
    fixed = all(isinstance(part, np.ndarray) and part.dtype != dtypes.bool for part in parts[:count])
    if not count or not fixed or any(not isinstance(part, slice) or part != slice(None) for part in parts[count:]):
        raise RuleNotApplicable("only arrays of numbers for the first axes have an ONNX form (GatherND)")
    places = np.stack(np.broadcast_arrays(*parts[:count]), -1)
    return g.add("GatherND", x, g.constant(places, np.int64, "places"), shape=g.result.shape)


@writes(ops.Gather, "GatherElements", since=11)
def write_gather(g: Graph, x: Value, index: Value, axis: int) -> Value:
    if index.dtype not in (dtypes.int32, dtypes.int64):
        index = g.cast(index, dtypes.int64)
    return g.add("GatherElements", x, index, shape=index.shape, axis=axis)


# Slice. From version 10 on, bounds are inputs, and steps exist.


@lowers(ops.rolled)
def write_rolled(g: Graph, x: Value, step: int, axis: int) -> Value:
    """Roll x along a free axis of length n: element i of the result is element (i - step) mod n of x."""
    n = x.known_shape[axis]
    if not isinstance(n, Size):
        raise RuleNotApplicable("along an axis of fixed length a Gather with constant indices is used")
    if not g.has("Mod"):
        raise RuleNotApplicable("there is no Mod before opset 10")
    moved = g.add("Sub", count(g, n, np.dtype(np.int64)), g.constant(step, np.int64, "step"))
    return g.add("Gather", x, g.add("Mod", moved, g.length(n)), axis=axis, shape=x.known_shape)


@reads("Slice", since=1)
def read_slice_1(node: Node) -> Callable[[Tensor], Tensor]:
    return lambda x: sliced(x, node["starts"], node["ends"], node["axes"], None)


@reads("Slice", since=10, fixed=(1, 2, 3, 4))
def read_slice_10(node: Node) -> Callable[..., Tensor]:
    def slice_of(
        x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
    ) -> Tensor:
        optional = [
            None if given is None else integers(given, name) for name, given in (("axes", axes), ("steps", steps))
        ]
        return sliced(x, integers(starts, "starts"), integers(ends, "ends"), *optional)

    return slice_of


def sliced(x: Tensor, starts: Ints, ends: Ints, axes: Ints | None = None, steps: Ints | None = None) -> Tensor:
    """Take x[start:end:step] along each of `axes`; a bound beyond an end of the axis counts as this end."""
    places = range(len(starts)) if axes is None else axes_of("slice", tuple(axes), x)
    if axes is None and len(starts) > x.ndim:
        raise ValueError(f"starts is {starts}; expected at most one for each of {x.ndim} axes")
    index = [slice(None)] * x.ndim
    for axis, start, end, step in zip(places, starts, ends, steps or [1] * len(starts), strict=True):
        index[axis] = _slice(x.shape[axis], start, end, step)
    return x[tuple(index)]


def _slice(n: int, start: int, end: int, step: int) -> slice:
    if step == 0:
        raise ValueError("steps holds a 0; expected other numbers")
    # Backwards, a start before the first element means the first element; NumPy would take nothing.
    (least, most), (low, high) = ((0, n), (0, n)) if step > 0 else ((0, n - 1), (-1, n - 1))
    first, last = (i + n if i < 0 else i for i in (start, end))
    first, last = min(max(first, least), most), min(max(last, low), high)
    if step > 0:
        return slice(None) if (first, last, step) == (0, n, 1) else slice(first, max(first, last), step)
    return slice(first, None if last < 0 else last, step) if first > last else slice(0, 0)


# Gather, GatherElements. 11: indices may count from the end.


@reads("Gather", since=1, fixed=(1,))
def read_gather(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    def gather(x: Tensor, indices: Tensor) -> Tensor:
        axis = axis_of("gather", node["axis"], x)
        before = (slice(None),) * axis
        node.fits((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)
        return x[(*before, int(indices.item()) if indices.ndim == 0 else indices)]

    return gather


@reads("GatherElements", since=11, fixed=(1,))
def read_gather_elements(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    def gather(x: Tensor, indices: Tensor) -> Tensor:
        node.fits(indices.shape, x.dtype)
        axis = axis_of("gather", node["axis"], x)
        if any(m > n for i, (n, m) in enumerate(zip(x.shape, indices.shape, strict=True)) if i != axis):
            raise ValueError(
                f"indices have shape {indices.shape}, x {x.shape}; expected indices that are not longer than x along "
                f"any axis except axis {axis}"
            )
        n = x.shape[axis]
        outside = (indices.array < -n) | (indices.array >= n)
        if outside.any():
            raise ValueError(
                f"indices hold {indices.array[outside][0]}; expected {-n} to {n - 1}; x has shape {x.shape}"
            )
        return x.gather(node["axis"], indices)

    return gather
