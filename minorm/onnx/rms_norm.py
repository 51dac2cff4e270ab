"""RMSNormalization, from opset 23 on; before, the formula. It computes in float32: float64 takes the formula too."""

from __future__ import annotations

from typing import Any

import ml_dtypes

import minorm.functional as F
from minorm import dtypes
from minorm.onnx.errors import Decline
from minorm.onnx.graph import Graph, Value
from minorm.onnx.layer_norm import first_axis
from minorm.onnx.registry import lowers, writes
from minorm.onnx.statistics import affine, ones, standardize, wide


def _eps(x: Value, eps: float | None) -> float:
    return float(ml_dtypes.finfo(x.dtype).eps) if eps is None else eps


@writes(F.rms_norm, "RMSNormalization", since=(23,))
def write_23(g: Graph, x: Value, normalized_shape: Any, weight: Value | None, eps: float | None, backend: Any) -> Value:
    if x.dtype == dtypes.float64:
        raise Decline("RMSNormalization computes in float32")
    axis = first_axis(x, normalized_shape)
    scale = ones(g, [int(n) for n in x.known_shape[axis:]], x) if weight is None else weight
    return g.add("RMSNormalization", x, scale, shape=x.shape, axis=axis, epsilon=_eps(x, eps))


@lowers(F.rms_norm)
def lower(g: Graph, x: Value, normalized_shape: Any, weight: Value | None, eps: float | None, backend: Any) -> Value:
    axes = range(first_axis(x, normalized_shape), x.ndim)
    y = standardize(g, wide(g, x), axes, _eps(x, eps), centered=False)
    return g.cast(affine(g, y, None if weight is None else wide(g, weight), None), x.dtype)
