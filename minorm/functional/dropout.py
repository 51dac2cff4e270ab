"""Dropout as a function: of single elements, of whole channels, and of what `selu` gives."""

from __future__ import annotations

import numpy as np

from minorm import random, trace
from minorm.functional.arguments import floats, number
from minorm.ops.dropout import Dropout
from minorm.tensor import Tensor


@trace.operation
def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """In training, each element is 0 with probability p and x / (1 - p) otherwise; in evaluation, x itself.

    The draws come from minorm's generator: `minorm.manual_seed` repeats them. Source: Srivastava et al. 2014.
    """
    floats("dropout", x=x)
    check_probability("dropout", p)
    if not training or p == 0:
        return x
    return Dropout.apply(x, p=float(p), generator=random.generator())


def check_probability(operation: str, p: float) -> None:
    """Raise unless p is a number from 0 to 1."""
    number(operation, "p", p)
    if not 0 <= p <= 1:
        raise ValueError(f"{operation}: p is {p}; expected a probability, 0 <= p <= 1")


@trace.operation
def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """In training, each channel of (N, C, L) or (C, L) is 0 with probability p, and grows by 1 / (1 - p) otherwise."""
    return _whole_channels("dropout1d", input, (2, 3), p, training)


@trace.operation
def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """In training, each channel of (N, C, H, W) is 0 with probability p, and grows by 1 / (1 - p) otherwise.

    (N, C, L) and (N, C) are taken as well. Source: Tompson et al. 2015, arXiv:1411.4280.
    """
    return _whole_channels("dropout2d", input, (2, 3, 4), p, training, batch=True)


@trace.operation
def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """In training, each channel of (N, C, D, H, W) or (C, D, H, W) is 0 with probability p; otherwise it grows."""
    return _whole_channels("dropout3d", input, (4, 5), p, training)


@trace.operation
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:  # noqa: ARG001
    """Dropout to the lowest value of `selu`, scaled and moved so that mean 0 and variance 1 stay.

    Source: Klambauer et al. 2017, arXiv:1706.02515.
    """
    floats("alpha_dropout", input=input)
    check_probability("alpha_dropout", p)
    return _alpha(input, input.shape, p) if training and p else input


@trace.operation
def feature_alpha_dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,  # noqa: ARG001
) -> Tensor:
    """`alpha_dropout` of whole channels."""
    floats("feature_alpha_dropout", input=input)
    check_probability("feature_alpha_dropout", p)
    return _alpha(input, (*input.shape[:2], *(1,) * (input.ndim - 2)), p) if training and p else input


LOWEST = -1.7580993408473766  # of selu: -scale * alpha


def _whole_channels(
    name: str, x: Tensor, ranks: tuple[int, ...], p: float, training: bool, batch: bool = False
) -> Tensor:
    floats(name, input=x)
    check_probability(name, p)
    if x.ndim not in ranks:
        raise ValueError(f"{name}: input has shape {x.shape}; expected {' or '.join(map(str, ranks))} axes")
    if not training or p == 0:
        return x
    lead = x.shape[:2] if batch or x.ndim == ranks[-1] else x.shape[:1]
    return x * _kept(x, (*lead, *(1,) * (x.ndim - len(lead))), p)


def _kept(x: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    """0 with probability p, else 1 / (1 - p)."""
    return Dropout.apply(Tensor(np.ones_like(x.array, shape=shape)), p=float(p), generator=random.generator())


def _alpha(x: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    if p == 1:
        return x * 0
    kept = _kept(x, shape, p) * (1 - p)
    scale = ((1 - p) * (1 + p * LOWEST**2)) ** -0.5
    return (x * kept + (1 - kept) * LOWEST) * scale - scale * p * LOWEST
