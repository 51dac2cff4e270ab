"""BatchNormalization in training as a pure function, as in ONNX: the new running statistics are results.

`F.batch_norm` changes running statistics in place. Two kinds of nodes cannot do this. The first kind reads running
statistics that the graph computes. For the second kind, other nodes compute the new running statistics (momentum=None,
an unbiased variance). These nodes call `batch_norm` of this file. Export writes this function as a BatchNormalization
again, not as a formula.
"""

from __future__ import annotations

import math

import minorm.functional as F
from minorm.graph import trace
from minorm.normalization import running
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.registry import lowers, writes
from minorm.onnx.operators.norm.moments import moments
from minorm.onnx.operators.norm.statistics import one_type, ones, zeros
from minorm.onnx.operators.precision import single, widest
from minorm.onnx.operators.shape.shape import reshape
from minorm.tensor.tensor import Tensor


@trace.operation
def batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize x with its own statistics; return y and the new running mean and var.

    The new statistics are old * momentum + batch * (1 - momentum).

    x has the shape (N, C, ...). The other tensors have the shape (C), or (C, ...) for statistics over N alone. Nothing
    changes in place. For an empty batch, mean and var are returned unchanged.
    """
    axes = batch_axes(x, scale)
    count = math.prod(x.shape[axis] for axis in axes)
    y = single(x, scale, bias, axes) if count == 1 else F.batch_norm(x, None, None, scale, bias, True, momentum, eps)
    if count == 0:
        return y, mean.clone(), var.clone()
    batch = batch_moments(x, axes, mean)
    return y, _blend(mean, batch[0], momentum), _blend(var, batch[1], momentum)


def _blend(old: Tensor, batch: Tensor, momentum: float) -> Tensor:
    return (old.to(batch.dtype) * momentum + batch * (1 - momentum)).to(old.dtype)


def batch_axes(x: Tensor, scale: Tensor) -> tuple[int, ...]:
    """Return the axes of the statistics: N and the positions, or only N if scale has axes for the positions."""
    return (0,) if x.ndim > 2 and scale.ndim == x.ndim - 1 else (0, *range(2, x.ndim))


def batch_moments(x: Tensor, axes: tuple[int, ...], like: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean and the population variance of x over `axes`.

    The type of the computation is the wider of two types: minorm computes with x in one, and with `like` in the other.
    """
    kept = [length for axis, length in enumerate(x.shape) if axis not in axes]
    mean, var = moments(x.to(widest(x, like)), axes)
    return mean.reshape(kept), var.reshape(kept)


@trace.operation
def put(buffer: Tensor, value: Tensor) -> Tensor:
    """Change a buffer in place, and return its new value as another Tensor, which is an output in a graph."""
    if running.is_updating():
        buffer.copy_(value)
    return Tensor(buffer.array)


# Writing


@writes(batch_norm, "BatchNormalization", since=14)
def write_14(
    g: Graph, x: Value, scale: Value, bias: Value, mean: Value, var: Value, momentum: float, eps: float
) -> tuple[Value, ...]:
    return node(g, x, scale, bias, mean, var, momentum, eps, outputs=3)


@writes(batch_norm, "BatchNormalization", since=7)
def write_7(
    g: Graph, x: Value, scale: Value, bias: Value, mean: Value, var: Value, momentum: float, eps: float
) -> tuple[Value, ...]:
    return node(g, x, scale, bias, mean, var, momentum, eps, outputs=5)


def node(
    g: Graph,
    x: Value,
    scale: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    momentum: float | None,
    eps: float,
    outputs: int,
) -> tuple[Value, ...]:
    """Write one BatchNormalization; return y, and in training also mean and var.

    In training, the node has 3 outputs from version 14 on, and 5 before.

    Until version 7, parameters could have the axes of the positions (spatial=0). With such parameters, each position is
    written as a channel.
    """
    shape, kept = x.known_shape, mean.known_shape
    types = x.dtype, mean.dtype, var.dtype
    n = math.prod(int(length) for length in kept)
    data, mean, var = (
        v if len(kept) == 1 else reshape(g, v, s) for v, s in ((x, (shape[0], n)), (mean, (n,)), (var, (n,)))
    )
    if not g.has("BatchNormalization", 14):  # one type for everything
        data, mean, var = one_type(g, data, mean, var)
    scale = ones(g, (n,), data) if scale is None else g.cast(_flat(g, scale, n), data.dtype)
    bias = zeros(g, (n,), data) if bias is None else g.cast(_flat(g, bias, n), data.dtype)
    written = g.add(
        "BatchNormalization",
        *(data, scale, bias, mean, var),
        outputs=outputs,
        shape=data.shape if outputs == 1 else (data.shape, *[(n,)] * (outputs - 1)),
        dtype=(data.dtype, mean.dtype, var.dtype, mean.dtype, var.dtype)[:outputs],
        epsilon=eps,
        momentum=momentum,
        training_mode=1 if outputs == 3 else None,
    )
    results = (written,) if outputs == 1 else written[:3]
    shapes = (shape, kept, kept)
    return tuple(
        g.cast(value if len(kept) == 1 else reshape(g, value, s), dtype)
        for value, s, dtype in zip(results, shapes, types, strict=False)
    )


def _flat(g: Graph, parameter: Value, n: int) -> Value:
    return parameter if parameter.ndim == 1 else reshape(g, parameter, (n,))


@lowers(put)
def write_put(g: Graph, buffer: Value, value: Value) -> Value:
    g.update(buffer, value)
    return value
