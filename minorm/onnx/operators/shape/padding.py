"""Read and write Pad.

Version 1 has the attribute `paddings`, and version 2 calls it `pads`. From 11 on, pads and value are inputs. Version 18
adds the input axes, and version 19 the mode wrap. Padding with a constant is written as a Pad. The modes reflect, edge
and wrap are written as a Gather along each axis of fixed length, and as a Pad around free axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto

import minorm.functional as F
from minorm.devices import dtypes
from minorm.functional.padding import COPIES, along
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.measuring import around
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.node_rewriter import Kind, NodeRewriter
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import converts, reads, writes
from minorm.onnx.graph.sizes import Length, Size
from minorm.onnx.operators.composing import numbers, one_number, part, to_attribute, to_input
from minorm.onnx.operators.shape.shape import INT_MAX, slice_
from minorm.ops import shape as ops
from minorm.ops.operands import axes_of
from minorm.tensor.tensor import Tensor

Pairs = Sequence[tuple[int, int]]
MODES = ("constant", "reflect", "edge", "wrap")


@writes(ops.Pad, "Pad", since=2)  # amounts and value are attributes
def write_pad_2(g: Graph, x: Value, widths: tuple[tuple[int, int], ...], value: float) -> Value:
    return pad(g, x, widths, value)


@writes(ops.Pad, "Pad", since=11)  # amounts and value are inputs, and integers are allowed
def write_pad_11(g: Graph, x: Value, widths: tuple[tuple[int, int], ...], value: float) -> Value:
    return pad(g, x, widths, value)


@writes(F.pad, "Pad", since=2)
def write_copies(g: Graph, input: Value, pad: Sequence[Length], mode: str, value: float | None) -> Value:
    """Write padding with copied elements if a padded axis is free; otherwise, another rule writes a Gather.

    Negative numbers cut elements off. Mode wrap cuts before it copies elements. The other modes cut after they copy
    elements.
    """
    if mode not in COPIES:
        raise RuleNotApplicable(f"in mode {mode} the padding has a value")
    if any(isinstance(n, Size) for n in pad):
        raise RuleNotApplicable("the amount of padding depends on a free axis")
    if not dtypes.is_float(input.dtype):
        raise RuleNotApplicable("runtimes pad only floats with copies")
    pairs = [(int(low), int(high)) for low, high in zip(pad[::2], pad[1::2], strict=True)]
    widths = [(0, 0)] * (input.ndim - len(pairs)) + pairs[::-1]
    if not any(isinstance(n, Size) and any(pair) for n, pair in zip(input.known_shape, widths, strict=True)):
        raise RuleNotApplicable("if all padded axes have fixed lengths, a Gather with constant indices is used")
    more = [(max(low, 0), max(high, 0)) for low, high in widths]
    x = g.cast(input, dtypes.float32) if input.dtype in dtypes.HALVES else input
    if mode == "circular":
        y = _wrapped(g, _cut(g, x, widths), more)
    else:
        y = _cut(g, copies(g, x, more, COPIES[mode]), widths)
    return g.cast(y, input.dtype)


def copies(g: Graph, x: Value, widths: Pairs, mode: str) -> Value:
    """Write a Pad with elements of x."""
    shape = tuple(low + n + high for n, (low, high) in zip(x.known_shape, widths, strict=True))
    amounts = [low for low, _ in widths] + [high for _, high in widths]
    if not any(amounts):
        return x
    if not g.has("Pad", 11):
        return g.add("Pad", x, shape=shape, mode=mode, pads=amounts)
    return g.add("Pad", x, g.vector(amounts), shape=shape, mode=mode)


def _wrapped(g: Graph, x: Value, widths: Pairs) -> Value:
    """Write mode wrap; version 19 added this mode, so before 19, concatenate the end of x, x and its beginning."""
    if g.has("Pad", 19):
        return copies(g, x, widths, "wrap")
    for axis, (low, high) in enumerate(widths):
        shape = x.known_shape
        end = [_part(g, x, axis, -low, INT_MAX, low)] if low else []
        beginning = [_part(g, x, axis, 0, high, high)] if high else []
        if end or beginning:
            longer = (*shape[:axis], low + shape[axis] + high, *shape[axis + 1 :])
            x = g.add("Concat", *end, x, *beginning, axis=axis, shape=longer)
    return x


def _cut(g: Graph, x: Value, widths: Pairs) -> Value:
    """Cut x by the negative widths."""
    for axis, (low, high) in enumerate(widths):
        if min(low, high) < 0:
            low, high = min(low, 0), min(high, 0)
            x = _part(g, x, axis, -low, high or INT_MAX, x.known_shape[axis] + low + high)
    return x


def _part(g: Graph, x: Value, axis: int, start: int, end: int, length: Length) -> Value:
    shape = (*x.known_shape[:axis], length, *x.known_shape[axis + 1 :])
    return slice_(g, x, [axis], [start], [end], [1], shape)


def pad(g: Graph, x: Value, widths: Sequence[tuple[Length, Length]], value: float) -> Value:
    """Write padding with `value` in the form that the opset has; widths[i] = (before, after) for axis i."""
    shape = tuple(low + n + high for n, (low, high) in zip(x.known_shape, widths, strict=True))
    if not g.has("Pad", 11):
        numbers = [int(low) for low, _ in widths] + [int(high) for _, high in widths]
        return g.add("Pad", x, shape=shape, mode="constant", pads=numbers, value=float(value))
    found = [around(g, low, high, n, m) for (low, high), n, m in zip(widths, x.known_shape, shape, strict=True)]
    amounts = g.vector([low for low, _ in found] + [high for _, high in found])
    return g.add("Pad", x, amounts, g.scalar(value, x), shape=shape, mode="constant")


def ahead(g: Graph, x: Value, padding: Sequence[tuple[Length, Length]], value: float) -> tuple[Value, Pairs]:
    """Return x and the padding of its windows; padding that depends on a free axis is written as a Pad node.

    If a Pad node is written, the result has the padded x, and a padding of 0.
    """
    if not any(isinstance(n, Size) for pair in padding for n in pair):
        return x, [(int(low), int(high)) for low, high in padding]
    return pad(g, x, [(0, 0), (0, 0), *padding], value), [(0, 0)] * len(padding)


@reads("Pad", since=1)
def read_pad_1(node: Node) -> Callable[[Tensor], Tensor]:
    mode, amounts = _mode(node), node["paddings" if node.since == 1 else "pads"]
    return lambda x: padded(node, x, amounts, range(x.ndim), mode, node["value"])


@reads("Pad", since=11, fixed=(1, 2, 3))
def read_pad_11(node: Node) -> Callable[..., Tensor]:
    mode = _mode(node)

    def pad(x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None) -> Tensor:
        places = range(x.ndim) if axes is None else axes_of("pad", tuple(integers(axes, "axes")), x)
        return padded(node, x, integers(pads, "pads"), places, mode, 0 if value is None else value.item())

    return pad


def _mode(node: Node) -> str:
    mode = str(node["mode"])
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; expected one of {', '.join(MODES)}")
    return mode


def padded(node: Node, x: Tensor, amounts: Sequence[int], axes: Sequence[int], mode: str, value: float) -> Tensor:
    """Pad the axes of x that `axes` lists.

    `amounts` has the numbers of elements to add before each axis, and then after each axis. A negative number cuts
    elements off.
    """
    if len(amounts) != 2 * len(axes):
        raise ValueError(
            f"pads is {list(amounts)}; expected two numbers, before and after, for each of {len(axes)} axes"
        )
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(axes):
        widths[axis] = amounts[i], amounts[i + len(axes)]
    for n, (low, high) in zip(x.shape, widths, strict=True):
        if n + min(low, 0) + min(high, 0) < 0:
            raise ValueError(f"pads is {list(amounts)}, which cuts off more elements than x of shape {x.shape} has")
    node.fits([n + max(low, 0) + max(high, 0) for n, (low, high) in zip(x.shape, widths, strict=True)], x.dtype)
    if mode == "constant":
        return ops.Pad.apply(x, widths=tuple(widths), value=value)
    for axis, (low, high) in enumerate(widths):
        if (low, high) == (0, 0):
            continue
        if mode == "wrap":  # negative numbers cut first; then the remaining elements repeat
            x = along(x, axis, min(low, 0), min(high, 0), mode)
            low, high = max(low, 0), max(high, 0)
        if x.shape[axis] == 0:
            raise ValueError(f"mode {mode} repeats elements of axis {axis}, which is empty")
        node.fits((x.shape[axis] + max(low, 0) + max(high, 0),), np.int64)
        x = along(x, axis, low, high, mode)
    return x


# To other versions


@converts("Pad", 1, 2)
def pad_2(d: NodeRewriter) -> None:
    d.set("pads", d.take("paddings"))


@converts("Pad", 2, 11)
def pad_11(d: NodeRewriter) -> None:
    value = d.take("value", 0.0)
    to_input(d, "pads", 1)
    if value:
        d.feed(2, d.constant(value, d.elem(d.input(0)), "value"))


@converts("Pad", 11, 2)
def pad_attributes(d: NodeRewriter) -> None:
    if d.input(2):
        d.set("value", float(one_number(d.absorb(2, "the value"), "the value")))
    to_attribute(d, 1, "pads")


@converts("Pad", 18, 13)
def pad_every_axis(d: NodeRewriter) -> None:
    """Add a padding of 0 for the axes that the node does not name."""
    if not d.input(3):
        return
    rank = d.rank(d.input(0))
    axes = [axis + rank if axis < 0 else axis for axis in numbers(d.absorb(3, "axes"))]
    amounts = d.array(1)
    if amounts is not None:
        widths = np.zeros((2, rank), np.int64)
        widths[:, axes] = amounts.reshape(2, len(axes))
        d.values.absorbed.add(d.input(1))
        d.feed(1, d.integers(widths.reshape(-1), "pads"))
        return
    nothing, given = d.integers([0], "nothing"), d.input(1)
    parts = [nothing] * (2 * rank)
    for place, axis in enumerate(axes):
        for side in range(2):
            at = place + side * len(axes)
            parts[axis + side * rank] = part(d, given, at, at + 1)
    d.feed(1, d.emit("Concat", *parts, axis=0, kind=Kind(TensorProto.INT64, (2 * rank,))))


@converts("Pad", 19, 18)
def pad_18(d: NodeRewriter) -> None:
    if d.get("mode", "constant") == "wrap":
        raise RuleNotApplicable("before opset 19 there is no mode wrap")
