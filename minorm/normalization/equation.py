"""The one equation, and the three small differences between normalizations besides their loops.

    y = (x - mean) * rstd * s + b        rstd = 1 / sqrt(var + eps)

- `eps` keeps rstd finite.
- `centered=False` (RMSNorm): mean is 0, and var is the mean of the squares.
- `guard=True` (MeanVarianceNormalization): eps is added to the *standard deviation*, rstd = 1 / (std + eps), and 0
  where std is 0: all x are equal there, so y is 0, and so is dx instead of g - mean(g) times 1e9.

Kernels and layers know none of this: they see only statistics. Backward needs the derivative of rstd, and there the
guard leaves one trace, `slope`. With g = dy * s, xhat = (x - mean) * rstd and means over the reduced axes,

    dx = rstd * (g - mean(g) - xhat * mean(g * xhat) * slope)

where mean(g) is absent if not centered. From d(rstd)/d(var) = -1/2 (var + eps)^(-3/2) follows slope = 1; from
d(rstd)/d(std) = -1 / (std + eps)^2 follows slope = (std + eps) / std, which stands for 0 where std is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Equation:
    """eps, centered and guard; immutable, so that it can be shared and compared."""

    eps: float = 1e-5
    centered: bool = True
    guard: bool = False

    def rstd(self, var: Any, count: Any = None) -> Any:
        """1 / sqrt(var + eps), or 1 / (sqrt(var) + eps) with the guard and 0 where var is 0.

        count: the number of elements behind each variance, under a mask. rstd is 0 where they do not determine a
        variance: no elements, or a single one if centered.
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
        """Is y constant? A single number is its own mean, so its gradient is exactly 0."""
        return self.centered and count == 1

    def slope(self, var: Any) -> Any:
        """The factor of mean(g * xhat) in dx: 1, or (std + eps) / std with the guard, 0 where std is 0."""
        if not self.guard:
            return 1.0
        std = var**0.5
        constant = std == 0
        return (std + self.eps) / (std + constant) * ~constant

    def __str__(self) -> str:
        mean = "x - mean" if self.centered else "x"
        return f"y = ({mean}) / {'(std + eps)' if self.guard else 'sqrt(var + eps)'} * s + b, eps={self.eps:g}"
