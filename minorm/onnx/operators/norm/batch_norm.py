"""BatchNormalization is always kept as a node, never folded into a convolution, so that a loaded file can be trained.

In versions 7 and 9, the number of outputs shows the mode: 1 in inference, 5 in training. An output without a name does
not count. In versions 14 and 15, the attribute training_mode gives the mode, and the running statistics are outputs 2
and 3. From 14 on, the statistics may have another type than x. From 15 on, scale and bias may also have another type.
The momentum has minorm's meaning: running = running * momentum + batch * (1 - momentum). The variance is the population
variance.

In the training form the running outputs are outputs of the graph, `<key>.updated`. ONNX cannot express momentum=None or
an unbiased variance. In these cases, the node computes the statistics of the batch (momentum 0), and a few other nodes
blend these into the running statistics.

Before 7, `is_test` gives the mode. A node without `is_test` is in training mode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import minorm.functional as F
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.node_layers import StatisticsLayer
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.onnx.operators.norm.batch_statistics import batch_axes, batch_moments, batch_norm, node, put
from minorm.onnx.operators.norm.instance_norm import InstanceNormalization
from minorm.onnx.operators.norm.masks import unmasked
from minorm.onnx.operators.norm.statistics import (
    affine,
    blend,
    cast_all,
    computed,
    correction,
    count_up,
    is_usual,
    standardize,
)
from minorm.onnx.operators.precision import same_type
from minorm.onnx.operators.shape.shape import channels
from minorm.tensor.tensor import Tensor


@dataclass(frozen=True)
class Call:
    """The arguments of F.batch_norm that a file records."""

    x: Value
    running_mean: Value | None
    running_var: Value | None
    weight: Value | None
    bias: Value | None
    training: bool
    momentum: float | None
    eps: float
    num_batches_tracked: Value | None
    unbiased_running_var: bool
    compute_dtype: Any


@writes(F.batch_norm, "BatchNormalization", since=14)
@unmasked
def write_14(g: Graph, **arguments: Any) -> Value:
    return _write(g, Call(**arguments), outputs=3)


@writes(F.batch_norm, "BatchNormalization", since=7)
@unmasked
def write_7(g: Graph, **arguments: Any) -> Value:
    return _write(g, Call(**arguments), outputs=5)


def _write(g: Graph, call: Call, outputs: int) -> Value:
    """Write the node; in training it has `outputs` outputs."""
    x, running_mean, running_var, momentum = call.x, call.running_mean, call.running_var, call.momentum
    if running_mean is None or running_var is None:
        raise RuleNotApplicable("in inference, runtimes refuse a BatchNormalization without running statistics")
    given = x, call.weight, call.bias, g.current(running_mean), g.current(running_var)
    if not is_usual(x, call.compute_dtype):
        given = cast_all(g, call.compute_dtype, *given)
    if not call.training:
        return g.cast(node(g, *given, momentum, call.eps, outputs=1)[0], x.dtype)
    if momentum is not None and not call.unbiased_running_var:
        y, new_mean, new_var = node(g, *given, momentum, call.eps, outputs)
        g.update(running_mean, g.cast(new_mean, running_mean.dtype))
        g.update(running_var, g.cast(new_var, running_var.dtype))
        return g.cast(y, x.dtype)
    y, batch_mean, batch_var = node(g, *given, 0.0, call.eps, outputs)
    lengths = (x.known_shape[0],) if running_mean.ndim > 1 else (x.known_shape[0], *x.known_shape[2:])
    factor = correction(g, lengths, running_var) if call.unbiased_running_var else None
    blend(g, running_mean, batch_mean, momentum, call.num_batches_tracked)
    blend(g, running_var, batch_var, momentum, call.num_batches_tracked, factor)
    if momentum is None and call.num_batches_tracked is not None:
        count_up(g, call.num_batches_tracked)
    return g.cast(y, x.dtype)


@lowers(F.batch_norm)
@unmasked
def lower(g: Graph, **arguments: Any) -> Value:
    """Write the formula for track_running_stats=False: it uses the batch's statistics in training and inference."""
    call = Call(**arguments)
    x, weight, bias = call.x, call.weight, call.bias
    if call.running_mean is not None:
        raise RuleNotApplicable("only BatchNormalization updates running statistics")
    spread = [p for p in (weight, bias) if p is not None and p.ndim > 1]
    axes = (0,) if spread else (0, *range(2, x.ndim))
    data, scale, shift = cast_all(g, computed(x, call.compute_dtype), x, weight, bias)
    y = standardize(g, data, axes, call.eps)
    scale, shift = (p if p is None or p.ndim > 1 else channels(g, x, p) for p in (scale, shift))
    return g.cast(affine(g, y, scale, shift), x.dtype)


# Reading


class BatchNormalization(StatisticsLayer):
    """BatchNormalization in all versions; the node owns its running statistics if the file holds them.

    If the node owns the statistics, `training` gives the mode. In training, x is normalized with x's statistics, and
    these are blended into the running statistics. In inference or if the node is frozen, x is normalized with the
    running statistics. If the graph computes the running statistics, the node keeps the mode of the file, and gradients
    flow through all five inputs.

    inverse_saved_var   output 5 of versions 1 to 9 is the variance, as in the specification; True gives onnxruntime's
                        value instead, 1 / sqrt(var + eps)
    """

    inverse_saved_var = False

    def __init__(self, node: Node, trains: bool) -> None:
        super().__init__()
        self.training = self.form = trains
        self.owned = self.has_running_stats = bool(node.statistics)
        self.updates = self.owned and node.updates
        self.statistics = how = node.described
        self.momentum: float | None = how.momentum if how else node["momentum"]
        self.unbiased = how is not None and how.unbiased
        self.eps = node["epsilon"]
        self.wants = tuple(node.wants(place) for place in range(5))
        self.images = node.since == 1

    def forward(
        self, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, batches: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return y and the running mean and variance; also the batch's mean and variance, if the graph reads these."""
        if x.ndim == 0 or (self.images and x.ndim != 4):
            raise ValueError(
                f"x has shape {x.shape}; expected {'(N, C, H, W)' if self.images else '(N, C, *positions)'}"
            )
        if x.ndim == 1:  # the only axis is the batch; there is one channel
            y, *statistics = self.forward(x.reshape(-1, 1), scale, bias, mean, var, batches)
            return y.reshape(x.shape), *statistics
        data, scale, bias = same_type(x, scale, bias)
        trains = self.training and not self.frozen if self.owned else self.form
        if not trains:
            y = F.batch_norm(data, mean, var, scale, bias, False, self.momentum, self.eps)
            return y.to(x.dtype), *self._snapshot(mean, var), mean, var
        axes = batch_axes(data, scale)
        if self.updates and (self.statistics is not None or math.prod(x.shape[axis] for axis in axes) != 1):
            y = F.batch_norm(
                data, mean, var, scale, bias, True, self.momentum, self.eps,
                num_batches_tracked=batches, unbiased_running_var=self.unbiased,
            )  # fmt: skip
            new = self._snapshot(mean, var)
        else:
            assert self.momentum is not None  # only a node with a description can have momentum=None
            y, new_mean, new_var = batch_norm(data, scale, bias, mean, var, self.momentum, self.eps)
            new = new_mean, new_var
            if self.updates:
                put(mean, new[0])
                put(var, new[1])
        if not any(self.wants[3:]):
            return y.to(x.dtype), *new
        batch = batch_moments(data, axes, mean)
        saved_var = 1 / (batch[1] + self.eps).sqrt() if self.inverse_saved_var else batch[1]
        return y.to(x.dtype), *new, batch[0].to(x.dtype), saved_var.to(x.dtype)

    def _snapshot(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Return the present running statistics, or copies if later calls may change the statistics in place."""
        return (mean.clone(), var.clone()) if self.updates and any(self.wants[1:3]) else (mean, var)

    def extra_repr(self) -> str:
        """Return the options, and say whether the node owns its running statistics or the graph computes them."""
        statistics = "its own running statistics" if self.owned else "running statistics from the graph"
        return f"{self.size()}eps={self.eps}, momentum={self.momentum}, {statistics}"


def trains(node: Node) -> bool:
    """Return whether a node is in training mode.

    Before version 7, a node trains if `is_test` is missing or 0. Before version 14, a node trains if it has several
    outputs. From 14 on, the attribute training_mode gives the mode.

    An output without a name does not count, because it means the same in ONNX as an absent output.
    """
    if node.since >= 14:
        return bool(node["training_mode"])
    return any(node.outputs[1:]) if node.since >= 7 else not node["is_test"]


def _fixed(node: Node) -> tuple[int, ...]:
    """Return the indices of the inputs without a gradient.

    In training, y does not depend on the old running statistics; only the new running statistics do.
    """
    return (3, 4) if trains(node) and not (node.wants(1) or node.wants(2)) else ()


# We read `spatial` (versions 1 to 7) from the shapes of the parameters, because versions define it inversely.
@reads("BatchNormalization", since=1, fixed=_fixed)
def read(node: Node) -> BatchNormalization | InstanceNormalization:
    if node.described is not None and node.described.per_sample:
        return InstanceNormalization(node, trains=False)
    if node.since >= 14 and not trains(node) and any(node.outputs[1:]):
        raise ValueError(
            f"it has {len(node.outputs)} outputs and training_mode=0; expected 1 output, or training_mode=1"
        )
    return BatchNormalization(node, trains(node))
