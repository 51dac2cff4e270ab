"""Convert Upsample and Resize to other versions.

The scales are an attribute in version 7, and an input from 9 on. From 10 on, the operator is called Resize. Version 11
adds coordinate modes and sizes, and version 18 adds axes. Before 11, a coordinate is i / scale, and `nearest` rounds up
along an axis that shrinks and down along other axes.
"""

from __future__ import annotations

import numpy as np

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import FLOATS, HALVES, LARGEST, Kind, NodeRewriter
from minorm.onnx.graph.registry import converts
from minorm.onnx.operators.composing import FLOAT, INT64, cast, part, shape_of, to_attribute, to_input
from minorm.ops.resizing import ROUNDINGS, coordinates, matrix


@converts("Upsample", 1, 7)
def upsample_7(d: NodeRewriter) -> None:
    d.set("scales", [1.0, 1.0, d.take("height_scale"), d.take("width_scale")])


@converts("Upsample", 7, 9)
def upsample_9(d: NodeRewriter) -> None:
    to_input(d, "scales", 1, FLOAT)


@converts("Upsample", 9, 7)
def upsample_attribute(d: NodeRewriter) -> None:
    to_attribute(d, 1, "scales", floats=True)


@converts("Upsample", 9, 10)
def resize_10(d: NodeRewriter) -> None:
    if d.get("mode", "nearest") == "bilinear":  # not in the specification, but in files
        d.set("mode", "linear")
    d.node.op_type = "Resize"


@converts("Resize", 10, 0)
def upsample(d: NodeRewriter) -> None:
    scales = d.array(1)
    if scales is None or (scales < 1).any():
        raise RuleNotApplicable("it exists from opset 10 on; the older Upsample takes only fixed scales of at least 1")
    d.node.op_type, d.since = "Upsample", 9


@converts("Resize", 10, 11)
def resize_11(d: NodeRewriter) -> None:
    """Choose one rounding for all axes, although `nearest` before 11 rounds up only along axes that shrink."""
    d.set("coordinate_transformation_mode", "asymmetric")
    if d.get("mode", "nearest") == "nearest":
        scales = d.array(1)
        if scales is not None and (scales < 1).any() and (scales > 1).any():
            raise RuleNotApplicable("some axes grow and some shrink")
        d.set("nearest_mode", "ceil" if scales is not None and (scales < 1).any() else "floor")
    d.feed(2, d.input(1))
    d.feed(1, d.constant(np.zeros(0), FLOAT, "roi"))


@converts("Resize", 11, 10)
def resize_before_11(d: NodeRewriter) -> None:
    scales, mode = d.array(2), d.get("mode", "nearest")
    kind = d.get("coordinate_transformation_mode", "half_pixel")
    rounding = d.get("nearest_mode", "round_prefer_floor")
    same = not d.input(3) and scales is not None and scales.size and mode != "cubic" and kind == "asymmetric"
    if same and mode == "nearest":
        same = rounding == ("floor" if (scales >= 1).all() else "ceil" if (scales <= 1).all() else "")
    elif mode == "nearest" and not d.input(3) and scales is not None and scales.size:
        # With a whole scale the nearest element is the same.
        whole = ((scales >= 1) & (scales == np.round(scales))).all()
        same = whole and kind == "half_pixel" and rounding.startswith("round")
    if not same:
        _axis_by_axis(d, mode, kind, rounding)
        return
    for name in ("coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside"):
        d.drop(name)
    d.drop("extrapolation_value")
    names = d.input(1), d.input(2)
    d.values.absorbed.add(names[0])
    del d.node.input[1:]
    d.feed(1, names[1])


def _axis_by_axis(d: NodeRewriter, mode: str, kind: str, rounding: str) -> None:
    """For fixed lengths, write a matrix product along each axis, or (nearest) a selection of elements."""
    x, elem = d.input(0), d.elem(d.input(0))
    before, after = d.shape(x), d.kind(d.output(0)).shape
    scales = d.array(2)
    if scales is None and d.input(2):
        raise RuleNotApplicable("before opset 11 Resize takes only fixed scales")
    if elem not in FLOATS or kind == "tf_crop_and_resize" or after is None or len(after) != len(before):
        raise RuleNotApplicable(
            "before opset 11, Resize computes coordinates only as i / scale with fixed scales; "
            f"this one is {kind} ({mode})"
        )
    y = cast(d, x, FLOAT) if elem in HALVES else x
    for axis, (n, m) in enumerate(zip(before, after, strict=True)):
        given = float(scales[axis]) if scales is not None and scales.size else None
        if given == 1 or (given is None and n == m and n is not None):
            continue
        if not isinstance(n, int) or not isinstance(m, int) or not n or not m or n * m > LARGEST:
            raise RuleNotApplicable(
                f"before opset 11 Resize has no {kind} ({mode}), and the length of axis {axis} is free"
            )
        scale = m / n if given is None else given
        places = coordinates(kind, n, m, scale, 0.0, 1.0, np.float32 if mode == "nearest" else np.float64)
        if mode == "nearest":
            picked = ROUNDINGS[rounding](places).astype(np.int64).clip(0, n - 1)
            y = d.emit("Gather", y, d.integers(picked, "places"), axis=axis, kind=d.kind(y))
        else:
            slope, inside = d.get("cubic_coeff_a", -0.75), bool(d.get("exclude_outside", 0))
            weights = matrix(mode, places, n, scale, slope, False, inside).T
            y = _product(d, y, axis, d.constant(weights, d.elem(y), "weights"))
    d.values.absorbed.update(filter(None, d.node.input[1:]))
    d.replace("Cast", y, elem=elem) if elem in HALVES else d.replace("Identity", y)
    d.node = None


def _product(d: NodeRewriter, x: str, axis: int, weights: str) -> str:
    """Multiply x by a matrix along an axis."""
    kind = Kind(d.kind(x).elem, (None,) * d.rank(x))
    order = [*range(d.rank(x))]
    order[axis], order[-1] = order[-1], order[axis]
    if axis == len(order) - 1:
        return d.emit("MatMul", x, weights, kind=kind)
    turned = d.emit("MatMul", d.emit("Transpose", x, perm=order, kind=kind), weights, kind=kind)
    return d.emit("Transpose", turned, perm=order, kind=kind)


@converts("Resize", 11, 13)
def resize_13(d: NodeRewriter) -> None:
    """Remove empty tensors, which stand for absent inputs before 13."""
    for place in (2, 1):
        array = d.array(place)
        if array is not None and not array.size:
            d.values.absorbed.add(d.input(place))
            d.feed(place, "")
    if d.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        if d.get("mode", "nearest") != "nearest" or d.get("nearest_mode", "") != "floor":
            raise RuleNotApplicable("from opset 13 on there is no tf_half_pixel_for_nn")
        d.set("coordinate_transformation_mode", "half_pixel")  # floor(u + 1/2) is u rounded, halves up
        d.set("nearest_mode", "round_prefer_ceil")


@converts("Resize", 13, 11)
def resize_wants_all(d: NodeRewriter) -> None:
    for place, name in ((1, "roi"), (2, "scales")):
        if not d.input(place):
            d.feed(place, d.constant(np.zeros(0), FLOAT, name))


@converts("Resize", 18, 13)
def resize_every_axis(d: NodeRewriter) -> None:
    """Give the node a scale or a length for every axis; an axis that the node does not name stays unchanged."""
    if d.take("antialias", 0):
        raise RuleNotApplicable("before opset 18 there is no antialias")
    if d.take("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise RuleNotApplicable("before opset 18 keep_aspect_ratio_policy is stretch")
    axes = d.take("axes")
    if axes is None:
        return
    if d.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise RuleNotApplicable("before opset 18 a roi needs all axes")
    x, rank = d.input(0), d.rank(d.input(0))
    axes = [axis + rank if axis < 0 else axis for axis in axes]
    for place, elem in ((2, FLOAT), (3, INT64)):
        given, fixed = d.input(place), d.array(place)
        if not given or (fixed is not None and not fixed.size):
            continue
        if fixed is not None and place == 2:
            scales = np.ones(rank)
            scales[axes] = fixed
            d.values.absorbed.add(given)
            d.feed(2, d.constant(scales, FLOAT, "scales"))
            continue
        lengths = shape_of(d, x) if place == 3 else d.constant(np.ones(rank), FLOAT, "ones")
        parts = [
            part(d, given if axis in axes else lengths, at, at + 1)
            for axis in range(rank)
            for at in [axes.index(axis) if axis in axes else axis]
        ]
        d.feed(place, d.emit("Concat", *parts, axis=0, kind=Kind(elem, (rank,))))


@converts("Resize", 19, 18)
def resize_18(d: NodeRewriter) -> None:
    mode = d.get("coordinate_transformation_mode", "half_pixel")
    if mode == "half_pixel_symmetric":
        raise RuleNotApplicable("before opset 19 there is no half_pixel_symmetric")
