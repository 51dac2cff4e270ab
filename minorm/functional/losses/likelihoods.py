"""Losses that are a negative log-likelihood of the target. The model predicts a number or a probability.

`reduction` is "mean" (the default), "sum" or "none". Input and target must have the same shape and the same float type,
unless stated otherwise.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.functional.argument_texts import LOSS
from minorm.functional.arguments import floats
from minorm.functional.losses.loss import _check_numbers, _check_reduction
from minorm.graph import trace
from minorm.ops.loss import LogOfProbabilities
from minorm.support.documented import documented
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """Return the losses themselves for reduction="none", their sum for "sum", and their mean for "mean"."""
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


@documented(
    LOSS, input="probabilities from 0 to 1, of any shape", target="probabilities from 0 to 1, of input's shape and type"
)
@trace.operation
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """loss = -weight * (target * log p + (1 - target) * log(1 - p)), where p = input; logarithms are at least -100.

    `binary_cross_entropy_with_logits` takes the logits before the sigmoid, and is more exact than this loss. Raises
    ValueError if input is outside 0 to 1, or if the shapes differ.

    Example:
        >>> F.binary_cross_entropy(mn.tensor([0.5, 0.0]), mn.tensor([1.0, 1.0]), reduction="none")
        tensor([  0.6931, 100.    ])
    """
    name = "binary_cross_entropy"
    _check_numbers(name, input, target, reduction)
    floats(name, ("weight",), input=input, weight=weight)
    if type(input.array) is np.ndarray and ((input.array < 0) | (input.array > 1)).any():
        raise ValueError(f"{name}: input holds numbers outside of 0 to 1; expected probabilities; apply F.sigmoid, or "
                         "use binary_cross_entropy_with_logits")  # fmt: skip
    loss = LogOfProbabilities.apply(input, target)
    return reduced(loss if weight is None else loss * weight, reduction)


@documented(
    LOSS,
    input="log-probabilities of any shape",
    target="probabilities, or their logarithms if log_target is True; input and target broadcast",
    reduction='"batchmean", the divergence, divides the sum by the length of axis 0; "mean" divides the sum by the '
    'number of elements; "sum" gives the sum, and "none" the loss of each element',
    log_target="True takes target for a logarithm, False for a probability",
)
@trace.operation
def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """loss = target * (log target - input): the Kullback-Leibler divergence of target from exp(input).

    The loss is 0 where target is 0.

    Raises ValueError unless reduction is "mean", "batchmean", "sum" or "none".

    Example:
        >>> log_p = mn.tensor([[0.5, 0.5]]).log()
        >>> F.kl_div(log_p, mn.tensor([[1.0, 0.0]]), reduction="batchmean")  # log 2
        tensor(0.6931)
    """
    if reduction not in ("mean", "sum", "none", "batchmean"):
        raise ValueError(f"kl_div: reduction is {reduction!r}; expected 'batchmean', 'sum', 'mean' or 'none'")
    floats("kl_div", (), input=input, target=target)
    loss = target.exp() * (target - input) if log_target else _xlogx(target) - target * input
    if reduction == "batchmean":
        return loss.sum() / max(1, input.shape[0] if input.ndim else 1)
    return reduced(loss, reduction)


@documented(LOSS, delta="where the parabola becomes a line, above 0")
@trace.operation
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """loss = weight * (d^2 / 2 where |d| <= delta, else delta * (|d| - delta / 2)), where d = input - target

    Raises ValueError unless the shapes are equal and delta > 0.

    Example:
        >>> F.huber_loss(mn.tensor([0.5, 3.0]), mn.tensor([0.0, 0.0]), reduction="none")
        tensor([0.125, 2.5  ])

    Huber 1964.
    """
    _check_numbers("huber_loss", input, target, reduction)
    if not delta > 0:
        raise ValueError(f"huber_loss: delta is {delta}; expected a number above 0")
    d = input - target
    size = d.abs()
    loss = where(size <= delta, d * d * 0.5, (size - 0.5 * delta) * delta)
    return reduced(loss if weight is None else loss * weight, reduction)


@documented(
    LOSS,
    input="the expected number, or its logarithm if log_input is True; floats of any shape",
    target="the observed numbers; input and target broadcast",
    log_input="True takes input for a logarithm, False for the expected number itself",
    full="True adds Stirling's approximation of log(target!), where target > 1",
    eps="added to input before the logarithm is taken, if log_input is False",
)
@trace.operation
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """loss = exp(input) - target * input; with log_input=False, loss = input - target * log(input + eps).

    Example:
        >>> F.poisson_nll_loss(mn.tensor([0.0, 1.0]), mn.tensor([1.0, 3.0]), reduction="none")
        tensor([ 1.    , -0.2817])
    """
    _check_reduction("poisson_nll_loss", reduction)
    floats("poisson_nll_loss", (), input=input, target=target)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        large = where(target > 1, target, 2.0)
        stirling = large * large.log() - large + (large * (2 * math.pi)).log() * 0.5
        loss = loss + where(target > 1, stirling, 0.0)
    return reduced(loss, reduction)


@documented(
    LOSS,
    input="the expected values, floats of any shape",
    target="the observed values, of input's shape",
    var=(
        "the variances: one number, or a Tensor of input's shape; the last axis may be missing, and axes may have "
        "length 1"
    ),
    full="True adds log(2 pi) / 2, a constant without a gradient",
    eps="the smallest variance",
)
@trace.operation
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """loss = (log var + (input - target)^2 / var) / 2, where var is at least eps.

    Raises ValueError if a variance is negative, or if the shapes do not fit together.

    Example:
        >>> F.gaussian_nll_loss(mn.tensor([0.0, 0.0]), mn.tensor([0.0, 2.0]), var=1.0, reduction="none")
        tensor([0., 2.])

    Nix and Weigend 1994.
    """
    _check_reduction("gaussian_nll_loss", reduction)
    floats("gaussian_nll_loss", (), input=input, target=target)
    if isinstance(var, Tensor):
        floats("gaussian_nll_loss", (), input=input, var=var)
    else:
        var = Tensor(np.full_like(input.array, var))
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = var.unsqueeze(-1)
        elif var.ndim != input.ndim or any(v not in (1, n) for v, n in zip(var.shape, input.shape, strict=True)):
            raise ValueError(
                f"gaussian_nll_loss: var has shape {var.shape}; expected {input.shape}, the shape of input, or this "
                "shape without its last axis or with axes of length 1"
            )
    if type(var.array) is np.ndarray and (var.array < 0).any():  # on a GPU the host would wait
        raise ValueError("gaussian_nll_loss: var holds numbers below 0; expected numbers of at least 0")
    bounded: Any = var + (where(var < eps, eps, var) - var).detach()  # as in PyTorch, the slope is 1 below eps too
    loss = (bounded.log() + (input - target) ** 2 / bounded) * 0.5
    return reduced(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def _xlogx(x: Any) -> Any:
    """Return x * log x. The result is 0 at x = 0 and NaN below 0; the gradient of x is 0 at 0 and below."""
    positive = where(x > 0, x, 1.0)  # log 1 = 0 at 0
    return where(x >= 0, positive * positive.log(), np.nan)
