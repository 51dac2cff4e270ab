"""GradientProbe: an identity that calls a function when a gradient passes through it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.graph.graph import Function


class GradientProbe(Function):
    """Returns its inputs unchanged. The backward pass calls told(gradients), and uses the result as the gradients."""

    def forward(self, *arrays: Any, told: Callable[..., Any]) -> Any:
        self.told = told
        found = tuple(array.view() for array in arrays)
        return found if len(found) > 1 else found[0]

    def backward(self, *gradients: Any) -> Any:
        return tuple(None if g is None else g.copy() for g in self.told(gradients))  # a hook may keep the gradient

    def gradient(self, *gradients: Any) -> Any:
        return tuple(None if g is None else g.clone() for g in self.told(gradients))
