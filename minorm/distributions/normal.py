"""The normal distribution. Its draws are loc + scale * z, so gradients reach loc and scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.distributions.distribution import METHODS, VALIDATE, Distribution, broadcast_parameters
from minorm.support.documented import documented, documented_methods
from minorm.tensor.random_tensors import randn
from minorm.tensor.tensor import Tensor

_HALF_LOG = 0.5 * math.log(2 * math.pi)


@documented(
    VALIDATE, loc="the mean, a Tensor or a number", scale="the standard deviation, above 0; loc and scale broadcast"
)
@documented_methods(METHODS)
class Normal(Distribution):
    """density(x) = exp(-(x - loc)^2 / (2 scale^2)) / (scale sqrt(2 pi)).

    Raises ValueError if scale is not above 0, or a parameter is NaN.

    Example:
        >>> p = mn.distributions.Normal(mn.tensor([0.0, 1.0]), 2.0)
        >>> p.log_prob(mn.tensor([0.0, 1.0]))
        tensor([-1.6121, -1.6121])
        >>> p.rsample((5,)).shape, p.stddev
        ((5, 2), tensor([2., 2.]))
    """

    has_rsample = True
    parameters = ("loc", "scale")
    loc: Tensor
    scale: Tensor

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_parameters("Normal", loc=loc, scale=scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _check_parameter(self, name: str, value: Tensor) -> None:
        if name == "scale":
            self._expect(name, value, lambda x: x > 0, "numbers above 0")
        else:
            self._expect(name, value, lambda x: ~np.isnan(x), "numbers")

    @property
    def mean(self) -> Tensor:
        """loc"""
        return self.loc

    @property
    def mode(self) -> Tensor:
        """loc"""
        return self.loc

    @property
    def stddev(self) -> Tensor:
        """scale"""
        return self.scale

    @property
    def variance(self) -> Tensor:
        """scale^2"""
        return self.scale**2

    def rsample(self, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Return loc + scale * z, where z is drawn from Normal(0, 1), so that gradients reach loc and scale."""
        z = randn(*self._shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.scale * z

    def log_prob(self, value: Tensor) -> Tensor:
        """Return -((value - loc) / scale)^2 / 2 - log(scale) - log(2 pi) / 2."""
        value = self._checked_value(value, lambda x: ~np.isnan(x), "numbers")
        return -((value - self.loc) ** 2) / (2 * self.scale**2) - self.scale.log() - _HALF_LOG

    def cdf(self, value: Tensor) -> Tensor:
        """Return the probability that a draw is at most value."""
        value = self._checked_value(value, lambda x: ~np.isnan(x), "numbers")
        return ((value - self.loc) / (self.scale * math.sqrt(2))).erf() * 0.5 + 0.5

    def entropy(self) -> Tensor:
        """Return 1/2 + log(2 pi) / 2 + log(scale)."""
        return 0.5 + _HALF_LOG + self.scale.log()
