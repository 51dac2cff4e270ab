"""MeanVarianceNormalization 9 and 13, which always add 1e-9 to the standard deviation.

For another eps, we write the formula. We also write the formula for float16 and float64, because the function body that
ONNX publishes has wrong types for these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.node_rewriter import NodeRewriter
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import converts, lowers, reads, writes
from minorm.onnx.graph.sizes import product
from minorm.onnx.operators.composing import centre, compose, mean_of
from minorm.onnx.operators.norm.masks import unmasked
from minorm.onnx.operators.norm.statistics import computed, is_usual, standardize
from minorm.tensor.tensor import Tensor


@writes(F.mean_variance_norm, "MeanVarianceNormalization", since=9)
@unmasked
def write_9(g: Graph, x: Value, axes: Sequence[int], eps: float, compute_dtype: Any) -> Value:
    if eps != 1e-9 or x.dtype != dtypes.float32 or not is_usual(x, compute_dtype):
        raise RuleNotApplicable("MeanVarianceNormalization is used only for float32 and eps=1e-9")
    if product(x.known_shape[axis] for axis in axes) == 1:
        raise RuleNotApplicable("MeanVarianceNormalization of single elements is NaN in onnxruntime, but 0 in minorm")
    return g.add("MeanVarianceNormalization", x, shape=x.shape, axes=[axis % x.ndim for axis in axes])


@lowers(F.mean_variance_norm)
@unmasked
def lower(g: Graph, x: Value, axes: Sequence[int], eps: float, compute_dtype: Any) -> Value:
    y = standardize(g, g.cast(x, computed(x, compute_dtype)), [axis % x.ndim for axis in axes], eps, guard=True)
    return g.cast(y, x.dtype)


@reads("MeanVarianceNormalization", since=9)
def read_9(node: Node) -> Callable[[Tensor], Tensor]:
    axes = tuple(node["axes"])
    return lambda x: F.mean_variance_norm(x, axes)


@converts("MeanVarianceNormalization", 9, 0)
def formula(d: NodeRewriter) -> None:
    """Write (x - mean) / (std + 1e-9), with the variance of the centred x."""
    axes = d.get("axes", [0, 2, 3])

    def normalized(x: str) -> tuple[str, ...]:
        _, centred = centre(d, x, axes)
        root = d.emit("Sqrt", mean_of(d, d.emit("Mul", centred, centred), axes))
        return "Div", centred, d.emit("Add", root, d.scalar(1e-9, x, "epsilon"))

    compose(d, normalized)
