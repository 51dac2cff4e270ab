"""Activation layers: each calls its functional, and holds no parameters.

`inplace` is there so that a definition written for PyTorch builds; the result is always a new tensor.
"""

from __future__ import annotations

import minorm.functional as F
from minorm.nn.module import Module
from minorm.tensor import Tensor


class ReLU(Module):
    """max(x, 0)"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.relu`."""
        return F.relu(x)


class ReLU6(Module):
    """min(max(x, 0), 6)"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.relu6`."""
        return F.relu6(x)


class LeakyReLU(Module):
    """x where x > 0, else negative_slope * x"""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.leaky_relu`."""
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    """x where x > 0, else alpha * (exp(x) - 1)"""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.elu`."""
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        """The factor."""
        return f"alpha={self.alpha}"


class GELU(Module):
    """x * Phi(x), Phi the normal distribution function; approximate="tanh" for its usual approximation"""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """See `F.gelu`."""
        return F.gelu(x, self.approximate)

    def extra_repr(self) -> str:
        """Which form."""
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.silu`."""
        return F.silu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))"""

    def forward(self, x: Tensor) -> Tensor:
        """See `F.sigmoid`."""
        return F.sigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """See `F.tanh`."""
        return F.tanh(x)


class Hardswish(Module):
    """x * min(max(x + 3, 0), 6) / 6"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.hardswish`."""
        return F.hardswish(x)


class Hardsigmoid(Module):
    """min(max(x + 3, 0), 6) / 6"""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """See `F.hardsigmoid`."""
        return F.hardsigmoid(x)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold"""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        """See `F.softplus`."""
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Both numbers."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softmax(Module):
    """exp(x) / sum exp(x), the sum along axis `dim`; unlike PyTorch's, `dim` must be given"""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """See `F.softmax`."""
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """x - log sum exp(x), the sum along axis `dim`; unlike PyTorch's, `dim` must be given"""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """See `F.log_softmax`."""
        return F.log_softmax(x, self.dim)

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"
