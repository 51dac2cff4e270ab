"""Dropout as a function."""

from __future__ import annotations

from minorm import random, trace
from minorm.functional.arguments import floats, number
from minorm.ops.dropout import Dropout
from minorm.tensor import Tensor


@trace.operation
def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
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
