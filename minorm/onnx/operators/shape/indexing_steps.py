"""Convert Gather, Scatter and OneHot, whose indices may count from the end from version 11 on, and TopK."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import FLOATS, Kind, NodeRewriter
from minorm.onnx.graph.registry import converts
from minorm.onnx.operators.composing import BOOL, INT64, INTEGERS, one_number, shape_of


def _length(d: NodeRewriter, axis: int) -> str:
    """Write the length of an axis of input 0, as an int64 scalar."""
    axis += d.rank(d.input(0)) if axis < 0 else 0
    return d.emit("Gather", shape_of(d, d.input(0)), d.integers(axis, "axis"), kind=Kind(INT64, ()))


def _positive(d: NodeRewriter, axis: int) -> None:
    """Make the indices positive; if the file does not fix the indices, write nodes that add the length of the axis."""
    indices = d.array(1)
    name = d.input(1)
    if indices is not None and (indices >= 0).all():
        return
    shape = d.kind(d.input(0)).shape
    known = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    if indices is not None and isinstance(known, int):
        d.values.absorbed.add(name)
        d.feed(1, d.constant(np.where(indices < 0, indices + known, indices), d.elem(name), "indices"))
        return
    length = d.integers(known, "length") if isinstance(known, int) else _length(d, axis)
    d.feed(1, _wrapped(d, name, length))


def _wrapped(d: NodeRewriter, indices: str, length: str) -> str:
    elem = d.elem(indices)
    if elem != INT64:
        length = d.emit("Cast", length, elem=elem)
    if d.opset >= 9:
        negative = d.emit("Less", indices, d.constant(0, elem, "zero"))
    else:  # Less takes only floats
        negative = d.emit("Less", d.emit("Cast", indices, elem=11), d.constant(0, 11, "zero"))
    return d.emit("Add", indices, d.emit("Mul", d.emit("Cast", negative, elem=elem), length))


@converts("Gather", 11, 1)
def gather_1(d: NodeRewriter) -> None:
    _positive(d, d.get("axis", 0))


@converts("Scatter", 9, 11)
def scatter_elements(d: NodeRewriter) -> None:
    d.node.op_type = "ScatterElements"


@converts("ScatterElements", 11, 0)
def scatter_9(d: NodeRewriter) -> None:
    if d.opset < 9:
        raise RuleNotApplicable("it exists from opset 9 on, as Scatter")
    _positive(d, d.get("axis", 0))
    axis = d.get("axis", 0)
    if axis < 0:
        d.set("axis", axis + d.rank(d.input(0)))
    d.node.op_type, d.since = "Scatter", 9


def _less_reductions(d: NodeRewriter) -> None:
    if d.get("reduction", "none") in ("max", "min"):
        raise RuleNotApplicable(f"before opset 18 there is no reduction {d.get('reduction')}")


converts("ScatterElements", 18, 16)(_less_reductions)
converts("ScatterND", 18, 16)(_less_reductions)


@converts("OneHot", 9, 11)
def one_hot_11(d: NodeRewriter) -> None:
    """Replace negative indices by the depth.

    Before 11, negative indices are out of range. From 11 on, they count from the end, but the depth is out of range.
    """
    _one_hot(d, lambda depth, negative, indices: d.emit("Where", negative, depth, indices))


@converts("OneHot", 11, 9)
def one_hot_9(d: NodeRewriter) -> None:
    axis = d.get("axis", -1)
    if axis < -1:
        d.set("axis", axis + d.rank(d.input(0)) + 1)

    def wrapped(depth: str, negative: str, indices: str) -> str:
        places = d.emit("Where", negative, d.emit("Add", indices, depth), indices)
        outside = d.emit("Less", places, d.constant(0, d.elem(indices), "zero"))
        return d.emit("Where", outside, depth, places)

    _one_hot(d, wrapped)


def _one_hot(d: NodeRewriter, instead: Callable[[str, str, str], str]) -> None:
    indices, depth = d.input(0), d.input(1)
    fixed = d.array(0)
    if fixed is not None and (fixed >= 0).all():
        return
    elem = d.elem(indices)
    if elem not in (*INTEGERS, *FLOATS):
        return  # unsigned
    kind = Kind(elem, d.kind(indices).shape)
    negative = d.emit("Less", indices, d.constant(0, elem, "zero"), kind=Kind(BOOL, kind.shape))
    depth = d.emit("Reshape", d.emit("Cast", depth, elem=elem), d.integers([1], "one"), kind=Kind(elem, (1,)))
    d.feed(0, instead(depth, negative, indices))
    d.values.made[d.input(0)] = kind


# TopK


@converts("TopK", 1, 10)
def topk_10(d: NodeRewriter) -> None:
    d.feed(1, d.integers([d.take("k")], "k"))


@converts("TopK", 10, 1)
def topk_1(d: NodeRewriter) -> None:
    d.set("k", int(one_number(d.absorb(1, "k"), "k")))


@converts("TopK", 11, 10)
def topk_largest(d: NodeRewriter) -> None:
    """Always sort, because sorted=0 allows any order; find the smallest elements as the largest elements of -x."""
    d.drop("sorted")
    if d.take("largest", 1):
        return
    if d.elem(d.input(0)) not in FLOATS:
        raise RuleNotApplicable("before opset 11 TopK finds only the largest")
    d.feed(0, d.emit("Neg", d.input(0)))
    if d.output(0):
        name = d.output(0)
        d.after("Neg", d.divert(0, Kind(d.elem(d.input(0)))), to=name)
