"""Read and write Reshape, Flatten, Transpose, Expand, Concat, Split, Tile, Slice, Squeeze and Unsqueeze."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.onnx.graph.sizes import Length, Shape, Size
from minorm.onnx.graph.tensors import MAX_RANK
from minorm.ops import shape as ops
from minorm.ops.operands import axes_of, axis_of
from minorm.tensor.combining import cat
from minorm.tensor.tensor import Tensor

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)  # "to the end" in Slice, forwards and backwards


def reshape(g: Graph, x: Value, shape: Shape) -> Value:
    """Write x in another shape.

    A free length becomes 0 if x has the same length on this axis. If only one other length is free, it becomes -1. If
    more lengths are free, nodes compute the shape.
    """
    if 0 in shape:  # an empty axis; in a target, 0 means "as in x" unless allowzero says otherwise
        if not g.has("Reshape", 14):
            raise RuleNotApplicable("Reshape gives empty shapes (allowzero) from opset 14 on")
        return g.add("Reshape", x, g.vector(shape), shape=shape, allowzero=1)
    target: list[Length] = [
        0 if isinstance(n, Size) and i < x.ndim and x.known_shape[i] == n else n for i, n in enumerate(shape)
    ]
    free = [i for i, n in enumerate(target) if isinstance(n, Size)]
    if len(free) > 1:
        return g.add("Reshape", x, g.vector(shape), shape=shape)
    if free:
        target[free[0]] = -1
    return g.add("Reshape", x, g.constant(target, np.int64, "shape"), shape=shape)


def reshape_as(g: Graph, x: Value, like: Value) -> Value:
    """Write x in the shape of the value `like`; if several lengths are free, a Shape node reads these lengths."""
    shape = like.known_shape
    free = [n for i, n in enumerate(shape) if isinstance(n, Size) and x.known_shape[i : i + 1] != (n,)]
    if len(free) < 2:
        return reshape(g, x, shape)
    return g.add("Reshape", x, g.add("Shape", like, shape=(like.ndim,), dtype=np.int64), shape=shape)


@writes(ops.Reshape, "Reshape", since=5)
def write_reshape(g: Graph, x: Value, shape: Shape) -> Value:
    return reshape(g, x, g.result.shape)


# Reshape. 5: the shape is an input. 14: a 0 may mean an empty axis (allowzero).


def reshaped(x: Tensor, shape: Sequence[int], allowzero: bool = False) -> Tensor:
    """Reshape x; a 0 in the shape means "as in x" if allowzero is False, and -1 means "the rest".

    Raise ValueError for a 0 at an index where x has no axis. With allowzero, raise ValueError for a shape with 0 and
    -1, because -1 could then be any length.
    """
    if allowzero:
        if 0 in shape and -1 in shape:
            raise ValueError(f"shape is {list(shape)} and allowzero=1; expected only one of 0 and -1")
        return x.reshape(tuple(shape))
    if 0 in shape[x.ndim :]:
        raise ValueError(
            f"shape is {list(shape)}, and x has the shape {x.shape}; expected 0 only at indices for which x has an "
            "axis, or allowzero=1"
        )
    return x.reshape(tuple(x.shape[i] if n == 0 else n for i, n in enumerate(shape)))


@reads("Reshape", since=1)
def read_reshape_1(node: Node) -> Callable[[Tensor], Tensor]:
    return lambda x: reshaped(x, node["shape"])


@reads("Reshape", since=5, fixed=(1,))
def read_reshape_5(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    allowzero = node.since >= 14 and bool(node["allowzero"])
    return lambda x, shape: reshaped(x, integers(shape, "shape", MAX_RANK), allowzero)


def transpose(g: Graph, x: Value, order: Sequence[int]) -> Value:
    """Write a Transpose in which result axis i is axis order[i] of x."""
    return g.add("Transpose", x, shape=tuple(x.known_shape[i] for i in order), perm=list(order))


@writes(ops.Permute, "Transpose", since=1)
def write_permute(g: Graph, x: Value, order: tuple[int, ...]) -> Value:
    return transpose(g, x, order)


def expand(g: Graph, x: Value, shape: Shape) -> Value:
    """Write x broadcast to `shape`; before opset 8, which added Expand, write a Tile of the axes of length 1."""
    shape = tuple(shape)
    if x.shape == shape:
        return x
    if g.has("Expand"):
        return g.add("Expand", x, g.vector(shape), shape=shape)
    if x.ndim < len(shape):
        x = reshape(g, x, (1,) * (len(shape) - x.ndim) + x.known_shape)
    counts = tuple(1 if n == m else m for n, m in zip(x.known_shape, shape, strict=True))
    return g.add("Tile", x, g.vector(counts), shape=shape)


def full(g: Graph, number: float, shape: Shape, dtype: Any) -> Value:
    """Write a tensor of `shape` that is filled with `number`; it is a constant if the shape is fixed."""
    if any(isinstance(n, Size) for n in shape):
        return expand(g, g.constant(number, dtype), shape)
    return g.constant(np.full([int(n) for n in shape], number, dtype))


@reads("Transpose", since=1)
def read_transpose(node: Node) -> Callable[[Tensor], Tensor]:
    order = node["perm"]
    return lambda x: x.permute(order if order is not None else tuple(range(x.ndim))[::-1])


@reads("Flatten", since=1)  # 11: the axis may count from the end
def read_flatten(node: Node) -> Callable[[Tensor], Tensor]:
    axis = node["axis"]

    def flatten(x: Tensor) -> Tensor:
        if not -x.ndim <= axis <= x.ndim:
            raise ValueError(f"axis is {axis}; expected {-x.ndim} to {x.ndim}, for x of shape {x.shape}")
        place = axis + x.ndim if axis < 0 else axis
        return x.reshape(math.prod(x.shape[:place]), math.prod(x.shape[place:]))

    return flatten


@writes(ops.Expand, "Expand", since=8)
def write_expand_8(g: Graph, x: Value, shape: Shape) -> Value:
    return expand(g, x, g.result.shape)


@writes(ops.Expand, "Tile", since=(6,))
def write_expand_6(g: Graph, x: Value, shape: Shape) -> Value:
    return expand(g, x, g.result.shape)


@reads("Expand", since=8, fixed=(1,))
def read_expand(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    def stretch(x: Tensor, shape: Tensor) -> Tensor:
        target = np.broadcast_shapes(x.shape, tuple(integers(shape, "shape", MAX_RANK)))
        node.fits(target, x.dtype)
        return x.expand(target)

    return stretch


@writes(ops.Cat, "Concat", since=4)
def write_cat(g: Graph, arrays: tuple[Value, ...], axis: int) -> Value:
    return g.add("Concat", *arrays, axis=axis, shape=g.result.shape)


@reads("Concat", since=1)  # 4: the axis must be given
def read_concat(node: Node) -> Callable[..., Tensor]:
    axis = 1 if node["axis"] is None else node["axis"]

    def concat(*parts: Tensor) -> Tensor:
        node.fits((sum(x.numel() for x in parts),), parts[0].dtype)
        return cat(parts, axis)

    return concat


# Split. 13: the lengths are an input. 18: the number of parts may be given, and the last part may be shorter.


@reads("Split", since=1, fixed=(1,))
def read_split(node: Node) -> Callable[..., tuple[Tensor, ...]]:
    axis = node["axis"] or 0
    count = len(node.outputs)
    if node.get("num_outputs") not in (None, count):
        raise ValueError(f"num_outputs is {node['num_outputs']}, but there are {count} outputs; expected equal numbers")

    def split(x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
        sizes = node["split"] if node.since < 13 else None
        if lengths is not None:
            sizes = integers(lengths, "split", count)
        n = x.shape[axis_of("split", axis, x)]
        if sizes is None:
            part = -(-n // count)
            sizes = [max(0, min(part, n - i * part)) for i in range(count)]
            if node.since < 18 and n % count:
                raise ValueError(f"axis {axis} of {x.shape} has {n} elements; expected a multiple of {count} outputs")
        if len(sizes) != len(node.outputs) or min(sizes) < 0:
            raise ValueError(f"the lengths are {sizes}; expected one for each of {len(node.outputs)} outputs")
        return x.split(sizes, axis)

    return split


@writes(ops.Repeat, "Tile", since=6)
def write_repeat(g: Graph, x: Value, counts: Shape) -> Value:
    if len(counts) > x.ndim:
        x = reshape(g, x, (1,) * (len(counts) - x.ndim) + x.known_shape)
    return g.add("Tile", x, g.vector(tuple(counts)), shape=g.result.shape)


@reads("Tile", since=1, fixed=(1, 2))
def read_tile_1(node: Node) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def tile(x: Tensor, tiles: Tensor, axis: Tensor) -> Tensor:
        counts = [1] * x.ndim
        counts[axis_of("tile", int(axis.item()), x)] = int(tiles.item())
        return _tiled(node, x, counts)

    return tile


@reads("Tile", since=6, fixed=(1,))
def read_tile_6(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, counts: _tiled(node, x, integers(counts, "repeats"))


def _tiled(node: Node, x: Tensor, counts: Sequence[int]) -> Tensor:
    if len(counts) != x.ndim or any(n < 0 for n in counts):
        raise ValueError(f"repeats is {list(counts)}; expected a count of at least 0 for each of {x.ndim} axes")
    node.fits([n * m for n, m in zip(x.shape, counts, strict=True)], x.dtype)
    return x.repeat(tuple(counts))


def slice_(
    g: Graph,
    x: Value,
    axes: Sequence[int],
    starts: Sequence[Any],
    ends: Sequence[Any],
    steps: Sequence[int],
    shape: Shape,
) -> Value:
    """Write x[start:end:step] along some axes (from version 10 on, bounds are inputs, and steps exist)."""
    if not axes:
        return x
    if g.has("Slice", 10):
        constants = [g.vector(tuple(starts)), g.vector(tuple(ends)), g.vector(tuple(axes)), g.vector(tuple(steps))]
        return g.add("Slice", x, *constants, shape=shape)
    plain = [i for i, step in enumerate(steps) if step == 1]
    for i, step in enumerate(steps):
        if step != 1:
            x = _every(g, x, axes[i], slice(starts[i], None if ends[i] == INT_MIN else ends[i], step))
    if not plain:
        return x
    first, last = [int(starts[i]) for i in plain], [int(ends[i]) for i in plain]
    return g.add("Slice", x, shape=shape, axes=[axes[i] for i in plain], starts=first, ends=last)


def _every(g: Graph, x: Value, axis: int, part: slice) -> Value:
    """Write x[part] along one axis of fixed length, for opsets in which Slice has no steps."""
    length = x.known_shape[axis]
    if isinstance(length, Size):
        raise RuleNotApplicable(
            "before opset 10 Slice has no steps, and only an axis of fixed length can be stepped through"
        )
    indices = np.arange(length)[part]
    shape = (*x.known_shape[:axis], len(indices), *x.known_shape[axis + 1 :])
    return g.add("Gather", x, g.constant(indices, np.int64, "indices"), shape=shape, axis=axis)


@lowers(ops.Flip)
def write_flip(g: Graph, x: Value, axes: tuple[int, ...]) -> Value:
    n = len(axes)
    return slice_(g, x, axes, [-1] * n, [INT_MIN] * n, [-1] * n, x.known_shape) if n else g.add("Identity", x)


def squeeze(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """Write x without these axes of length 1 (from version 13 on, the axes are an input)."""
    shape = tuple(n for i, n in enumerate(x.known_shape) if i not in axes)
    if not axes:
        return x
    if g.has("Squeeze", 13):
        return g.add("Squeeze", x, g.constant(list(axes), dtypes.int64, "axes"), shape=shape)
    return g.add("Squeeze", x, shape=shape, axes=list(axes))


def unsqueeze(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """Write x with axes of length 1 at these indices of the result (from version 13 on, the axes are an input)."""
    rest = iter(x.known_shape)
    shape = tuple(1 if i in axes else next(rest) for i in range(x.ndim + len(axes)))
    if not axes:
        return x
    if g.has("Unsqueeze", 13):
        return g.add("Unsqueeze", x, g.constant(list(axes), dtypes.int64, "axes"), shape=shape)
    return g.add("Unsqueeze", x, shape=shape, axes=list(axes))


def channels(g: Graph, x: Value, vector: Value) -> Value:
    """Reshape a vector of C numbers to (C, 1, ...), to broadcast along axis 1 of x."""
    return reshape(g, vector, (*vector.known_shape, *(1,) * (x.ndim - 2)))


@reads("Squeeze", since=1, fixed=(1,))  # 11: axes may count from the end
def read_squeeze(node: Node) -> Callable[..., Tensor]:
    def squeezed(x: Tensor, axes: Tensor | None = None) -> Tensor:
        wanted = node["axes"] if node.since < 13 else None if axes is None else integers(axes, "axes")
        if wanted is None:
            return x.squeeze()
        gone = axes_of("squeeze", tuple(wanted), x)
        if any(x.shape[i] != 1 for i in gone):
            raise ValueError(f"axes is {wanted}; expected axes of length 1; x has shape {x.shape}")
        return x.reshape(tuple(n for i, n in enumerate(x.shape) if i not in gone))

    return squeezed


@reads("Unsqueeze", since=1, fixed=(1,))
def read_unsqueeze(node: Node) -> Callable[..., Tensor]:
    def unsqueezed(x: Tensor, axes: Tensor | None = None) -> Tensor:
        wanted = node["axes"] if axes is None else integers(axes, "axes")
        rank = x.ndim + len(wanted)
        new = {axis + rank if axis < 0 else axis for axis in wanted}
        if len(new) != len(wanted) or not new <= set(range(rank)):
            raise ValueError(f"axes is {wanted}; expected different axes from {-rank} to {rank - 1}")
        rest = iter(x.shape)
        return x.reshape(tuple(1 if i in new else next(rest) for i in range(rank)))

    return unsqueezed
