"""Linear, and the layers that only give x another shape: Identity, Flatten, Unflatten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minorm.functional as F
from minorm.mistakes import not_a_tensor
from minorm.nn import init
from minorm.nn.module import Module
from minorm.nn.parameter import check_sizes, uninitialized
from minorm.tensor import Tensor


class Linear(Module):
    """y = x @ weight.T + bias, on the last axis of x: (..., in_features) -> (..., out_features).

    weight (out_features, in_features) and bias (out_features) start uniform on +-1 / sqrt(in_features).
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        check_sizes("Linear", in_features=in_features, out_features=out_features)
        self.in_features, self.out_features = in_features, out_features
        self.weight = uninitialized((out_features, in_features), dtype, device)
        self.register_parameter("bias", uninitialized((out_features,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew."""
        init.default_(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) -> (..., out_features)"""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """The sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Identity(Module):
    """y = x, whatever arguments it is built with: a place holder for a layer that is left out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        super().__init__()

    def forward(self, x: Any) -> Any:
        """x itself"""
        return x


class Flatten(Module):
    """Axes start_dim to end_dim, both included, become one: (N, C, H, W) -> (N, C * H * W) by default."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """The same elements with fewer axes."""
        if not isinstance(x, Tensor):
            raise not_a_tensor("Flatten", "x", x)
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """The axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Axis `dim` becomes several of the sizes `unflattened_size`, one of which may be -1."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """The same elements with more axes."""
        if not isinstance(x, Tensor):
            raise not_a_tensor("Unflatten", "x", x)
        if not -x.ndim <= self.dim < x.ndim:
            raise IndexError(f"Unflatten: dim={self.dim} is out of range for shape {x.shape}")
        dim = self.dim % x.ndim
        return x.reshape(*x.shape[:dim], *self.unflattened_size, *x.shape[dim + 1 :])

    def extra_repr(self) -> str:
        """The axis and its sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
