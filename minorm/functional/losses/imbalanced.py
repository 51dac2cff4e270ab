"""Losses for classes of very different sizes. Focal losses give easy examples little weight. The Dice loss compares
areas.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.functional.activation import log_softmax, sigmoid, softmax
from minorm.functional.argument_texts import CLASSES, LOSS
from minorm.functional.arguments import floats, number
from minorm.functional.losses.likelihoods import reduced
from minorm.functional.losses.loss import (
    _along_classes,
    _check_classes,
    _check_labels,
    _check_numbers,
    _check_probabilities,
    _check_reduction,
    _weights_of_labels,
    binary_cross_entropy_with_logits,
)
from minorm.graph import trace
from minorm.support.documented import documented
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor

GAMMA = (
    "at least 0: a larger gamma lowers the weight of examples that are already right; 0 gives all examples the same "
    "weight"
)


@documented(
    LOSS,
    inputs="logits of any shape, floats",
    targets="1 for yes and 0 for no, or probabilities in between, of inputs' shape and type",
    alpha="the weight of a yes, 0 to 1; a no has the weight 1 - alpha. A number below 0 gives both the weight 1",
    gamma=GAMMA,
)
@trace.operation
def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2, reduction: str = "none"
) -> Tensor:
    """loss = -a_t * (1 - p_t)^gamma * log p_t, where p_t is the predicted probability of the right answer.

    With p = sigmoid(inputs) and targets t, p_t is p * t + (1 - p) * (1 - t), and a_t is alpha * t + (1 - alpha) * (1 -
    t). So a_t is alpha for a yes (t = 1) and 1 - alpha for a no (t = 0). If alpha is below 0, a_t is 1. As in
    torchvision.ops, the default is no reduction. Large logits cause no overflow. For 16-bit floats the computation is
    in float32.

    Raises ValueError if targets does not have inputs' shape, if alpha is above 1, or if gamma is below 0.

    Example:
        >>> F.sigmoid_focal_loss(mn.tensor([0.0, 4.0]), mn.tensor([1.0, 1.0]), alpha=-1)  # the second answer is right
        tensor([1.7329e-01, 5.8716e-06])

    Lin et al. 2017, arXiv:1708.02002.
    """
    name = "sigmoid_focal_loss"
    _check_numbers(name, inputs, targets, reduction)
    _check_gamma(name, gamma)
    number(name, "alpha", alpha)
    if not alpha <= 1:
        raise ValueError(f"{name}: alpha is {alpha}; expected a number from 0 to 1, or below 0 for no weights")
    compute = dtypes.compute_type(inputs.dtype)
    x, t = inputs.to(compute), targets.to(compute)
    wrong = sigmoid(-x) * t + sigmoid(x) * (1 - t)  # 1 - p_t, without a subtraction that loses digits
    loss = binary_cross_entropy_with_logits(x, t, reduction="none") * _power(wrong, gamma)
    if alpha >= 0:
        loss = loss * (alpha * t + (1 - alpha) * (1 - t))
    return reduced(loss, reduction).to(inputs.dtype)


@documented(
    CLASSES,
    input="logits (N, C, d1, ...) or (C): C is the number of classes",
    target="classes (N, d1, ...) as integers, or probabilities of input's shape and type",
    gamma=GAMMA,
    label_smoothing="s, from 0 to 1: a label t becomes (1 - s) * t + s / C",
)
@trace.operation
def focal_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    gamma: float = 2.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """loss = -sum_c q_c (1 - p_c)^gamma log p_c, where p = softmax(input) along axis 1 and q comes from the target.

    Each term of `cross_entropy` is multiplied by (1 - p_c)^gamma, so good predictions add little to the loss. q,
    weight, ignored labels and the mean work as in `cross_entropy`. With gamma = 0 the two losses are equal. For 16-bit
    floats the computation is in float32.

    Raises TypeError for a wrong type, and ValueError for a wrong shape, for labels outside 0 .. C - 1, and for gamma
    below 0.

    Example:
        >>> logits = mn.tensor([[2.0, 0.0], [0.0, 0.0]])
        >>> F.focal_loss(logits, mn.tensor([0, 1]), reduction="none")
        tensor([0.0018, 0.1733])

    Lin et al. 2017, arXiv:1708.02002.
    """
    name = "focal_loss"
    floats(name, ("weight",), input=input, weight=weight)
    classes = _check_classes(name, input, weight, reduction)
    _check_gamma(name, gamma)
    number(name, "label_smoothing", label_smoothing)
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{name}: label_smoothing is {label_smoothing}; expected 0 <= label_smoothing <= 1")
    axis = min(1, input.ndim - 1)
    compute = dtypes.compute_type(input.dtype)
    x = input.to(compute)
    factors = np.ones(classes, compute, like=x.array) if weight is None else weight.array
    if isinstance(target, Tensor) and dtypes.is_float(target.array.dtype):
        _check_probabilities(name, input, target)
        q = target.to(compute) * (1 - label_smoothing) + label_smoothing / classes
        if weight is not None:
            q = q * weight.detach().to(compute).reshape(_along_classes(input))
        total: Any = input.numel() // max(1, classes)
    else:
        _check_labels(name, input, target, ignore_index, classes)
        q, total, counted = _weights_of_labels(input, target.array, factors, ignore_index, label_smoothing)
        x = where(Tensor(counted), x, 0.0)  # a NaN at an ignored label does not count
    log_p = where(q == 0, 0.0, log_softmax(x, dim=axis))  # a logit of -inf for another class adds no loss
    wrong = where(log_p.exp() == 0, 1.0, -log_p.expm1())  # p log p and its gradient are 0 at p = 0
    loss = -(q * log_p * _power(wrong, gamma)).sum(axis)
    if reduction == "mean":
        loss = _mean(loss.sum(), total)
    return (loss.sum() if reduction == "sum" else loss).to(input.dtype)


@documented(
    CLASSES,
    input="logits (N, C, d1, ...): C is the number of classes, 1 for yes or no",
    target="classes (N, d1, ...) as integers, 0 and 1 where C is 1; or probabilities of input's shape and type",
    smooth="a number above 0, added to numerator and denominator, so that the loss is defined for a class without "
    "elements",
    ignore_index="positions whose label has this value are left out of the sums",
    reduction='"mean" and "sum" give one number, over all samples and classes; "none" gives (N, C)',
)
@trace.operation
def dice_loss(
    input: Tensor, target: Tensor, *, smooth: float = 1.0, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """loss = 1 - (2 sum(p * q) + smooth) / (sum(p) + sum(q) + smooth), for each sample and class.

    The loss is small if the predicted area and the target's area overlap well. p is softmax(input) along axis 1, or
    sigmoid(input) if there is only one class. q is the target's probability of that class. The sums run over d1, ...
    and leave out positions whose label is ignored. For 16-bit floats the computation is in float32.

    Raises TypeError for a wrong type. Raises ValueError for a wrong shape, for a label that is not a class, and for
    smooth <= 0.

    Example:
        >>> logits = mn.tensor([[[30.0, 30.0, -30.0, -30.0]]])  # (N, C, d1) = (1, 1, 4)
        >>> F.dice_loss(logits, mn.tensor([[1, 0, 0, 0]]))  # 1 - (2 * 1 + 1) / (2 + 1 + 1)
        tensor(0.25)

    Milletari et al. 2016, arXiv:1606.04797.
    """
    name = "dice_loss"
    floats(name, input=input)
    _check_reduction(name, reduction)
    number(name, "smooth", smooth)
    if not smooth > 0:
        raise ValueError(f"{name}: smooth is {smooth}; expected a number above 0")
    if input.ndim < 2:
        raise ValueError(
            f"{name}: input has shape {input.shape}; expected (N, C, d1, ...), where C is the number of classes"
        )
    classes = input.shape[1]
    compute = dtypes.compute_type(input.dtype)
    x = input.to(compute)
    if isinstance(target, Tensor) and dtypes.is_float(target.array.dtype):
        _check_probabilities(name, input, target)
        q = target.to(compute)
        counted = None
    else:
        _check_labels(name, input, target, ignore_index, max(2, classes))
        labels = target.to(dtypes.int64).reshape(target.shape[0], 1, *target.shape[1:])
        counted = labels != ignore_index
        known = Tensor(np.arange(1 if classes == 1 else 0, max(2, classes), like=input.array))
        q = (labels == known.reshape(1, -1, *[1] * (input.ndim - 2))).to(compute)
        x = where(counted, x, 0.0)
    p = sigmoid(x) if classes == 1 else softmax(x, dim=1)
    if counted is not None:
        p, q = p * counted.to(compute), q * counted.to(compute)

    def summed(values: Tensor) -> Tensor:
        return values.flatten(2).sum(-1) if values.ndim > 2 else values

    loss = 1 - (2 * summed(p * q) + smooth) / (summed(p) + summed(q) + smooth)
    return reduced(loss, reduction).to(input.dtype)


def _check_gamma(name: str, gamma: float) -> None:
    number(name, "gamma", gamma)
    if not gamma >= 0:
        raise ValueError(f"{name}: gamma is {gamma}; expected a number of at least 0")


def _power(share: Tensor, gamma: float) -> Tensor:
    """Return share^gamma for 0 <= share <= 1. For gamma below 2, a share of 0 is replaced by a tiny number, since the
    slope at 0 may be infinite.
    """
    if gamma == 0:
        return share.detach() * 0 + 1
    return (share if gamma >= 2 else share.clamp_min(float(np.finfo(share.dtype).tiny))) ** gamma


def _mean(total_loss: Tensor, total: Any) -> Tensor:
    """Return total_loss / total. If total is 0, because all labels are ignored, return NaN with a gradient of 0."""
    divisor = Tensor(np.asarray(total, total_loss.dtype, like=total_loss.array))
    none = divisor == 0
    return total_loss / where(none, 1.0, divisor) + where(none, float("nan"), 0.0).to(divisor.dtype)
