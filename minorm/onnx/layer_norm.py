"""LayerNormalization, from opset 17 on; before, the formula. It computes in float32: float64 takes the formula too."""

from __future__ import annotations

from typing import Any

import minorm.functional as F
from minorm import dtypes
from minorm.onnx.errors import Decline
from minorm.onnx.graph import Graph, Value
from minorm.onnx.registry import lowers, writes
from minorm.onnx.statistics import affine, ones, standardize, wide


def first_axis(x: Value, normalized_shape: Any) -> int:
    """Where the normalized axes, which are the last ones, begin."""
    return x.ndim - (len(normalized_shape) if isinstance(normalized_shape, (tuple, list)) else 1)


@writes(F.layer_norm, "LayerNormalization", since=(17,))
def write_17(
    g: Graph, x: Value, normalized_shape: Any, weight: Value | None, bias: Value | None, eps: float, backend: Any
) -> Value:
    if x.dtype == dtypes.float64:
        raise Decline("LayerNormalization computes in float32")
    axis = first_axis(x, normalized_shape)
    scale = ones(g, [int(n) for n in x.known_shape[axis:]], x) if weight is None else weight
    return g.add("LayerNormalization", x, scale, bias, shape=x.shape, axis=axis, epsilon=eps)


@lowers(F.layer_norm)
def lower(
    g: Graph, x: Value, normalized_shape: Any, weight: Value | None, bias: Value | None, eps: float, backend: Any
) -> Value:
    y = standardize(g, wide(g, x), range(first_axis(x, normalized_shape), x.ndim), eps)
    scale, shift = (None if p is None else wide(g, p) for p in (weight, bias))
    return g.cast(affine(g, y, scale, shift), x.dtype)
