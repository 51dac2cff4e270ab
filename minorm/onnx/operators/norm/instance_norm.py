"""InstanceNormalization: version 1 takes only images, version 6 takes any rank, and version 22 also bfloat16.

No version has running statistics. For a layer with running statistics, inference is written as BatchNormalization.
Training is written as InstanceNormalization, and the new running statistics are outputs `<key>.updated`. In both cases
the metadata names the layer, so that `load` makes the same layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import minorm.functional as F
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.node_layers import StatisticsLayer
from minorm.onnx.graph.node_rewriter import NodeRewriter
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads, sets_mode, writes
from minorm.onnx.operators.math.reduction import reduce
from minorm.onnx.operators.norm.masks import unmasked
from minorm.onnx.operators.norm.statistics import (
    affine,
    blend,
    cast_all,
    computed,
    correction,
    count_up,
    is_usual,
    moments,
    one_type,
    ones,
    standardize,
    zeros,
)
from minorm.onnx.operators.precision import single
from minorm.onnx.operators.shape.shape import channels
from minorm.tensor.tensor import Tensor


def instance(g: Graph, x: Value, scale: Value | None, bias: Value | None, eps: float) -> Value:
    """Write the node, which normalizes each channel of each sample separately; scale and bias have the shape (C)."""
    size = (int(x.known_shape[1]),)
    scale = ones(g, size, x) if scale is None else scale
    bias = zeros(g, size, x) if bias is None else bias
    return g.add("InstanceNormalization", x, scale, bias, shape=x.shape, epsilon=eps)


@writes(F.instance_norm, "InstanceNormalization", since=6)
@unmasked
def write_6(
    g: Graph,
    x: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None,
    bias: Value | None,
    use_input_stats: bool,
    momentum: float | None,
    eps: float,
    num_batches_tracked: Value | None,
    unbiased_running_var: bool,
    compute_dtype: Any,
) -> Value:
    if not use_input_stats:
        raise RuleNotApplicable("InstanceNormalization has no running statistics")
    data, scale, shift = cast_all(g, computed(x, compute_dtype), x, weight, bias)
    if is_usual(x, compute_dtype, weight, bias):
        y = instance(g, x, weight, bias, eps)
    elif is_usual(x, compute_dtype):
        y = g.cast(instance(g, data, scale, shift, eps), x.dtype)
    else:  # runtimes lack the operator for float64
        y = standardize(g, data, range(2, x.ndim), eps)
        scale, shift = (None if p is None else channels(g, x, p) for p in (scale, shift))
        y = g.cast(affine(g, y, scale, shift), x.dtype)
    if running_mean is not None and running_var is not None:
        mean, var = moments(g, data, range(2, x.ndim), keepdims=False)
        factor = correction(g, x.known_shape[2:], running_var) if unbiased_running_var else None
        blend(g, running_mean, reduce(g, "ReduceMean", mean, (0,), False), momentum, num_batches_tracked)
        blend(g, running_var, reduce(g, "ReduceMean", var, (0,), False), momentum, num_batches_tracked, factor)
        if momentum is None and num_batches_tracked is not None:
            count_up(g, num_batches_tracked)
    return y


@writes(F.instance_norm, "BatchNormalization", since=7)
@unmasked
def write_running(
    g: Graph,
    x: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None,
    bias: Value | None,
    use_input_stats: bool,
    momentum: float | None,
    eps: float,
    num_batches_tracked: Value | None,
    unbiased_running_var: bool,
    compute_dtype: Any,
) -> Value:
    if running_mean is None or running_var is None:
        raise RuleNotApplicable("there are no running statistics")
    size = (int(x.known_shape[1]),)
    data, mean, var = x, running_mean, running_var
    if not is_usual(x, compute_dtype):
        data, mean, var = cast_all(g, compute_dtype, x, mean, var)
    if not g.has("BatchNormalization", 14):
        data, mean, var = one_type(g, x, mean, var)
    scale = ones(g, size, data) if weight is None else g.cast(weight, data.dtype)
    shift = zeros(g, size, data) if bias is None else g.cast(bias, data.dtype)
    y = g.add("BatchNormalization", data, scale, shift, mean, var, shape=x.shape, epsilon=eps)
    return g.cast(y, x.dtype)


class InstanceNormalization(StatisticsLayer):
    """An InstanceNorm with running statistics in a file of minorm; only inference uses the running statistics."""

    def __init__(self, node: Node, trains: bool) -> None:
        super().__init__()
        self.training, self.eps, self.statistics = trains, node["epsilon"], node.described

    def forward(
        self, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, batches: Tensor | None = None
    ) -> Tensor:
        """x (N, C, ...) -> y of the same shape; in training mean, var and batches are updated in place"""
        how = self.statistics
        assert how is not None
        return F.instance_norm(
            x, mean, var, scale, bias, self.training and not self.frozen, how.momentum, self.eps,
            num_batches_tracked=batches, unbiased_running_var=how.unbiased,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Show the options."""
        return f"{self.size()}eps={self.eps}, {self.statistics}"


@reads("InstanceNormalization", since=1)
def read_1(node: Node) -> Callable[[Tensor, Tensor, Tensor], Tensor] | InstanceNormalization:
    if node.described is not None:
        return InstanceNormalization(node, trains=True)

    def instance_norm(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        if x.ndim < 2 or (node.since == 1 and x.ndim != 4):
            raise ValueError(f"x has shape {x.shape}; expected (N, C, {'H, W' if node.since == 1 else '*positions'})")
        if math.prod(x.shape[2:]) == 1:
            return single(x, scale, bias, tuple(range(2, x.ndim)))
        return F.instance_norm(x, None, None, scale, bias, eps=node["epsilon"])

    return instance_norm


@sets_mode("InstanceNormalization")
def mode(d: NodeRewriter, trains: bool, updates: bool, statistics: Sequence[str]) -> tuple[str, ...]:
    """In inference, turn a node with running statistics into BatchNormalization."""
    if statistics and not trains:
        d.replace("BatchNormalization", *d.node.input, *statistics[:2], epsilon=d.get("epsilon"))
        d.node = None
    return ()
