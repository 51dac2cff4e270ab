"""GroupNorm: mean and variance of each group of channels of each sample."""

from __future__ import annotations

from typing import Any

import minorm.functional as F
from minorm.nn.norm.base import Affine
from minorm.nn.parameter import check_sizes
from minorm.tensor import Tensor


class GroupNorm(Affine):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over x (N, C, *), mean and var of each group of each sample.

    weight and bias (num_channels), or (num_groups) with per_group=True as in ONNX GroupNormalization 18.
    layer(x, mask) takes the elements alone where mask is True. See `F.group_norm`.
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        per_group: bool = False,
        compute_dtype: Any = None,
        backend: Any = None,
    ) -> None:
        super().__init__()
        check_sizes("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_groups={num_groups} must divide num_channels={num_channels}")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.affine, self.per_group, self.compute_dtype, self.backend = affine, per_group, compute_dtype, backend
        self._add_affine((num_groups if per_group else num_channels,), affine, affine and bias, dtype, device)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (N, num_channels, *) -> y of the same shape"""
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ValueError(
                f"GroupNorm: x has shape {x.shape}, the layer num_channels={self.num_channels}; "
                f"expected (N, {self.num_channels}, *)"
            )
        options = {"compute_dtype": self.compute_dtype, "backend": self.backend, "mask": mask}
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, **options)

    def extra_repr(self) -> str:
        """The options, as PyTorch prints them."""
        bias = ", bias=False" if self.affine and self.bias is None else ""
        per_group = ", per_group=True" if self.per_group else ""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}{bias}{per_group}"
