"""Convert attributes that became inputs: lengths, axes and parts of Reshape, Squeeze, Split, Slice, Reduce* and more.

A node can be converted to an older version only if the file fixes the input.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import CONSTANT_1, Kind, NodeRewriter, constant_of
from minorm.onnx.graph.registry import converts
from minorm.onnx.operators.composing import (
    BOOL,
    FLOAT,
    INT64,
    cast,
    checked_count,
    numbers,
    one_number,
    place_of,
    reshape,
    shape_of,
    to_attribute,
    to_input,
)

END = 2**63 - 1  # past every axis

# Squeeze, Unsqueeze, Reduce*


def _axes_in(d: NodeRewriter) -> None:
    if d.has("axes") and not d.get("axes"):
        d.drop("axes")
    to_input(d, "axes", 1)


def _axes_out(d: NodeRewriter) -> None:
    to_attribute(d, 1, "axes")
    axes, shape = d.get("axes") or [], d.kind(d.input(0)).shape
    if min(axes, default=0) < 0 <= max(axes, default=0) and shape is not None:  # onnx infers shapes by their order
        rank = len(shape) + (len(axes) if d.node.op_type == "Unsqueeze" else 0)
        d.set("axes", sorted(axis + rank if axis < 0 else axis for axis in axes))


def _reduced(d: NodeRewriter) -> None:
    nothing = d.take("noop_with_empty_axes", 0)
    axes = numbers(d.absorb(1, "axes")) if d.input(1) else []
    if axes:
        d.set("axes", axes)
    elif nothing:
        if d.node.op_type.removeprefix("Reduce") not in ("Sum", "Mean", "Max", "Min", "Prod"):
            raise RuleNotApplicable("noop_with_empty_axes=1 without axes")
        d.replace("Identity", d.input(0))
        d.node = None


for _operator in ("Squeeze", "Unsqueeze"):
    converts(_operator, 11, 13)(_axes_in)
    converts(_operator, 13, 11)(_axes_out)
converts("ReduceSum", 11, 13)(_axes_in)
converts("ReduceSum", 13, 11)(_reduced)
for _operator in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare"):
    converts(f"Reduce{_operator}", 13, 18)(_axes_in)
    converts(f"Reduce{_operator}", 18, 13)(_reduced)


# Reshape, Shape, Tile, Expand, Concat


@converts("Reshape", 1, 5)
def reshape_5(d: NodeRewriter) -> None:
    d.drop("consumed_inputs")
    to_input(d, "shape", 1)


@converts("Reshape", 14, 13)
def reshape_13(d: NodeRewriter) -> None:
    """Drop allowzero; raise an error if the shape has a fixed 0.

    With allowzero, a 0 in the shape is a length; without it, a 0 copies a length of x.
    """
    if d.take("allowzero", 0):
        lengths = d.array(1)
        if lengths is not None and 0 in lengths:
            raise RuleNotApplicable("with allowzero=1, a length of 0 cannot be written")


@converts("Shape", 15, 13)
def shape_13(d: NodeRewriter) -> None:
    start, end = d.take("start", 0), d.take("end")
    if start or end is not None:
        kind = d.kind(d.input(0)).shape
        name, whole = d.output(0), d.divert(0, Kind(INT64, None if kind is None else (len(kind),)))
        where = [d.integers([n], "place") for n in (start, END if end is None else end, 0)]
        d.after("Slice", whole, *where, to=name)


@converts("Tile", 1, 6)
def tile_6(d: NodeRewriter) -> None:
    count, axis = (int(one_number(d.absorb(place, what), what)) for place, what in ((1, "tiles"), (2, "axis")))
    repeats = [1] * d.rank(d.input(0))
    repeats[place_of(axis, len(repeats))] = count
    d.feed(1, d.integers(repeats, "repeats"))


@converts("Expand", 8, 0)
def expand_0(d: NodeRewriter) -> None:
    """Write Expand as a product with ones, because this product leaves all numbers exactly unchanged."""
    lengths = numbers(d.absorb(1, "the shape"))
    if d.elem(d.input(0)) == BOOL:
        raise RuleNotApplicable("it exists from opset 8 on")
    checked_count(math.prod(lengths), "the number of elements")
    d.replace("Mul", d.input(0), d.constant(np.ones(lengths), d.elem(d.input(0)), "ones"))
    d.node = None


@converts("Concat", 1, 4)
def concat_4(d: NodeRewriter) -> None:
    if not d.has("axis"):
        d.set("axis", 1)


# Split


@converts("Split", 1, 2)
def split_2(d: NodeRewriter) -> None:
    to_attribute(d, 1, "split")
    if not d.has("axis"):
        d.set("axis", 0)


@converts("Split", 11, 13)
def split_13(d: NodeRewriter) -> None:
    to_input(d, "split", 1)


@converts("Split", 13, 11)
def split_11(d: NodeRewriter) -> None:
    to_attribute(d, 1, "split")


@converts("Split", 13, 18)
def split_18(d: NodeRewriter) -> None:
    if not d.input(1):
        d.set("num_outputs", len(d.node.output))


@converts("Split", 18, 13)
def split_equally(d: NodeRewriter) -> None:
    """Write the lengths of the parts if they differ, because before 18, parts without given lengths are equal."""
    count = d.take("num_outputs")
    if count is None or d.input(1):
        return
    checked_count(count, "num_outputs")
    axis, shape = d.get("axis", 0), d.kind(d.input(0)).shape
    n = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    if isinstance(n, int):
        size = -(-n // count)
        if n % count:
            d.feed(1, d.integers([max(0, min(size, n - i * size)) for i in range(count)], "split"))
        return
    if d.opset < 13:
        raise RuleNotApplicable("the lengths of the parts depend on a free axis")
    lengths = shape_of(d, d.input(0))
    n = d.emit("Gather", lengths, d.integers([axis], "axis"), kind=Kind(INT64, (1,)))
    size = d.emit("Div", d.emit("Add", n, d.integers([count - 1], "more")), d.integers([count], "parts"))
    nothing = d.integers([0], "nothing")
    starts = [nothing, *(d.emit("Mul", size, d.integers([i], "part")) for i in range(1, count))]
    left = [d.emit("Max", d.emit("Sub", n, start), nothing) for start in starts]
    parts = [d.emit("Min", size, rest) for rest in left]
    d.feed(1, d.emit("Concat", *parts, axis=0, kind=Kind(INT64, (count,))))


# Slice


@converts("Slice", 1, 10)
def slice_10(d: NodeRewriter) -> None:
    for place, name in ((1, "starts"), (2, "ends"), (3, "axes")):
        to_input(d, name, place)


@converts("Slice", 11, 10)
def slice_positive(d: NodeRewriter) -> None:
    """Make negative axes positive, because axes may not be negative before version 11."""
    axes = d.array(3)
    if axes is None and d.input(3):
        raise RuleNotApplicable("its axes are computed at run time and may be negative")
    if axes is not None and (axes < 0).any():
        rank = d.rank(d.input(0))
        d.values.absorbed.add(d.input(3))
        d.feed(3, d.integers(np.where(axes < 0, axes + rank, axes), "axes"))


@converts("Slice", 10, 1)
def slice_1(d: NodeRewriter) -> None:
    if d.input(4) and set(numbers(d.absorb(4, "steps"))) - {1}:
        raise RuleNotApplicable("before opset 10 a slice has only steps of 1")
    for place, name in ((3, "axes"), (2, "ends"), (1, "starts")):
        to_attribute(d, place, name)


# Constants


@converts("Constant", 12, 11)
def constant_11(d: NodeRewriter) -> None:
    given = d.node.attribute[0].name if d.node.attribute else ""
    if given in ("value_string", "value_strings"):
        value = d.take(given)
        strings = value if isinstance(value, list) else [value]
        shape = [len(strings)] if isinstance(value, list) else []
        d.set("value", helper.make_tensor(d.output(0), TensorProto.STRING, shape, strings))
    elif given not in ("value", "sparse_value"):
        tensor = constant_of(d.node)
        if tensor is None:
            raise RuleNotApplicable(f"its attribute {given} comes from an attribute of the function around it")
        d.drop(given)
        d.set("value", tensor)


@converts("Constant", 9, 1)
def constant_1(d: NodeRewriter) -> None:
    """Keep a Constant of floats; other numbers become initializers."""
    tensor = TensorProto()
    tensor.CopyFrom(d.get("value"))
    if tensor.data_type not in CONSTANT_1:
        tensor.name = d.output(0)
        d.hold(tensor)
        d.node = None


@converts("ConstantOfShape", 9, 0)
def constant_of_shape(d: NodeRewriter) -> None:
    value = d.get("value")
    number = 0.0 if value is None else one_number(numpy_helper.to_array(value), "value")
    elem = FLOAT if value is None else value.data_type
    lengths = d.array(0)
    if lengths is None:
        d.replace("Expand", d.constant([number], elem, "value"), d.input(0))
    else:
        checked_count(math.prod(numbers(lengths)), "the number of elements")
        made = d.constant(np.full(numbers(lengths), number), elem, "value")
        d.replace("Identity", made)
    d.node = None


@converts("Range", 11, 0)
def range_0(d: NodeRewriter) -> None:
    """Write fixed numbers as a constant; otherwise, write nodes that find the indices of a row of ones."""
    start, limit, delta = (d.array(place) for place in range(3))
    if start is not None and limit is not None and delta is not None:
        first, end, step = one_number(start, "start"), one_number(limit, "limit"), one_number(delta, "delta")
        checked_count(max(0.0, (end - first) / step), "the number of elements")
        values = np.arange(first, end, step)
        d.replace("Identity", d.constant(values, d.elem(d.input(0)), "range"))
        d.node = None
        return
    if d.elem(d.input(0)) != INT64 or delta is None or one_number(delta, "delta") != 1:
        raise RuleNotApplicable("it exists from opset 11 on")
    zero = d.integers(0, "zero")
    count = d.emit("Sub", d.input(1), d.input(0), kind=Kind(INT64, ()))
    count = d.emit("Mul", count, cast(d, d.emit("Greater", count, zero, kind=Kind(BOOL, ())), INT64))
    one = helper.make_tensor("value", INT64, [1], [1])
    row = d.emit("ConstantOfShape", reshape(d, count, [1]), value=one, kind=Kind(INT64, (None,)))
    places = d.emit("NonZero", row, kind=Kind(INT64, (1, None)))
    places = d.emit("Squeeze", places, d.integers([0], "axes"), kind=Kind(INT64, (None,)))
    d.replace("Add", places, d.input(0), kind=Kind(INT64, (None,)))
    d.node = None


@converts("Trilu", 14, 0)
def trilu_0(d: NodeRewriter) -> None:
    """Select the elements for which column - row >= k (if upper) or column - row <= k (if not upper)."""
    x, upper = d.input(0), d.get("upper", 1)
    k = d.input(1) or d.integers(0, "k")
    if d.opset < 9:
        raise RuleNotApplicable("it exists from opset 14 on")
    lengths = shape_of(d, x)
    rank = d.rank(x)
    rows, columns = (
        d.emit(
            "Range",
            d.integers(0, "begin"),
            d.emit("Gather", lengths, d.integers(axis, "axis"), kind=Kind(INT64, ())),
            d.integers(1, "step"),
            kind=Kind(INT64, (None,)),
        )
        for axis in (rank - 2, rank - 1)
    )
    column = d.emit("Unsqueeze", rows, d.integers([1], "axes"), kind=Kind(INT64, (None, 1)))
    away = d.emit("Sub", columns, column, kind=Kind(INT64, (None, None)))
    outside = d.emit("Less" if upper else "Greater", away, k, kind=Kind(BOOL, (None, None)))
    d.replace("Where", outside, d.scalar(0, x), x, kind=d.kind(d.output(0)))
    d.node = None
