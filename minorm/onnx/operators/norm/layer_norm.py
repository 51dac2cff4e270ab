"""LayerNormalization, which exists from opset 17 on and computes in float32.

Before 17, and for float64, we write the formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import TensorProto

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.node_layers import Written
from minorm.onnx.graph.node_rewriter import NodeRewriter
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import converts, lowers, reads, writes
from minorm.onnx.operators import precision
from minorm.onnx.operators.composing import axes_from, cast, standardized
from minorm.onnx.operators.norm.masks import unmasked
from minorm.onnx.operators.norm.moments import moments
from minorm.onnx.operators.norm.recognised import LayerNorm
from minorm.onnx.operators.norm.statistics import affine, cast_all, computed, is_usual, ones, standardize
from minorm.onnx.operators.precision import in_type, stash_type, widest
from minorm.ops.operands import axis_of
from minorm.tensor.tensor import Tensor


def first_axis(x: Value, normalized_shape: Any) -> int:
    """Return the first of the normalized axes, which are the last axes of x."""
    return x.ndim - (len(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else 1)


@writes(F.layer_norm, "LayerNormalization", since=17)
@unmasked
def write_17(
    g: Graph, x: Value, normalized_shape: Any, weight: Value | None, bias: Value | None, eps: float, compute_dtype: Any
) -> Value:
    if x.dtype == dtypes.float64 or not is_usual(x, compute_dtype, weight, bias):
        raise RuleNotApplicable("LayerNormalization takes one type for all inputs, and computes in float32")
    axis = first_axis(x, normalized_shape)
    scale = ones(g, [int(n) for n in x.known_shape[axis:]], x) if weight is None else weight
    return g.add("LayerNormalization", x, scale, bias, shape=x.shape, axis=axis, epsilon=eps)


@lowers(F.layer_norm)
@unmasked
def lower(
    g: Graph, x: Value, normalized_shape: Any, weight: Value | None, bias: Value | None, eps: float, compute_dtype: Any
) -> Value:
    data, scale, shift = cast_all(g, computed(x, compute_dtype), x, weight, bias)
    y = standardize(g, data, range(first_axis(x, normalized_shape), x.ndim), eps)
    return g.cast(affine(g, y, scale, shift), x.dtype)


@reads("LayerNormalization", since=17)
def read_17(node: Node) -> Callable[..., Any]:
    if isinstance(node.described, Written):
        return LayerNorm(node["epsilon"], node.described)
    stash, eps = stash_type(node), node["epsilon"]

    def layer_norm(x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
        first = axis_of("LayerNormalization", node["axis"], x)
        tail = x.shape[first:]
        plain = scale.shape == tail and (bias is None or bias.shape == tail)
        wide = widest(x, scale, bias, stash=stash)
        if plain:
            y = F.layer_norm(x, tail, scale, bias, eps, compute_dtype=wide)
        else:
            data, factor, shift = in_type(wide, x, scale, bias)
            y = precision.affine(F.layer_norm(data, tail, eps=eps), factor, shift).to(x.dtype)
        if not (node.wants(1) or node.wants(2)):
            return y
        mean, var = moments(x.to(wide), tuple(range(first, x.ndim)))
        return y, mean.to(stash), (1 / (var + eps).sqrt()).to(stash)

    return layer_norm


@converts("LayerNormalization", 17, 0)
def formula(d: NodeRewriter) -> None:
    """Write the formula in the stash type; 16-bit floats are rounded once, at the end."""
    x, scale, bias = (d.input(place) for place in range(3))
    stash, axis = d.get("stash_type", 1), d.get("axis", -1)
    elem = d.elem(x)
    wide = elem if elem == TensorProto.DOUBLE else stash
    axes = axes_from(d, x, axis)
    y, mean, root = standardized(d, cast(d, x, wide), axes, d.get("epsilon", 1e-5))
    for place, value in ((1, mean), (2, d.emit("Reciprocal", root) if d.output(2) else "")):
        if d.output(place):
            d.replace("Cast", value, place=place, elem=stash)
    y = d.emit("Mul", y, cast(d, scale, wide))
    y = d.emit("Add", y, cast(d, bias, wide)) if bias else y
    d.replace("Cast", y, elem=elem) if elem != wide else d.replace("Identity", y)
    d.node = None
