"""Write F.normalization over any axes as an ONNX operator with the same result, or else as a formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.registry import lowers
from minorm.onnx.graph.sizes import Shape
from minorm.onnx.operators.norm.group_norm import group
from minorm.onnx.operators.norm.instance_norm import instance
from minorm.onnx.operators.norm.statistics import affine, cast_all, computed, is_usual, ones, standardize
from minorm.onnx.operators.shape.shape import reshape


@lowers(F.normalization)
def lower(
    g: Graph,
    x: Value,
    scale: Value | None,
    bias: Value | None,
    axes: int | Sequence[int],
    num_groups: int,
    eps: float,
    compute_dtype: Any,
    backend: Any,
) -> Value:
    mask = axes if isinstance(axes, int) else sum(1 << axis % x.ndim for axis in axes)
    reduced = [axis for axis in range(x.ndim) if mask >> axis & 1]
    positions = list(range(2, x.ndim))
    given = [p.known_shape for p in (scale, bias) if p is not None]
    usual = is_usual(x, compute_dtype, scale, bias)
    if usual and x.ndim > 2 and reduced == positions and all(_along_channels(shape) for shape in given):
        numbers = [shape[1] for shape in given]
        if num_groups == 1 and all(n == x.known_shape[1] for n in numbers):
            return instance(g, x, _vector(g, scale), _vector(g, bias), eps)
        if num_groups > 1 and all(n in (num_groups, x.known_shape[1]) for n in numbers):
            return group(g, x, num_groups, _vector(g, scale), _vector(g, bias), eps)
    if usual and num_groups == 1 and x.dtype != dtypes.float64 and g.has("LayerNormalization"):
        first = reduced[0]
        trailing = reduced == list(range(first, x.ndim))
        tail = x.known_shape[first:]
        if trailing and all(shape == (1,) * first + tail for shape in given):
            factors = ones(g, [int(n) for n in tail], x) if scale is None else reshape(g, scale, tail)
            shift = None if bias is None else reshape(g, bias, tail)
            return g.add("LayerNormalization", x, factors, shift, shape=x.shape, axis=first, epsilon=eps)
    return _formula(g, x, scale, bias, reduced, num_groups, eps, compute_dtype)


def _along_channels(shape: Shape) -> bool:
    return all(n == 1 for i, n in enumerate(shape) if i != 1)


def _vector(g: Graph, parameter: Value | None) -> Value | None:
    return None if parameter is None else reshape(g, parameter, (parameter.known_shape[1],))


def _formula(
    g: Graph,
    x: Value,
    scale: Value | None,
    bias: Value | None,
    reduced: Sequence[int],
    num_groups: int,
    eps: float,
    compute_dtype: Any,
) -> Value:
    """Write the equation itself; with several groups, axis 1 is split into (groups, channels of a group)."""
    shape = x.known_shape
    data, scale, bias = cast_all(g, computed(x, compute_dtype), x, scale, bias)
    axes = list(reduced)
    if num_groups > 1:
        data = reshape(g, data, (shape[0], num_groups, shape[1] // num_groups, *shape[2:]))
        scale, bias = (None if p is None else _split(g, p, num_groups) for p in (scale, bias))
        axes = [axis + (axis > 1) for axis in reduced] + [2]
    y = affine(g, standardize(g, data, sorted(axes), eps), scale, bias)
    return g.cast(reshape(g, y, shape) if num_groups > 1 else y, x.dtype)


def _split(g: Graph, parameter: Value, num_groups: int) -> Value:
    first, n, *rest = parameter.known_shape
    pair = (n, 1) if n in (1, num_groups) else (num_groups, n // num_groups)
    return reshape(g, parameter, (first, *pair, *rest))
