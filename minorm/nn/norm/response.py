"""LocalResponseNorm: divides each element by a power of its neighbours' mean square."""

from __future__ import annotations

import minorm.functional as F
from minorm.functional.norm.texts import LRN
from minorm.nn.module import Module
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(LRN)
class LocalResponseNorm(Module):
    """y = x / (k + alpha / size * sum x^2)^beta for x (N, C, *), with the sum over `size` neighbouring channels.

    y has x's shape and type. See `F.local_response_norm`.

    Example:
        >>> layer = nn.LocalResponseNorm(3, alpha=3.0, beta=1.0)
        >>> layer(mn.ones(1, 3))
        tensor([[0.3333, 0.25  , 0.3333]])

    Written to ONNX as LRN (opset 13); Krizhevsky, Sutskever and Hinton 2012, section 3.3.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x of shape (N, C, *)."""
        return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Return the options as text for `repr`, in PyTorch's form."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


@documented(LRN, base=LocalResponseNorm)
class CrossMapLRN2d(LocalResponseNorm):
    """`LocalResponseNorm` by its older name:"""
