"""An activation for kernels that know none: the operations that it stands for, one after the other.

Forward y = max(norm(x) + residual, 0). Backward dy is 0 where y <= 0; so it is the gradient of the residual, and what
the backward pass of norm gets.
"""

from __future__ import annotations

from typing import Any

from minorm.kernels import select
from minorm.kernels.protocol import Statistics
from minorm.normalization.nest import Nest

Array = Any


class ActivatedBackend:
    """The functions of kernels/protocol.py with `activation`, on a backend whose functions have none."""

    def __init__(self, norm: Any) -> None:
        self.norm = norm

    def __getattr__(self, name: str) -> Any:
        return getattr(self.norm, name)

    def apply(
        self, nest: Nest, x: Array, *others: Any, activation: str, residual: Array | None = None, **options: Any
    ) -> Array:
        """What the activation makes of y + residual."""
        return activated(self.norm.apply(nest, x, *others, **options), activation, residual)

    def forward(
        self, nest: Nest, x: Array, *others: Any, activation: str, residual: Array | None = None, **options: Any
    ) -> tuple[Array, Statistics]:
        """The same, and the statistics."""
        y, stats = self.norm.forward(nest, x, *others, **options)
        return activated(y, activation, residual), stats

    def backward(
        self, nest: Nest, dy: Array, x: Array, *others: Any, y: Array, dresidual: Array | None = None, **options: Any
    ) -> tuple[Array | None, Array | None, Array | None]:
        """dx, ds, db; and dresidual, if it is given."""
        dy = activation_grad(dy, y)
        if dresidual is not None:
            dresidual[...] = dy
        return self.norm.backward(nest, dy, x, *others, **options)


def activated(y: Array, activation: str, residual: Array | None) -> Array:
    """max(y + residual, 0)."""
    assert activation == "relu"
    maps = select.backend(y).elementwise
    return maps.relu(y if residual is None else maps.add(y, residual))


def activation_grad(dy: Array, y: Array) -> Array:
    """The gradient of y + residual."""
    return select.backend(dy).elementwise.relu_grad(dy, y)
