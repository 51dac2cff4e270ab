"""Convert GridSample, RoiAlign and DFT."""

from __future__ import annotations

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import NodeRewriter
from minorm.onnx.graph.registry import converts
from minorm.onnx.operators.composing import one_number

MODES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}


@converts("GridSample", 16, 20)
def grid_sample_20(d: NodeRewriter) -> None:
    """Rename the modes to the new names, which do not depend on the number of axes."""
    if d.has("mode"):
        d.set("mode", MODES.get(d.get("mode"), d.get("mode")))


@converts("GridSample", 20, 16)
def grid_sample_16(d: NodeRewriter) -> None:
    if d.rank(d.input(0)) != 4:
        raise RuleNotApplicable("before opset 20 it takes images of four axes")
    if d.has("mode"):
        old = {new: old for old, new in MODES.items()}
        d.set("mode", old.get(d.get("mode"), d.get("mode")))


@converts("RoiAlign", 10, 16)
def roi_align_16(d: NodeRewriter) -> None:
    d.set("coordinate_transformation_mode", "output_half_pixel")


@converts("RoiAlign", 16, 10)
def roi_align_10(d: NodeRewriter) -> None:
    mode = d.take("coordinate_transformation_mode", "half_pixel")
    if mode != "output_half_pixel":
        raise RuleNotApplicable(f"before opset 16 coordinate_transformation_mode is output_half_pixel, not {mode}")


@converts("DFT", 17, 20)
def dft_20(d: NodeRewriter) -> None:
    d.feed(2, d.integers(d.take("axis", 1), "axis"))


@converts("DFT", 20, 17)
def dft_17(d: NodeRewriter) -> None:
    axis = one_number(d.absorb(2, "axis"), "axis") if d.input(2) else -2
    d.set("axis", axis + d.rank(d.input(0)) if axis < 0 else axis)
