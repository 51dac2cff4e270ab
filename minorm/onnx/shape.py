"""Reshape, Transpose, Expand, Concat, Pad, Tile, Slice, Squeeze, Unsqueeze: elements move, nothing is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm import dtypes
from minorm.onnx.errors import Decline
from minorm.onnx.graph import Graph, Value
from minorm.onnx.reading import Node
from minorm.onnx.registry import lowers, reads, writes
from minorm.onnx.sizes import Length, Shape, Size
from minorm.ops import shape as ops
from minorm.tensor import Tensor

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)  # "to the end" in Slice, forwards and backwards


def reshape(g: Graph, x: Value, shape: Shape) -> Value:
    """x under another shape. A free length is written as 0 (as in x) or -1 (whatever is left) where that says it."""
    if 0 in shape:  # an empty axis; in a target, 0 means "as in x" unless allowzero says otherwise
        if not g.has("Reshape", 14):
            raise Decline("Reshape gives empty shapes (allowzero) from opset 14 on")
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


@writes(ops.Reshape, "Reshape", since=(5, 13, 14, 19, 21, 23, 24, 25))
def write_reshape(g: Graph, x: Value, shape: Shape) -> Value:
    return reshape(g, x, g.result.shape)


# Reshape. 5: the shape is an input. 14: a 0 may mean an empty axis (allowzero).


def reshaped(x: Tensor, shape: Sequence[int], allowzero: bool = False) -> Tensor:
    """x under another shape, in which 0 means "as in x" unless allowzero, and -1 "whatever is left"."""
    if not allowzero:
        shape = [x.shape[i] if n == 0 and i < x.ndim else n for i, n in enumerate(shape)]
    return x.reshape(tuple(shape))


@reads("Reshape", since=(1,))
def read_reshape_1(node: Node) -> Callable[[Tensor], Tensor]:
    return lambda x: reshaped(x, node["shape"])


@reads("Reshape", since=(5, 13, 14, 19, 21, 23, 24, 25), fixed=(1,))
def read_reshape_5(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    allowzero = node.since >= 14 and bool(node["allowzero"])
    return lambda x, shape: reshaped(x, shape.tolist(), allowzero)


def transpose(g: Graph, x: Value, order: Sequence[int]) -> Value:
    """Result axis i is axis order[i] of x."""
    return g.add("Transpose", x, shape=tuple(x.known_shape[i] for i in order), perm=list(order))


@writes(ops.Permute, "Transpose", since=(1, 13, 21, 23, 24, 25))
def write_permute(g: Graph, x: Value, order: tuple[int, ...]) -> Value:
    return transpose(g, x, order)


def expand(g: Graph, x: Value, shape: Shape) -> Value:
    """x stretched to `shape`; before Expand existed (8), by repeating its axes of length 1."""
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
    """`number` repeated to `shape`, as a constant where the shape is fixed."""
    if any(isinstance(n, Size) for n in shape):
        return expand(g, g.constant(number, dtype), shape)
    return g.constant(np.full([int(n) for n in shape], number, dtype))


@writes(ops.Expand, "Expand", since=(8, 13))
def write_expand_8(g: Graph, x: Value, shape: Shape) -> Value:
    return expand(g, x, g.result.shape)


@writes(ops.Expand, "Tile", since=(6,))
def write_expand_6(g: Graph, x: Value, shape: Shape) -> Value:
    return expand(g, x, g.result.shape)


@writes(ops.Cat, "Concat", since=(4, 11, 13))
def write_cat(g: Graph, arrays: tuple[Value, ...], axis: int) -> Value:
    return g.add("Concat", *arrays, axis=axis, shape=g.result.shape)


@writes(ops.Pad, "Pad", since=(2,))  # amounts and value are attributes
def write_pad_2(g: Graph, x: Value, widths: tuple[tuple[int, int], ...], value: float) -> Value:
    return pad(g, x, widths, value)


@writes(ops.Pad, "Pad", since=(11, 13, 18, 19, 21, 23, 24, 25))  # they are inputs; 11: integers
def write_pad_11(g: Graph, x: Value, widths: tuple[tuple[int, int], ...], value: float) -> Value:
    return pad(g, x, widths, value)


def pad(g: Graph, x: Value, widths: Sequence[tuple[Length, Length]], value: float) -> Value:
    """widths[i] = (before, after) elements of `value` around axis i, in the form of the opset."""
    amounts = [low for low, _ in widths] + [high for _, high in widths]
    shape = tuple(low + n + high for n, (low, high) in zip(x.known_shape, widths, strict=True))
    if not g.has("Pad", 11):
        return g.add("Pad", x, shape=shape, mode="constant", pads=[int(n) for n in amounts], value=float(value))
    return g.add("Pad", x, g.vector(tuple(amounts)), g.scalar(value, x), shape=shape, mode="constant")


@writes(ops.Repeat, "Tile", since=(6, 13))
def write_repeat(g: Graph, x: Value, counts: Shape) -> Value:
    if len(counts) > x.ndim:
        x = reshape(g, x, (1,) * (len(counts) - x.ndim) + x.known_shape)
    return g.add("Tile", x, g.vector(tuple(counts)), shape=g.result.shape)


def slice_(
    g: Graph,
    x: Value,
    axes: Sequence[int],
    starts: Sequence[Any],
    ends: Sequence[Any],
    steps: Sequence[int],
    shape: Shape,
) -> Value:
    """x[start:end:step] along some axes. 10: bounds are inputs, and steps exist."""
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
    """x[part] along one axis of fixed length, where Slice has no steps."""
    length = x.known_shape[axis]
    if isinstance(length, Size):
        raise Decline("Slice has steps from opset 10 on; before, only an axis of fixed length can be stepped through")
    indices = np.arange(length)[part]
    shape = (*x.known_shape[:axis], len(indices), *x.known_shape[axis + 1 :])
    return g.add("Gather", x, g.constant(indices, np.int64, "indices"), shape=shape, axis=axis)


@lowers(ops.Flip)
def write_flip(g: Graph, x: Value, axes: tuple[int, ...]) -> Value:
    n = len(axes)
    return slice_(g, x, axes, [-1] * n, [INT_MIN] * n, [-1] * n, x.known_shape) if n else g.add("Identity", x)


def squeeze(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """x without these axes of length 1. 13: the axes are an input."""
    shape = tuple(n for i, n in enumerate(x.known_shape) if i not in axes)
    if not axes:
        return x
    if g.has("Squeeze", 13):
        return g.add("Squeeze", x, g.constant(list(axes), dtypes.int64, "axes"), shape=shape)
    return g.add("Squeeze", x, shape=shape, axes=list(axes))


def unsqueeze(g: Graph, x: Value, axes: Sequence[int]) -> Value:
    """x with axes of length 1 at these places of the result. 13: the axes are an input."""
    rest = iter(x.known_shape)
    shape = tuple(1 if i in axes else next(rest) for i in range(x.ndim + len(axes)))
    if not axes:
        return x
    if g.has("Unsqueeze", 13):
        return g.add("Unsqueeze", x, g.constant(list(axes), dtypes.int64, "axes"), shape=shape)
    return g.add("Unsqueeze", x, shape=shape, axes=list(axes))


def channels(g: Graph, x: Value, vector: Value) -> Value:
    """A vector of C numbers shaped (C, 1, ...), to broadcast along axis 1 of x."""
    return reshape(g, vector, (*vector.known_shape, *(1,) * (x.ndim - 2)))
