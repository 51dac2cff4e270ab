"""The categorical distribution: one of several classes, each with its probability."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from minorm.devices import dtypes
from minorm.distributions.distribution import METHODS, VALIDATE, Distribution, as_parameter, one_of
from minorm.graph.grad_mode import enable_grad, no_grad
from minorm.support.documented import documented, documented_methods
from minorm.tensor.combining import broadcast_tensors
from minorm.tensor.creation import arange, full, zeros
from minorm.tensor.tensor import Tensor


@documented(
    VALIDATE,
    probs="the weights of the classes along the last axis, at least 0; they are divided by their sum",
    logits="the logarithms of the weights, given instead of probs; a constant added to all logarithms has no effect",
)
@documented_methods(METHODS)
class Categorical(Distribution):
    """Draws a class from 0 to K - 1, where class k has the probability probs[..., k].

    Raises ValueError unless exactly one of probs and logits is given, and if a weight is below 0.

    Example:
        >>> p = mn.distributions.Categorical(probs=mn.tensor([1.0, 1.0, 2.0]))
        >>> p.probs, p.log_prob(mn.tensor(2)).exp()
        (tensor([0.25, 0.25, 0.5 ]), tensor(0.5))
        >>> p.sample((2, 3)).shape, p.mode
        ((2, 3), tensor(2))
    """

    has_enumerate_support = True
    parameters = ("probs", "logits")

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        name = one_of("Categorical", probs=probs, logits=logits)
        given = as_parameter("Categorical", name, logits if probs is None else probs)
        if given.ndim < 1:
            raise ValueError(f"Categorical: {name} has shape (); expected at least one axis, which counts the classes")
        self._events = given.shape[-1]
        normalized = (
            given / given.sum(-1, keepdim=True) if name == "probs" else given - given.logsumexp(-1, keepdim=True)
        )
        vars(self)[name] = normalized
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def _parameter_event(self) -> tuple[int, ...]:
        return (self._events,)

    def _check_parameter(self, name: str, value: Tensor) -> None:
        if name == "probs":
            expected = "weights of at least 0, with a sum above 0"
            self._expect(name, value, lambda p: (p >= 0) & (p <= 1), expected)
        else:
            self._expect(name, value, lambda p: ~np.isnan(p), "numbers")

    @cached_property
    def probs(self) -> Tensor:
        """The probabilities."""
        with enable_grad():  # sample() may be the first to compute it, without gradients
            return self.logits.softmax(-1)

    @cached_property
    def logits(self) -> Tensor:
        """log(p), where each probability p is limited to the range from eps to 1 - eps.

        eps is the eps of p's float type.
        """
        eps = float(dtypes.finfo(self.probs.dtype).eps)
        with enable_grad():
            return self.probs.clamp(eps, 1 - eps).log()

    @property
    def mean(self) -> Tensor:
        """NaN, because classes are not numbers."""
        like = self._of_type()
        return full(self._batch_shape, math.nan, dtype=like.dtype, device=like.device)

    @property
    def variance(self) -> Tensor:
        """NaN, because classes are not numbers."""
        return self.mean

    @property
    def mode(self) -> Tensor:
        """The most likely class."""
        return self.probs.argmax(-1)

    def sample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Return randomly drawn classes, as int64."""
        shape = self._shape(sample_shape)
        count = math.prod(sample_shape)
        if not count or not math.prod(self._batch_shape):
            return zeros(*shape, dtype=dtypes.int64, device=self._of_type().device)
        with no_grad():
            rows = self.probs.reshape(-1, self._events).multinomial(count, replacement=True)
            return rows.t().reshape(*shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the logarithm of the probability of the class `value`."""
        last = self._events - 1
        value = self._checked_value(value, lambda x: (x >= 0) & (x <= last) & (x % 1 == 0), f"classes, 0 to {last}")
        place, logits = broadcast_tensors(value.to(dtypes.int64).unsqueeze(-1), self.logits)
        return logits.gather(-1, place[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return -sum p log p."""
        least = float(dtypes.finfo(self.logits.dtype).min)
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """Return all classes along a new first axis."""
        values = arange(self._events, dtype=dtypes.int64, device=self._of_type().device)
        values = values.reshape(self._events, *(1,) * len(self._batch_shape))
        return values.expand(self._events, *self._batch_shape) if expand else values
