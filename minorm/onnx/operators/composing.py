"""Helpers of conversion rules: turn attributes into inputs and back, check numbers, write shapes and formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import HALVES, LARGEST, Kind, NodeRewriter

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
INTEGERS = (TensorProto.INT64, TensorProto.INT32)


def to_input(d: NodeRewriter, name: str, place: int, elem: int = INT64) -> None:
    """Turn an attribute into an input."""
    value = d.take(name)
    if value is not None:
        d.feed(place, d.constant(value, elem, name))


def to_attribute(d: NodeRewriter, place: int, name: str, floats: bool = False) -> None:
    """Turn an input into an attribute of integers or floats; the file must fix the input."""
    if d.input(place):
        array = d.absorb(place, name)
        d.set(name, [float(n) for n in array.reshape(-1)] if floats else numbers(array, name))


def one_number(array: Any, what: str) -> Any:
    """Return the only element of a tensor; raise RuleNotApplicable unless there is exactly one element."""
    if np.size(array) != 1:
        raise RuleNotApplicable(f"{what} has {np.size(array)} elements; expected one")
    return np.reshape(array, -1)[0].item()


def checked_count(count: Any, what: str) -> int:
    """Check a count from the file, so that a file cannot make the rules create too many nodes or elements."""
    if not 0 <= count <= LARGEST:
        raise RuleNotApplicable(f"{what} is {count}; expected 0 to {LARGEST}")
    return int(count)


def place_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front."""
    if not -rank <= axis < rank:
        raise RuleNotApplicable(f"axis is {axis}; the value has {rank} axes")
    return axis % rank


def axes_from(d: NodeRewriter, x: str, axis: int) -> list[int]:
    """List this axis and all later axes; if `axis` is negative, all listed axes are negative."""
    if axis < 0:
        checked_count(-axis, "the number of axes")
        return [*range(axis, 0)]
    return [*range(axis, d.rank(x))]


def numbers(array: Any, what: str = "a tensor of integers") -> list[int]:
    """Return a fixed tensor of integers as a list."""
    if array.dtype.kind not in "iu":
        raise RuleNotApplicable(f"{what} has type {array.dtype}; expected int64 or int32")
    return [int(n) for n in array.reshape(-1)]


def part(d: NodeRewriter, x: str, begin: int, end: int, rank: int = 1) -> str:
    """Write x[begin:end] along the first axis."""
    where = [d.integers([n], "place") for n in (begin, end, 0)]
    return d.emit("Slice", x, *where, kind=Kind(d.kind(x).elem, (end - begin,) if rank == 1 else None))


def shape_of(d: NodeRewriter, x: str) -> str:
    """Write the shape of x as a tensor."""
    shape = d.kind(x).shape
    return d.emit("Shape", x, kind=Kind(INT64, None if shape is None else (len(shape),)))


def reshape(d: NodeRewriter, x: str, lengths: Sequence[int], kind: Kind | None = None) -> str:
    """Write a Reshape of x to these lengths; 0 keeps a length of x, and -1 stands for the remaining elements."""
    known = tuple(n if n > 0 else None for n in lengths)
    return d.emit("Reshape", x, d.integers(list(lengths), "shape"), kind=kind or Kind(d.kind(x).elem, known))


def unsqueeze(d: NodeRewriter, x: str, axes: Sequence[int], rank: int) -> str:
    """Write x with new axes of length 1; `rank` is the rank of the result."""
    return d.emit("Unsqueeze", x, d.integers(list(axes), "axes"), kind=Kind(d.kind(x).elem, (None,) * rank))


def stretched(d: NodeRewriter, p: str, rank: int) -> str:
    """Reshape a vector of C numbers so that it broadcasts along axis 1 of a value with `rank` axes."""
    return p if rank <= 2 else unsqueeze(d, p, range(1, rank - 1), rank - 1)


def cast(d: NodeRewriter, x: str, elem: int) -> str:
    """Write x in another element type; return x itself if it has that type."""
    return x if d.kind(x).elem == elem else d.emit("Cast", x, elem=elem)


def compose(d: NodeRewriter, formula: Callable[..., tuple[Any, ...]]) -> None:
    """Write the node's first output by a formula; 16-bit floats are computed in float32.

    `formula(*inputs)` returns the last operation of the formula.
    """
    half = d.elem(d.input(0)) in HALVES
    inputs = [cast(d, name, FLOAT) if name and half and d.elem(name) in HALVES else name for name in d.node.input]
    operator, *args = formula(*inputs)
    attributes = args.pop() if args and isinstance(args[-1], dict) else {}
    if half:
        y = d.emit(operator, *args, **attributes)
        d.replace("Cast", y, elem=d.elem(d.input(0))) if d.kind(y).elem == FLOAT else d.replace("Identity", y)
    else:
        d.replace(operator, *args, **attributes)
    d.node = None


def standardized(d: NodeRewriter, x: str, axes: Sequence[int], eps: float) -> tuple[str, str, str]:
    """Write (x - mean) / sqrt(var + eps); return the names of this value, of the mean and of the root.

    The mean can be large, so x is centred first.
    """
    mean, centred = centre(d, x, axes)
    var = mean_of(d, d.emit("Mul", centred, centred), axes)
    root = d.emit("Sqrt", d.emit("Add", var, d.scalar(eps, x, "epsilon")))
    return d.emit("Div", centred, root), mean, root


def centre(d: NodeRewriter, x: str, axes: Sequence[int]) -> tuple[str, str]:
    """Write the mean over `axes`, and the difference x - mean; return the names of these two values.

    The mean is rounded to the precision of x, so the mean of the differences is subtracted too.
    """
    mean = mean_of(d, x, axes)
    centred = d.emit("Sub", x, mean)
    rest = mean_of(d, centred, axes)
    return d.emit("Add", mean, rest), d.emit("Sub", centred, rest)


def mean_of(d: NodeRewriter, x: str, axes: Sequence[int], keep: bool = True) -> str:
    """Write the mean over axes; if `keep` is True, these axes stay with length 1."""
    kind = None if keep else Kind(d.kind(x).elem)
    return d.emit("ReduceMean", x, d.integers(list(axes), "axes"), keepdims=int(keep), kind=kind)
