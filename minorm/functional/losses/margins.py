"""Losses with a margin. Some require that the score of a right answer exceeds other scores by the margin. Others
require that the distance between different things exceeds the distance between similar things by the margin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import constant_of, dtypes
from minorm.functional.activation import softplus
from minorm.functional.argument_texts import CLASSES, LOSS, TRIPLET
from minorm.functional.arguments import floats
from minorm.functional.distances import pairwise_distance
from minorm.functional.losses.likelihoods import reduced
from minorm.functional.losses.loss import _check_reduction
from minorm.functional.smooth import logsigmoid
from minorm.graph import trace
from minorm.support.documented import documented
from minorm.tensor.combining import minimum, where
from minorm.tensor.tensor import Tensor

SAMPLES = '"mean" and "sum" give one number, over all samples; "none" gives the loss of each sample'


@documented(
    LOSS,
    input1="scores, floats of any shape",
    input2="the scores to compare with input1, of input1's shape",
    target="1 where input1 should be larger, -1 where input2 should be larger",
)
@trace.operation
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """loss = max(0, margin - target * (input1 - input2)): target says which input should be larger.

    Example:
        >>> F.margin_ranking_loss(
        ...     mn.tensor([1.0, 1.0]), mn.tensor([3.0, 3.0]), mn.tensor([1.0, -1.0]), reduction="none"
        ... )
        tensor([2., 0.])
    """
    _check_reduction("margin_ranking_loss", reduction)
    floats("margin_ranking_loss", (), input1=input1, input2=input2)
    return reduced(_positive(-_as(target, input1) * (input1 - input2) + margin), reduction)


@documented(
    LOSS,
    input="distances of pairs, floats of any shape",
    target="1 for pairs that should be similar, -1 for pairs that should be different",
    margin="the distance from which on a pair with target -1 costs nothing",
)
@trace.operation
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, *, reduction: str = "mean") -> Tensor:
    """loss = input where target is 1, and max(0, margin - input) where target is -1; input is a distance.

    Example:
        >>> F.hinge_embedding_loss(mn.tensor([0.2, 0.2]), mn.tensor([1.0, -1.0]), reduction="none")
        tensor([0.2, 0.8])
    """
    _check_reduction("hinge_embedding_loss", reduction)
    floats("hinge_embedding_loss", input=input)
    like, unlike = target != -1, target != 1
    loss = where(unlike, _positive(-input + margin), 0.0) + where(like, input, 0.0)
    return reduced(loss, reduction)


@documented(
    LOSS,
    input1="vectors (N, M) or (M), floats",
    input2="the vectors to compare with input1, of input1's shape",
    target="(N) or one number: 1 for vectors that should be similar, -1 for vectors that should be different",
    margin="the cosine up to which vectors with target -1 cost nothing, -1 to 1",
    reduction='"mean" and "sum" give one number, over all pairs of vectors; "none" gives the loss of each pair',
)
@trace.operation
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """loss = 1 - cos where target is 1, and max(0, cos - margin) where target is -1.

    cos = x . y / sqrt((x . x + 1e-12) (y . y + 1e-12)), for vectors x and y along the last axis. Raises ValueError
    unless there is one target for each vector.

    Example:
        >>> x, y = mn.tensor([[1.0, 0.0], [1.0, 0.0]]), mn.tensor([[0.0, 2.0], [2.0, 0.0]])
        >>> F.cosine_embedding_loss(x, y, mn.tensor([1, -1]), reduction="none")
        tensor([1., 1.])
    """
    _check_reduction("cosine_embedding_loss", reduction)
    floats("cosine_embedding_loss", (), input1=input1, input2=input2)
    if target.ndim + 1 != max(input1.ndim, input2.ndim):
        raise ValueError(f"cosine_embedding_loss: target has shape {target.shape}, inputs {input1.shape}; expected one "
                         "target for each vector")  # fmt: skip
    x, y = (vectors.to(dtypes.compute_type(vectors.dtype)) for vectors in (input1, input2))
    squares = [(vectors * vectors).sum(-1) + 1e-12 for vectors in (x, y)]
    cosine = ((x * y).sum(-1) / (squares[0] * squares[1]).sqrt()).to(input1.dtype)
    loss = where(target == 1, 1 - cosine, 0.0) + where(target == -1, _positive(cosine - margin), 0.0)
    return reduced(loss, reduction)


@documented(
    TRIPLET,
    p="the p of the norm: 2 is the length, 1 the sum of absolute values, math.inf the largest absolute value",
    eps="added to each difference, so that equal vectors have a gradient",
)
@trace.operation
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """loss = max(0, d(anchor, positive) - d(anchor, negative) + margin) with d(x, y) = (sum |x - y + eps|^p)^(1/p).

    Raises ValueError unless margin > 0.

    Example:
        >>> a, p, n = mn.tensor([[0.0]]), mn.tensor([[1.0]]), mn.tensor([[1.5]])
        >>> F.triplet_margin_loss(a, p, n)  # 1 - 1.5 + 1
        tensor(0.5)

    Balntas et al. 2016.
    """
    floats("triplet_margin_loss", (), anchor=anchor, positive=positive, negative=negative)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)

    return _triplet("triplet_margin_loss", distance, anchor, positive, negative, margin, swap, reduction)


@documented(
    TRIPLET,
    distance_function="f(x, y), the distance d between the vectors of two Tensors; None is `pairwise_distance`",
)
@trace.operation
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """loss = max(0, d(anchor, positive) - d(anchor, negative) + margin), where d is a custom distance.

    Raises ValueError unless margin > 0.

    Example:
        >>> a, p, n = mn.tensor([[0.0]]), mn.tensor([[1.0]]), mn.tensor([[1.5]])
        >>> F.triplet_margin_with_distance_loss(a, p, n, distance_function=lambda x, y: ((x - y) ** 2).sum(-1))
        tensor(0.)
    """
    name = "triplet_margin_with_distance_loss"
    floats(name, (), anchor=anchor, positive=positive, negative=negative)
    return _triplet(name, distance_function or pairwise_distance, anchor, positive, negative, margin, swap, reduction)


@documented(LOSS, target="1 or -1 for each element of input")
@trace.operation
def soft_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """loss = log(1 + exp(-target * input))

    Example:
        >>> F.soft_margin_loss(mn.tensor([0.0, 2.0]), mn.tensor([1.0, 1.0]), reduction="none")
        tensor([0.6931, 0.1269])
    """
    _check_reduction("soft_margin_loss", reduction)
    floats("soft_margin_loss", input=input)
    return reduced(softplus(-_as(target, input) * input, threshold=float("inf")), reduction)


@documented(
    LOSS,
    input="logits (N, C) or (C)",
    target="1 for each class that is present, 0 for the others; of input's shape",
    reduction=SAMPLES,
    weight="(C), a factor for each class; None is 1",
)
@trace.operation
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """loss = mean over classes of -weight * (target * log p + (1 - target) * log(1 - p)) with p = sigmoid(input).

    Example:
        >>> F.multilabel_soft_margin_loss(mn.tensor([[0.0, 2.0]]), mn.tensor([[1.0, 1.0]]))
        tensor(0.41)
    """
    _check_reduction("multilabel_soft_margin_loss", reduction)
    floats("multilabel_soft_margin_loss", ("weight",), input=input, weight=weight)
    y = _as(target, input)
    loss = -(y * logsigmoid(input) + (1 - y) * logsigmoid(-input))
    return reduced((loss if weight is None else loss * weight).mean(-1), reduction)


@documented(
    CLASSES,
    input="(N, C) or (C), where C is the number of classes",
    target="integer classes (N), or one integer class",
    p="the exponent, 1 or 2",
    weight="(C), a factor for each class; None is 1",
)
@trace.operation
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
) -> Tensor:
    """loss = sum over the wrong classes of weight[target] * max(0, margin - input[target] + input[class])^p / C

    C is the number of classes. Raises ValueError unless p is 1 or 2.

    Example:
        >>> F.multi_margin_loss(mn.tensor([[0.2, 0.5, 0.9]]), mn.tensor([1]))  # (0.7 + 1.4) / 3
        tensor(0.7)
    """
    name = "multi_margin_loss"
    _check_reduction(name, reduction)
    floats(name, ("weight",), input=input, weight=weight)
    if p not in (1, 2):
        raise ValueError(f"{name}: p is {p}; expected 1 or 2")
    rows = input if input.ndim > 1 else input.reshape(1, -1)
    labels = target.reshape(-1, 1)
    right = rows.gather(1, labels)
    gap = _positive(rows - right + margin) ** p
    if weight is not None:
        gap = gap * weight[labels]
    wrong = Tensor(constant_of(np.arange(rows.shape[1]), input.array)) != labels
    loss = where(wrong, gap, 0.0).sum(1) / max(1, rows.shape[1])
    return reduced(loss if input.ndim > 1 or target.ndim else loss.squeeze(0), reduction)


@documented(
    LOSS,
    input="(N, C) or (C), where C is the number of classes",
    target="integers of input's shape: the right classes of each sample, followed by -1",
    reduction=SAMPLES,
)
@trace.operation
def multilabel_margin_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """loss = sum over right classes r and wrong classes w of max(0, 1 - input[r] + input[w]) / C

    C is the number of classes. Raises ValueError unless target has input's shape.

    Example:
        >>> F.multilabel_margin_loss(mn.tensor([[0.2, 0.5, 0.9]]), mn.tensor([[2, -1, 0]]))  # (0.3 + 0.6) / 3
        tensor(0.3)
    """
    name = "multilabel_margin_loss"
    _check_reduction(name, reduction)
    floats(name, input=input)
    if target.shape != input.shape:
        raise ValueError(f"{name}: target has shape {target.shape}; expected {input.shape}, the shape of input")
    rows, labels = (a if a.ndim > 1 else a.reshape(1, -1) for a in (input, target))
    given = np.cumprod(labels.cpu().array >= 0, 1).astype(bool)  # up to the first -1
    right = np.zeros(labels.shape, bool)
    row, place = np.nonzero(given)
    right[row, labels.cpu().array[row, place]] = True
    scores = rows.gather(1, Tensor(np.where(given, labels.cpu().array, 0)).to(input.device))
    gap = _positive(1 - scores.unsqueeze(2) + rows.unsqueeze(1))
    counted = Tensor(given[:, :, None] & ~right[:, None, :]).to(input.device)
    loss = where(counted, gap, 0.0).sum((1, 2)) / max(1, rows.shape[1])
    return reduced(loss if input.ndim > 1 else loss.squeeze(0), reduction)


def _triplet(
    name: str,
    distance: Any,
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    _check_reduction(name, reduction)
    if not margin > 0:
        raise ValueError(f"{name}: margin is {margin}; expected a number above 0")
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced(_positive(near - far + margin), reduction)


def _positive(x: Tensor) -> Tensor:
    """Return max(x, 0). As in PyTorch's clamp, the gradient also passes where x is exactly 0."""
    return x.clip(0)


def _as(target: Tensor, input: Tensor) -> Tensor:
    return target.to(input.dtype)
