"""BatchNormalization: always kept as itself, never folded into a convolution, so that the file can go on training.

Where the mode is said: 7 and 9 by the number of outputs (1 inference, 5 training); 14 and 15 by training_mode, with
the running statistics as outputs 2 and 3. What may differ in type: 14 the statistics, 15 scale and bias too. Its
momentum is minorm's: running = running * momentum + batch * (1 - momentum), and its variance the population's.

In the training form the running outputs are outputs of the graph, `<key>.updated`. ONNX cannot say momentum=None or
an unbiased variance: there the node gives the batch's own statistics (momentum 0) and a few nodes blend them in.
"""

from __future__ import annotations

import math
from typing import Any

import minorm.functional as F
from minorm.onnx.errors import Decline
from minorm.onnx.graph import Graph, Value
from minorm.onnx.registry import lowers, writes
from minorm.onnx.shape import channels, reshape
from minorm.onnx.statistics import affine, blend, correction, count_up, one_type, ones, standardize, wide, zeros


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
