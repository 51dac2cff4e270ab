"""Adds an activation to a backend that lacks it, by separate operations after the normalization.

Forward computes y = max(norm(x) + residual, 0). Backward sets dy to 0 where y <= 0. This new dy is the gradient of the
residual, and also the dy for the backward pass of norm.
"""

from __future__ import annotations

from typing import Any

from minorm.kernels import select
from minorm.kernels.protocol import Statistics
from minorm.normalization.nest import Nest

Array = Any


class ActivatedBackend:
    """Adds `activation` to the functions of a backend that lacks it; see kernels/protocol.py."""

    def __init__(self, norm: Any) -> None:
        self.norm = norm

    def __getattr__(self, name: str) -> Any:
        return getattr(self.norm, name)

    def apply(
        self, nest: Nest, x: Array, *others: Any, activation: str, residual: Array | None = None, **options: Any
    ) -> Array:
        """Return the activation of y + residual."""
        return activated(self.norm.apply(nest, x, *others, **options), activation, residual)

    def forward(
        self, nest: Nest, x: Array, *others: Any, activation: str, residual: Array | None = None, **options: Any
    ) -> tuple[Array, Statistics]:
        """Return the activation of y + residual, and the statistics."""
        y, stats = self.norm.forward(nest, x, *others, **options)
        return activated(y, activation, residual), stats

    def backward(
        self, nest: Nest, dy: Array, x: Array, *others: Any, y: Array, dresidual: Array | None = None, **options: Any
    ) -> tuple[Array | None, Array | None, Array | None]:
        """Return dx, ds and db, the gradients of x, scale s and bias b; fill `dresidual` if it is given."""
        dy = activation_grad(dy, y)
        if dresidual is not None:
            dresidual[...] = dy
        return self.norm.backward(nest, dy, x, *others, **options)


def activated(y: Array, activation: str, residual: Array | None) -> Array:
    """Return max(y + residual, 0)."""
    assert activation == "relu"
    maps = select.backend(y).elementwise
    return maps.relu(y if residual is None else maps.add(y, residual))


def activation_grad(dy: Array, y: Array) -> Array:
    """Return the gradient for the activation's input: dy, but 0 where y, the activation's result, is 0 or less."""
    return select.backend(dy).elementwise.relu_grad(dy, y)
