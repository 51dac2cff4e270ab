"""Write normalizations without an ONNX operator as formulas, or explain why no formula is possible.

GhostBatchNorm needs no rule. In training, it is a BatchNormalization for each group; in inference, it is a single
BatchNormalization.
"""

from __future__ import annotations

from typing import Any

import minorm.functional as F
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.registry import lowers
from minorm.onnx.operators.norm.statistics import affine, cast_all, computed, standardize
from minorm.onnx.operators.shape.shape import channels


@lowers(F.filter_response_norm)
def lower(
    g: Graph, x: Value, weight: Value | None, bias: Value | None, eps: float, compute_dtype: Any, backend: Any
) -> Value:
    data, scale, shift = cast_all(g, computed(x, compute_dtype), x, weight, bias)
    y = standardize(g, data, range(2, x.ndim), eps, centered=False)
    scale, shift = (None if p is None else channels(g, x, p) for p in (scale, shift))
    return g.cast(affine(g, y, scale, shift), x.dtype)


@lowers(F.batch_renorm)
def batch_renorm(g: Graph, training: bool, **arguments: Any) -> Value:
    if training:
        raise RuleNotApplicable("batch renormalization has no form for training in ONNX; export it with training=False")
    raise RuleNotApplicable("it is a batch normalization")
