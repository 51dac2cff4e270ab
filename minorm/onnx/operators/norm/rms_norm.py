"""RMSNormalization, which exists from opset 23 on and computes in float32.

Before 23, and for float64, we write the formula.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.decimals import shortest
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.node_layers import Written
from minorm.onnx.graph.node_rewriter import NodeRewriter
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import converts, lowers, reads, writes
from minorm.onnx.operators import precision
from minorm.onnx.operators.composing import axes_from, cast, mean_of
from minorm.onnx.operators.norm.layer_norm import first_axis
from minorm.onnx.operators.norm.masks import unmasked
from minorm.onnx.operators.norm.recognised import RMSNorm
from minorm.onnx.operators.norm.statistics import affine, cast_all, computed, is_usual, ones, standardize
from minorm.onnx.operators.precision import in_type, stash_type, widest
from minorm.ops.operands import axis_of
from minorm.tensor.tensor import Tensor

STEP = float(np.finfo(np.float32).eps)  # the value of eps=None: not a short decimal, so it is read unrounded


def epsilon(x: Value, eps: float | None) -> float:
    return float(np.finfo(dtypes.compute_type(x.dtype)).eps) if eps is None else eps


@writes(F.rms_norm, "RMSNormalization", since=23)
@unmasked
def write_23(
    g: Graph, x: Value, normalized_shape: Any, weight: Value | None, eps: float | None, compute_dtype: Any
) -> Value:
    if x.dtype == dtypes.float64 or not is_usual(x, compute_dtype, weight):
        raise RuleNotApplicable("RMSNormalization takes one type for all inputs, and computes in float32")
    axis = first_axis(x, normalized_shape)
    scale = ones(g, [int(n) for n in x.known_shape[axis:]], x) if weight is None else weight
    small = epsilon(x, eps)
    return g.add(
        "RMSNormalization", x, scale, shape=x.shape, axis=axis, epsilon=shortest(STEP) if small == STEP else small
    )


@lowers(F.rms_norm)
@unmasked
def lower(
    g: Graph, x: Value, normalized_shape: Any, weight: Value | None, eps: float | None, compute_dtype: Any
) -> Value:
    data, scale = cast_all(g, computed(x, compute_dtype), x, weight)
    y = standardize(g, data, range(first_axis(x, normalized_shape), x.ndim), epsilon(x, eps), centered=False)
    return g.cast(affine(g, y, scale, None), x.dtype)


@reads("RMSNormalization", since=23)  # the result has the scale's type
def read_23(node: Node) -> Callable[[Tensor, Tensor], Tensor] | RMSNorm:
    eps = STEP if node["epsilon"] == shortest(STEP) else node["epsilon"]
    if isinstance(node.described, Written):
        return RMSNorm(eps, node.described)
    stash = stash_type(node)

    def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
        tail = x.shape[axis_of("RMSNormalization", node["axis"], x) :]
        wide = widest(x, scale, stash=stash)
        if scale.shape == tail and scale.dtype == x.dtype:
            return F.rms_norm(x, tail, scale, eps, compute_dtype=wide)
        data, factor = in_type(wide, x, scale)
        return precision.affine(F.rms_norm(data, tail, eps=eps), factor, None).to(scale.dtype)

    return rms_norm


@converts("RMSNormalization", 23, 0)
def formula(d: NodeRewriter) -> None:
    """Write the formula in the stash type; the result has the type of the scale."""
    x, scale = d.input(0), d.input(1)
    axis, elem = d.get("axis", -1), d.elem(scale)
    wide = TensorProto.DOUBLE if d.elem(x) == TensorProto.DOUBLE else d.get("stash_type", 1)
    axes = axes_from(d, x, axis)
    data = cast(d, x, wide)
    squares = mean_of(d, d.emit("Mul", data, data), axes)
    root = d.emit("Sqrt", d.emit("Add", squares, d.scalar(d.get("epsilon", 1e-5), data, "epsilon")))
    y = d.emit("Mul", d.emit("Div", data, root), cast(d, scale, wide))
    d.replace("Cast", y, elem=elem) if elem != wide else d.replace("Identity", y)
    d.node = None
