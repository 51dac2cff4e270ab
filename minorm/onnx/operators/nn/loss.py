"""Read and write SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss (from opset 12 on); write other losses as
formulas.

A graph with a loss is a training graph that another tool can differentiate. The batch of a mean may have any length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import lowers, reads, writes
from minorm.onnx.operators.math.activation import softmax
from minorm.onnx.operators.math.arithmetic import extreme
from minorm.onnx.operators.math.comparison import compare
from minorm.onnx.operators.math.reduction import reduce
from minorm.onnx.operators.shape.shape import reshape, unsqueeze
from minorm.ops.loss import LogOfProbabilities
from minorm.tensor.tensor import Tensor

NO_CLASS = -100  # the label without a loss, if the node does not name one

# Classes


@writes(F.cross_entropy, "SoftmaxCrossEntropyLoss", since=12)
def write_cross_entropy(
    g: Graph,
    input: Value,
    target: Value,
    weight: Value | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Value:
    if dtypes.is_float(target.dtype) or label_smoothing or input.ndim < 2:
        raise RuleNotApplicable("SoftmaxCrossEntropyLoss takes classes of (N, C, ...), without smoothing")
    return _classes(g, "SoftmaxCrossEntropyLoss", input, target, weight, ignore_index, reduction)


@writes(F.nll_loss, "NegativeLogLikelihoodLoss", since=12)
def write_nll(g: Graph, input: Value, target: Value, weight: Value | None, ignore_index: int, reduction: str) -> Value:
    if input.ndim < 2:
        raise RuleNotApplicable("NegativeLogLikelihoodLoss takes (N, C, ...)")
    return _classes(g, "NegativeLogLikelihoodLoss", input, target, weight, ignore_index, reduction)


def _classes(
    g: Graph, operator: str, x: Value, target: Value, weight: Value | None, ignore_index: int, reduction: str
) -> Value:
    if target.dtype not in (dtypes.int32, dtypes.int64):
        target = g.cast(target, dtypes.int64)
    return g.add(operator, x, target, weight, shape=g.result.shape, reduction=reduction, ignore_index=ignore_index)


@lowers(F.cross_entropy)
def lower_cross_entropy(
    g: Graph,
    input: Value,
    target: Value,
    weight: Value | None,
    ignore_index: int,
    reduction: str,
    label_smoothing: float,
) -> Value:
    axis = min(1, input.ndim - 1)
    logp = softmax(g, "LogSoftmax", _wide(g, input), axis)
    factors = None if weight is None else _along(g, _wide(g, weight), logp, axis)
    if not dtypes.is_float(target.dtype):
        return _labelled(g, logp, target, factors, ignore_index, reduction, label_smoothing, axis)
    q = _wide(g, target)
    if label_smoothing:
        share = g.scalar(label_smoothing / int(logp.known_shape[axis]), q)
        q = g.add("Add", g.add("Mul", q, g.scalar(1 - label_smoothing, q)), share)
    if factors is not None:
        q = g.add("Mul", q, factors)
    terms = g.add("Mul", q, logp)
    if g.has("Where"):
        terms = g.add("Where", compare(g, q, g.scalar(0, q), "equal"), g.scalar(0, q), terms, dtype=q.dtype)
    return _reduced(g, g.add("Neg", reduce(g, "ReduceSum", terms, (axis,), False)), reduction)


@lowers(F.nll_loss)
def lower_nll(g: Graph, input: Value, target: Value, weight: Value | None, ignore_index: int, reduction: str) -> Value:
    axis = min(1, input.ndim - 1)
    logp = _wide(g, input)
    factors = None if weight is None else _along(g, _wide(g, weight), logp, axis)
    return _labelled(g, logp, target, factors, ignore_index, reduction, 0.0, axis)


def _labelled(
    g: Graph,
    logp: Value,
    target: Value,
    factors: Value | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
    axis: int,
) -> Value:
    """Write -sum q * factor * logp over the classes, where q is 1 at the label.

    With reduction="mean", the sum is divided by the sum of the factors.
    """
    classes = int(logp.known_shape[axis])
    target = g.cast(target, dtypes.int64)
    numbers = _along(g, g.constant(np.arange(classes), np.int64, "classes"), logp, axis)
    chosen = compare(g, unsqueeze(g, target, (axis,)), numbers, "equal")
    counted = g.cast(g.add("Not", compare(g, target, g.scalar(ignore_index, target), "equal")), logp.dtype)
    q = g.cast(chosen, logp.dtype)
    weighted = logp if factors is None else g.add("Mul", logp, factors)
    if smoothing:
        mixed = g.add("Add", g.add("Mul", q, g.scalar(1 - smoothing, q)), g.scalar(smoothing / classes, q))
        terms = g.add("Mul", mixed, weighted)
    elif g.has("Where"):
        terms = g.add("Where", chosen, weighted, g.scalar(0, logp), dtype=logp.dtype)
    else:
        terms = g.add("Mul", q, weighted)
    losses = g.add("Mul", g.add("Neg", reduce(g, "ReduceSum", terms, (axis,), False)), counted)
    if reduction != "mean":
        return _reduced(g, losses, reduction)
    if factors is not None:
        counted = g.add("Mul", counted, reduce(g, "ReduceSum", g.add("Mul", q, factors), (axis,), False))
    total, count = _total(g, losses), _total(g, counted)
    return g.cast(g.add("Div", total, count), g.result.dtype)


def _along(g: Graph, vector: Value, x: Value, axis: int) -> Value:
    """Reshape a vector of C numbers to broadcast along `axis` of x."""
    return reshape(g, vector, (*vector.known_shape, *(1,) * (x.ndim - axis - 1)))


# Numbers


@lowers(F.mse_loss)
def lower_mse(g: Graph, input: Value, target: Value, reduction: str) -> Value:
    d = g.add("Sub", _wide(g, input), _wide(g, target))
    return _reduced(g, g.add("Mul", d, d), reduction)


@lowers(F.l1_loss)
def lower_l1(g: Graph, input: Value, target: Value, reduction: str) -> Value:
    return _reduced(g, g.add("Abs", g.add("Sub", _wide(g, input), _wide(g, target))), reduction)


@lowers(F.smooth_l1_loss)
def lower_smooth_l1(g: Graph, input: Value, target: Value, reduction: str, beta: float) -> Value:
    d = g.add("Abs", g.add("Sub", _wide(g, input), _wide(g, target)))
    if beta == 0:
        return _reduced(g, d, reduction)
    # With m = min(d, beta), m * (d - m / 2) / beta is d^2 / (2 beta) below beta and d - beta / 2 above.
    m = extreme(g, "Min", d, g.scalar(beta, d))
    inner = g.add("Sub", d, g.add("Mul", m, g.scalar(0.5, d)))
    return _reduced(g, g.add("Div", g.add("Mul", m, inner), g.scalar(beta, d)), reduction)


@lowers(F.binary_cross_entropy_with_logits)
def lower_bce(
    g: Graph, input: Value, target: Value, weight: Value | None, reduction: str, pos_weight: Value | None
) -> Value:
    z, y = _wide(g, input), _wide(g, target)
    one = g.scalar(1, z)
    soft = g.add("Softplus", g.add("Neg", z))
    if pos_weight is not None:
        factor = g.add("Add", one, g.add("Mul", g.add("Sub", _wide(g, pos_weight), one), y))
        soft = g.add("Mul", factor, soft)
    losses = g.add("Add", g.add("Mul", g.add("Sub", one, y), z), soft)
    if weight is not None:
        losses = g.add("Mul", losses, _wide(g, weight))
    return _reduced(g, losses, reduction)


@lowers(LogOfProbabilities)
def lower_log_of_probabilities(g: Graph, p: Value, target: Value) -> Value:
    p, y = _wide(g, p), _wide(g, target)
    one, least = g.scalar(1, p), g.scalar(-100, p)
    hit = extreme(g, "Max", g.add("Log", p), least)
    missed = extreme(g, "Max", g.add("Log", g.add("Sub", one, p)), least)
    gained = g.add("Add", g.add("Mul", y, hit), g.add("Mul", g.add("Sub", one, y), missed))
    return g.cast(g.add("Neg", gained), g.result.dtype)


def _wide(g: Graph, x: Value) -> Value:
    return g.cast(x, dtypes.compute_type(x.dtype))


def _reduced(g: Graph, losses: Value, reduction: str) -> Value:
    if reduction != "none":
        operator = {"mean": "ReduceMean", "sum": "ReduceSum"}[reduction]
        losses = reduce(g, operator, losses, range(losses.ndim), keepdims=False)
    return g.cast(losses, g.result.dtype)


def _total(g: Graph, x: Value) -> Value:
    return reduce(g, "ReduceSum", x, range(x.ndim), keepdims=False)


# Reading


@reads("SoftmaxCrossEntropyLoss", since=12, fixed=(1, 2))
def read_cross_entropy(node: Node) -> Callable[..., Any]:
    options = _options(node)

    def loss(x: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
        y = F.cross_entropy(x, target, None if weight is None else weight.detach(), **options)
        return (y, F.log_softmax(x, 1)) if node.wants(1) else y

    return loss


@reads("NegativeLogLikelihoodLoss", since=12, fixed=(1, 2))
def read_nll(node: Node) -> Callable[..., Tensor]:
    options = _options(node)

    def loss(x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        return F.nll_loss(x, target, None if weight is None else weight.detach(), **options)

    return loss


def _options(node: Node) -> dict[str, Any]:
    ignored = node["ignore_index"]
    return {"reduction": node["reduction"], "ignore_index": NO_CLASS if ignored is None else ignored}
