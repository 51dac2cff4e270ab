"""BatchNormalization: always kept as itself, never folded into a convolution, so that the file can go on training.

Where the mode is said: 7 and 9 by the number of outputs (1 inference, 5 training); 14 and 15 by training_mode, with
the running statistics as outputs 2 and 3. What may differ in type: 14 the statistics, 15 scale and bias too. Its
momentum is minorm's: running = running * momentum + batch * (1 - momentum), and its variance the population's.

In the training form the running outputs are outputs of the graph, `<key>.updated`. ONNX cannot say momentum=None or
an unbiased variance: there the node gives the batch's own statistics (momentum 0) and a few nodes blend them in.

Before 7, `is_test` said the mode; its absence means training.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.functional.normalization_checks import mark_changed
from minorm.onnx.errors import Decline
from minorm.onnx.graph import Graph, Value
from minorm.onnx.graph_module import Layer
from minorm.onnx.precision import same_type, single, widest
from minorm.onnx.reading import Node
from minorm.onnx.registry import lowers, reads, writes
from minorm.onnx.shape import channels, reshape
from minorm.onnx.statistics import affine, blend, correction, count_up, one_type, ones, standardize, wide, zeros
from minorm.running import RunningStats
from minorm.tensor import Tensor


@writes(F.batch_norm, "BatchNormalization", since=(14, 15))
def write_14(
    g: Graph,
    x: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float | None,
    eps: float,
    num_batches_tracked: Value | None,
    unbiased_running_var: bool,
    backend: Any,
) -> Value:
    form = {"training_mode": 1} if training else {}
    mean, var = _statistics(running_mean, running_var)
    return _write(
        g, x, mean, var, weight, bias, training, momentum, eps, num_batches_tracked, unbiased_running_var, 3, form
    )


@writes(F.batch_norm, "BatchNormalization", since=(7, 9))
def write_7(
    g: Graph,
    x: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float | None,
    eps: float,
    num_batches_tracked: Value | None,
    unbiased_running_var: bool,
    backend: Any,
) -> Value:
    mean, var = _statistics(running_mean, running_var)
    return _write(
        g, x, mean, var, weight, bias, training, momentum, eps, num_batches_tracked, unbiased_running_var, 5, {}
    )


def _statistics(mean: Value | None, var: Value | None) -> tuple[Value, Value]:
    if mean is None or var is None:
        raise Decline("a BatchNormalization without running statistics, which runtimes refuse in inference")
    return mean, var


def _write(
    g: Graph,
    x: Value,
    running_mean: Value,
    running_var: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float | None,
    eps: float,
    batches: Value | None,
    unbiased: bool,
    outputs: int,
    form: dict[str, int],
) -> Value:
    shape, kept = x.known_shape, running_mean.known_shape
    n = math.prod(int(length) for length in kept)
    mean, var = (_flat(g, g.current(buffer), n) for buffer in (running_mean, running_var))
    data = x if len(kept) == 1 else reshape(g, x, (shape[0], n))  # statistics over N alone: every position a channel
    if outputs == 5:  # the versions with five outputs have one type for everything
        data, mean, var = one_type(g, data, mean, var)
    scale = ones(g, (n,), data) if weight is None else g.cast(_flat(g, weight, n), data.dtype)
    shift = zeros(g, (n,), data) if bias is None else g.cast(_flat(g, bias, n), data.dtype)
    inputs = (data, scale, shift, mean, var)
    if not training:
        y = g.add("BatchNormalization", *inputs, shape=data.shape, epsilon=eps, momentum=momentum)
        return g.cast(reshape(g, y, shape) if len(kept) > 1 else y, x.dtype)

    corrected = momentum is None or unbiased
    y, new_mean, new_var, *_ = g.add(
        "BatchNormalization",
        *inputs,
        outputs=outputs,
        shape=(data.shape, *[(n,)] * (outputs - 1)),
        dtype=(data.dtype, mean.dtype, var.dtype, mean.dtype, var.dtype)[:outputs],
        epsilon=eps,
        momentum=0.0 if corrected else momentum,
        **form,
    )
    new_mean, new_var = (value if len(kept) == 1 else reshape(g, value, kept) for value in (new_mean, new_var))
    if corrected:
        lengths = (shape[0],) if len(kept) > 1 else (shape[0], *shape[2:])
        factor = correction(g, lengths, running_var) if unbiased else None
        blend(g, running_mean, new_mean, momentum, batches)
        blend(g, running_var, new_var, momentum, batches, factor)
    else:
        g.update(running_mean, g.cast(new_mean, running_mean.dtype))
        g.update(running_var, g.cast(new_var, running_var.dtype))
    if momentum is None and batches is not None:
        count_up(g, batches)
    return g.cast(reshape(g, y, shape) if len(kept) > 1 else y, x.dtype)


def _flat(g: Graph, parameter: Value, n: int) -> Value:
    return parameter if parameter.ndim == 1 else reshape(g, parameter, (n,))


@lowers(F.batch_norm)
def lower(
    g: Graph,
    x: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float | None,
    eps: float,
    num_batches_tracked: Value | None,
    unbiased_running_var: bool,
    backend: Any,
) -> Value:
    """track_running_stats=False: the batch's statistics in training and inference, by the formula."""
    if running_mean is not None:
        raise Decline("running statistics that only BatchNormalization updates")
    spread = [p for p in (weight, bias) if p is not None and p.ndim > 1]
    axes = (0,) if spread else (0, *range(2, x.ndim))
    y = standardize(g, wide(g, x), axes, eps)
    scale, shift = (
        None if p is None else wide(g, p) if p.ndim > 1 else channels(g, x, wide(g, p)) for p in (weight, bias)
    )
    return g.cast(affine(g, y, scale, shift), x.dtype)


# Reading


class BatchNormalization(Layer):
    """The operator in all its versions. It owns its running statistics where the file holds them, else it has none.

    Owned, `training` decides: in training x is normalized with its own statistics, which are blended into the running
    ones; else, and when frozen, with the running ones. Not owned (the graph computes them), the node keeps the form
    that the file gives it, and gradients flow through all five inputs.

    inverse_saved_var   output 5 of versions 1 to 9 is the variance, as the specification says; True gives what
                        onnxruntime computes instead, 1 / sqrt(var + eps)
    """

    inverse_saved_var = False

    def __init__(self, node: Node, trains: bool) -> None:
        super().__init__()
        self.training = self.form = trains
        self.owned = bool(node.statistics)
        self.updates = self.owned and node.updates
        self.momentum, self.eps = float(node["momentum"]), float(node["epsilon"])
        self.wants = tuple(node.wants(place) for place in range(5))
        self.images = node.since == 1

    def forward(self, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
        """y, and where somebody reads them the running mean and variance, and the batch's."""
        if x.ndim == 0 or (self.images and x.ndim != 4):
            raise ValueError(
                f"x has shape {x.shape}; expected {'(N, C, H, W)' if self.images else '(N, C, *positions)'}"
            )
        if x.ndim == 1:  # a single axis is the batch; there is one channel
            y, *statistics = self.forward(x.reshape(-1, 1), scale, bias, mean, var)
            return y.reshape(x.shape), *statistics
        data, scale, bias = same_type(x, scale, bias)
        trains = self.training and not self.frozen if self.owned else self.form
        if not trains:
            y = F.batch_norm(data, mean, var, scale, bias, False, self.momentum, self.eps)
            return y.to(x.dtype), *self._snapshot(mean, var), mean, var
        axes = (0,) if x.ndim > 2 and scale.ndim == x.ndim - 1 else (0, *range(2, x.ndim))
        count = math.prod(x.shape[axis] for axis in axes)
        old_mean, old_var = (mean, var) if self.updates else (None, None)
        if count == 1:
            y = single(data, scale, bias, axes)
            if self.updates:
                self._update(x, mean, var)
        else:
            y = F.batch_norm(data, old_mean, old_var, scale, bias, True, self.momentum, self.eps)
        wanted = self.wants[3:] if self.updates else self.wants[1:]
        if not any(wanted):
            return y.to(x.dtype), *self._snapshot(mean, var)
        batch = self._moments(data, axes, mean)
        new = self._snapshot(mean, var) if self.updates or count == 0 else self._blended(mean, var, *batch)
        return y.to(x.dtype), *new, *self._saved(*batch, x.dtype)

    def _snapshot(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """The running statistics as they are now; where the node owns them, later calls change them in place."""
        return (mean.clone(), var.clone()) if self.updates and any(self.wants[1:3]) else (mean, var)

    def _moments(self, x: Tensor, axes: tuple[int, ...], like: Tensor) -> tuple[Tensor, Tensor]:
        x = x.to(widest(x, like))
        centred = x - x.mean(axes, keepdim=True)
        return x.mean(axes), (centred * centred).mean(axes)

    def _blended(self, mean: Tensor, var: Tensor, new_mean: Tensor, new_var: Tensor) -> tuple[Tensor, ...]:
        keep, share = self.momentum, 1 - self.momentum
        return tuple(
            (old.to(new.dtype) * keep + new * share).to(old.dtype) for old, new in ((mean, new_mean), (var, new_var))
        )

    def _saved(self, mean: Tensor, var: Tensor, dtype: Any) -> tuple[Tensor, Tensor]:
        return mean.to(dtype), (1 / (var + self.eps).sqrt() if self.inverse_saved_var else var).to(dtype)

    def _update(self, x: Tensor, mean: Tensor, var: Tensor) -> None:
        """One value a channel: it is the mean, and the variance is 0."""
        running = RunningStats(mean.data, var.data, self.momentum)
        running.update(x.data.reshape(mean.shape), np.zeros(var.shape), 1)
        mark_changed(running, mean, var)

    def extra_repr(self) -> str:
        """The options, and whether the running statistics are the file's or the graph computes them."""
        return f"eps={self.eps}, momentum={self.momentum}, {'' if self.owned else 'no '}running statistics of its own"


def _trains(node: Node) -> bool:
    """1 and 6: unless is_test. 7 and 9: where there is more than one output. From 14 on: training_mode."""
    if node.since >= 14:
        return bool(node["training_mode"])
    return len(node.outputs) > 1 if node.since >= 7 else not node["is_test"]


def _fixed(node: Node) -> tuple[int, ...]:
    """In training y depends on the running statistics no more, only their successors do."""
    return (3, 4) if _trains(node) and not (node.wants(1) or node.wants(2)) else ()


# `spatial` of 1 to 7 is read off the shapes of the parameters: its wording was inverted on the way.
@reads("BatchNormalization", since=(1, 6, 7, 9, 14, 15), fixed=_fixed)
def read(node: Node) -> BatchNormalization:
    trains = _trains(node)
    if node.since >= 14 and not trains and any(node.outputs[1:]):
        raise ValueError(f"it has {len(node.outputs)} outputs and training_mode=0; expected 1, or training_mode=1")
    return BatchNormalization(node, trains)
