"""The Bernoulli distribution: 1 with probability p, otherwise 0."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.distributions.distribution import METHODS, VALIDATE, Distribution, broadcast_parameters, one_of
from minorm.graph.grad_mode import enable_grad, no_grad
from minorm.support.documented import documented, documented_methods
from minorm.tensor.combining import broadcast_tensors, where
from minorm.tensor.creation import arange
from minorm.tensor.tensor import Tensor


@documented(
    VALIDATE,
    probs="the probability p of a 1, from 0 to 1: a Tensor or a number",
    logits="log(p / (1 - p)), given instead of probs",
)
@documented_methods(METHODS)
class Bernoulli(Distribution):
    """1 with probability p, otherwise 0. The parameter is p (`probs`), or log(p / (1 - p)) (`logits`).

    `logits` lose no digits if p is near 0 or 1. Raises ValueError unless exactly one of probs and logits is given, and
    if p is outside 0 to 1.

    Example:
        >>> p = mn.distributions.Bernoulli(probs=mn.tensor([0.0, 0.5, 1.0]))
        >>> p.mean, p.variance
        (tensor([0. , 0.5, 1. ]), tensor([0.  , 0.25, 0.  ]))
        >>> p.sample((4,)).shape
        (4, 3)
    """

    has_enumerate_support = True
    parameters = ("probs", "logits")

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        name = one_of("Bernoulli", probs=probs, logits=logits)
        (value,) = broadcast_parameters("Bernoulli", **{name: logits if probs is None else probs})
        vars(self)[name] = value
        super().__init__(value.shape, validate_args=validate_args)

    def _check_parameter(self, name: str, value: Tensor) -> None:
        if name == "probs":
            self._expect(name, value, lambda p: (p >= 0) & (p <= 1), "numbers from 0 to 1")
        else:
            self._expect(name, value, lambda p: ~np.isnan(p), "numbers")

    @cached_property
    def probs(self) -> Tensor:
        """The probability of 1."""
        with enable_grad():  # sample() may be the first to compute it, without gradients
            return self.logits.sigmoid()

    @cached_property
    def logits(self) -> Tensor:
        """log(p / (1 - p)), where p is limited to the range from eps to 1 - eps.

        eps is the eps of p's float type.
        """
        eps = float(dtypes.finfo(self.probs.dtype).eps)
        with enable_grad():
            p = self.probs.clamp(eps, 1 - eps)
            return p.log() - (-p).log1p()

    @property
    def mean(self) -> Tensor:
        """p"""
        return self.probs

    @property
    def mode(self) -> Tensor:
        """1 if p > 1/2, 0 if p < 1/2, NaN if p = 1/2."""
        p = self.probs.detach()
        return where(p == 0.5, float("nan"), (p >= 0.5).to(p.dtype))

    @property
    def variance(self) -> Tensor:
        """p (1 - p)"""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Return draws of 0 and 1, in the type of p."""
        with no_grad():
            return self.probs.expand(*self._shape(sample_shape)).bernoulli()

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p where value is 1, and log(1 - p) where value is 0."""
        value = self._checked_value(value, lambda x: (x == 0) | (x == 1), "0 and 1")
        if not dtypes.is_float(value.dtype):
            value = value.to(self.logits.dtype)
        logits, value = broadcast_tensors(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        """Return -p log p - (1 - p) log(1 - p)."""
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return 0 and 1 along a new first axis."""
        like = self._of_type()
        values = arange(2, dtype=like.dtype, device=like.device).reshape(2, *(1,) * len(self._batch_shape))
        return values.expand(2, *self._batch_shape) if expand else values
