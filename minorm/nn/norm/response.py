"""LocalResponseNorm: each element by the squares of its neighbours."""

from __future__ import annotations

import minorm.functional as F
from minorm.nn.module import Module
from minorm.tensor import Tensor


class LocalResponseNorm(Module):
    """y = x / (k + alpha / size * sum x^2)^beta over `size` neighbouring channels. See `F.local_response_norm`."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x of shape (N, C, *)."""
        return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The options, as PyTorch prints them."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """`LocalResponseNorm` by its older name."""
