"""GroupNorm: normalizes each group of channels in each sample."""

from __future__ import annotations

from typing import Any, ClassVar

import minorm.functional as F
from minorm.functional.norm.texts import LAYER
from minorm.nn.attributes import MadeBy
from minorm.nn.fused_pairs import takes_activation
from minorm.nn.norm.base import Affine
from minorm.nn.parameter import check_sizes
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(
    LAYER,
    num_channels="C, the length of axis 1 of x",
    affine="True learns weight and bias, which start as 1 and 0; False learns neither",
    per_group="True gives weight and bias the shape (num_groups), False (num_channels)",
)
class GroupNorm(Affine):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, *), with mean and var of each group of channels in
    each sample.

    layer(x, mask) uses only the elements where mask is True. y has x's shape and type. See `F.group_norm`.

    Example:
        >>> layer = nn.GroupNorm(num_groups=2, num_channels=6)
        >>> layer(mn.randn(8, 6, 5, 5)).shape
        (8, 6, 5, 5)

    Written to ONNX as GroupNormalization (opset 21; opset 18 with per_group=True); Wu and He 2018, arXiv:1803.08494.
    """

    _made_by: ClassVar[MadeBy] = {**Affine._made_by, "per_group": lambda layer: vars(layer)["per_group"]}

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

    @takes_activation
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        activation: str | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Normalize x (N, num_channels, *); returns y of the same shape."""
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ValueError(
                f"GroupNorm: x has shape {x.shape}, the layer num_channels={self.num_channels}; "
                f"expected (N, {self.num_channels}, *)"
            )
        return F.group_norm(
            x, self.num_groups, self.weight, self.bias, self.eps, compute_dtype=self.compute_dtype,
            backend=self.backend, mask=mask, activation=activation, residual=residual,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the options as text for `repr`, in PyTorch's form."""
        bias = ", bias=False" if self.affine and self.bias is None else ""
        per_group = ", per_group=True" if self.per_group else ""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}{bias}{per_group}"
