"""Convert QuantizeLinear and DequantizeLinear, which have one scale for the whole tensor before version 13."""

from __future__ import annotations

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.node_rewriter import NodeRewriter
from minorm.onnx.graph.registry import converts
from minorm.onnx.operators.composing import FLOAT, place_of, unsqueeze


def _per_tensor(d: NodeRewriter) -> bool:
    shape = d.shape(d.input(1))
    return all(n == 1 for n in shape)


@converts("QuantizeLinear", 13, 10)
def quantize_10(d: NodeRewriter) -> None:
    if not _per_tensor(d):
        raise RuleNotApplicable("before opset 13 there is one scale for the whole tensor")
    d.drop("axis")


@converts("DequantizeLinear", 13, 10)
def dequantize_10(d: NodeRewriter) -> None:
    """Write a DequantizeLinear with scales along an axis as the formula (x - zero_point) * scale."""
    if _per_tensor(d):
        d.drop("axis")
        return
    x, scale, zero = d.input(0), d.input(1), d.input(2)
    rank = d.rank(x)
    axis = place_of(d.get("axis", 1), rank)
    around = [*range(axis), *range(axis + 1, rank)]
    value = d.emit("Cast", x, elem=FLOAT)
    if zero:
        value = d.emit("Sub", value, unsqueeze(d, d.emit("Cast", zero, elem=FLOAT), around, rank))
    d.replace("Mul", value, unsqueeze(d, scale, around, rank))
    d.node = None
