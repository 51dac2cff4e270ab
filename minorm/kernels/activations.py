"""The activations and their gradients for the kernels of cpu/ and gpu/; an activation maps one array to another.

`Activations(map)` has a method for each activation and each gradient. The method calls map(name, fallback, a, b,
option), which returns a new array. If the kernels cannot take the arrays, `map` calls the fallback, which is the
reference's function of the same name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from minorm.kernels.reference import elementwise as reference

_GELU = {"none": "gelu", "tanh": "gelu_tanh"}  # by `approximate`


class Activations:
    """The activations x -> y, and their gradients (dy, x or y) -> dx."""

    def __init__(self, map: Callable[..., Any]) -> None:
        self._map = map

    def relu(self, x: Any) -> Any:
        return self._map("relu", reference.relu, x)

    def relu_grad(self, dy: Any, y: Any) -> Any:
        return self._map("relu_grad", reference.relu_grad, dy, y)

    def relu6(self, x: Any) -> Any:
        return self._map("relu6", reference.relu6, x)

    def relu6_grad(self, dy: Any, y: Any) -> Any:
        return self._map("relu6_grad", reference.relu6_grad, dy, y)

    def leaky_relu(self, x: Any, slope: float = 0.01) -> Any:
        return self._map("leaky_relu", reference.leaky_relu, x, None, slope)

    def leaky_relu_grad(self, dy: Any, x: Any, slope: float = 0.01) -> Any:
        return self._map("leaky_relu_grad", reference.leaky_relu_grad, dy, x, slope)

    def hardswish(self, x: Any) -> Any:
        return self._map("hardswish", reference.hardswish, x)

    def hardswish_grad(self, dy: Any, x: Any) -> Any:
        return self._map("hardswish_grad", reference.hardswish_grad, dy, x)

    def sigmoid(self, x: Any) -> Any:
        return self._map("sigmoid", reference.sigmoid, x)

    def sigmoid_grad(self, dy: Any, y: Any) -> Any:
        return self._map("sigmoid_grad", reference.sigmoid_grad, dy, y)

    def tanh(self, x: Any) -> Any:
        return self._map("tanh", reference.tanh, x)

    def tanh_grad(self, dy: Any, y: Any) -> Any:
        return self._map("tanh_grad", reference.tanh_grad, dy, y)

    def silu(self, x: Any) -> Any:
        return self._map("silu", reference.silu, x)

    def silu_grad(self, dy: Any, x: Any) -> Any:
        return self._map("silu_grad", reference.silu_grad, dy, x)

    def elu(self, x: Any, alpha: float = 1.0) -> Any:
        return self._map("elu", reference.elu, x, None, alpha)

    def elu_grad(self, dy: Any, x: Any, alpha: float = 1.0) -> Any:
        return self._map("elu_grad", reference.elu_grad, dy, x, alpha)

    def gelu(self, x: Any, approximate: str = "none") -> Any:
        return self._map(_GELU[approximate], functools.partial(reference.gelu, approximate=approximate), x)

    def gelu_grad(self, dy: Any, x: Any, approximate: str = "none") -> Any:
        fallback = functools.partial(reference.gelu_grad, approximate=approximate)
        return self._map(_GELU[approximate] + "_grad", fallback, dy, x)

    def erf(self, x: Any) -> Any:
        return self._map("erf", reference.erf, x)

    def erf_grad(self, dy: Any, x: Any) -> Any:
        return self._map("erf_grad", reference.erf_grad, dy, x)
