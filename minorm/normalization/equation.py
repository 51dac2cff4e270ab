"""The equation of all normalizations, and the three settings in which normalizations differ besides their loops.

    y = (x - mean) * rstd * s + b        rstd = 1 / sqrt(var + eps)

- `eps` keeps rstd finite.
- `centered=False` (RMSNorm): mean is 0, and var is the mean of the squares.
- `guard=True` (MeanVarianceNormalization): eps is added to the *standard deviation*, so rstd = 1 / (std + eps). Where
  std is 0, all x are equal, and rstd is set to 0. So y and dx are 0 there. Otherwise dx would be g - mean(g) times 1e9.

Kernels and layers do not depend on these settings, since they use only statistics. But backward needs the derivative of
rstd, which the guard multiplies by the factor `slope`. With g = dy * s, xhat = (x - mean) * rstd and means over the
reduced axes,

    dx = rstd * (g - mean(g) - xhat * mean(g * xhat) * slope)

where the term mean(g) exists only if centered. Without the guard, d(rstd)/d(var) = -1/2 (var + eps)^(-3/2) gives slope
= 1. With the guard, d(rstd)/d(std) = -1 / (std + eps)^2 gives slope = (std + eps) / std, which is replaced by 0 where
std is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Equation:
    """The settings eps, centered and guard. An Equation is immutable, so that it can be shared and compared."""

    eps: float = 1e-5
    centered: bool = True
    guard: bool = False

    def rstd(self, var: Any, count: Any = None) -> Any:
        """Return 1 / sqrt(var + eps). With the guard, return 1 / (sqrt(var) + eps), and 0 where var is 0.

        If there is a mask, count is the number of elements from which each variance was computed. rstd is 0 where count
        is too small for a variance: where count is 0 or, if centered, at most 1.
        """
        if self.guard:
            std = var**0.5
            constant = std == 0
            rstd = ~constant / (std + self.eps + constant)
        else:
            rstd = 1.0 / (var + self.eps) ** 0.5
        if count is None:
            return rstd
        rstd[count <= (1 if self.centered else 0)] = 0
        return rstd

    def is_constant(self, count: Any) -> bool:
        """Return True if y is constant, since each mean is taken over a single element. The gradient of x is then
        exactly 0.
        """
        return self.centered and count == 1

    def slope(self, var: Any) -> Any:
        """Return the factor of mean(g * xhat) in dx. The factor is 1 without the guard. With the guard, the factor is
        (std + eps) / std, and 0 where std is 0.
        """
        if not self.guard:
            return 1.0
        std = var**0.5
        constant = std == 0
        return (std + self.eps) / (std + constant) * ~constant

    def __str__(self) -> str:
        mean = "x - mean" if self.centered else "x"
        return f"y = ({mean}) / {'(std + eps)' if self.guard else 'sqrt(var + eps)'} * s + b, eps={self.eps:g}"
