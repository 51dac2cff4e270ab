"""InstanceNorm: normalizes each channel in each sample."""

from __future__ import annotations

from typing import Any

import minorm.functional as F
from minorm.functional.norm.texts import LAYER
from minorm.nn.fused_pairs import takes_activation
from minorm.nn.norm.base import RunningNorm
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


class _InstanceNorm(RunningNorm):
    """mean and var are taken over the positions of each channel in each sample. If x has no batch axis, x is one
    sample. With track_running_stats=True, training updates running statistics as in BatchNorm, and evaluation uses
    these statistics. layer(x, mask) uses only the elements where mask is True. y has x's shape and type. See
    `F.instance_norm`.

    Example:
        >>> layer = nn.{name}(3, affine=True)
        >>> layer(mn.randn({shape})).shape
        ({shape})

    Written to ONNX as InstanceNormalization (opset 22) if there are no running statistics; Ulyanov et al. 2016,
    arXiv:1607.08022.
    """

    process_group: Any = None  # of a distributed run: see sync.py

    def normalize(self, *args: Any, **options: Any) -> Tensor:
        """Call F.instance_norm with the process group."""
        return F.instance_norm(*args, process_group=self.process_group, **options)

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.9,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        unbiased_running_var: bool = False,
        update_nonfinite: bool = False,
        compute_dtype: Any = None,
        backend: Any = None,
        variance: str | None = None,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias,
            unbiased_running_var=unbiased_running_var, update_nonfinite=update_nonfinite,
            compute_dtype=compute_dtype, backend=backend, variance=variance,
        )  # fmt: skip

    @takes_activation
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        activation: str | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Normalize x; returns y of the same shape. The channels are on axis 1, or on axis 0 if x is one sample."""
        if x.ndim + 1 in self.ranks:
            if x.shape[0] != self.num_features:
                raise ValueError(
                    f"{type(self).__name__}: x has {x.ndim} axes, so it is one sample, with {x.shape[0]} channels; the "
                    f"layer has num_features={self.num_features}; expected {self.form}; x.shape is {x.shape}"
                )
            one = None if residual is None else residual.reshape(1, *residual.shape)
            y = super().forward(x.reshape(1, *x.shape), mask, activation=activation, residual=one)
            return y.reshape(x.shape)
        return super().forward(x, mask, activation=activation, residual=residual)

    def _from_batch(self) -> bool:
        """Return True if mean and var come from x. As in PyTorch, mean and var also come from x if track_running_stats
        was set to False.
        """
        return super()._from_batch() or not self.track_running_stats


@documented(LAYER, base=_InstanceNorm, shape="8, 3, 5", num_features="C, the number of channels of x")
class InstanceNorm1d(_InstanceNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, L), for each channel of each sample."""

    ranks, form = (3,), "(N, C, L) or (C, L)"


@documented(LAYER, base=_InstanceNorm, shape="8, 3, 5, 5", num_features="C, the number of channels of x")
class InstanceNorm2d(_InstanceNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, H, W), for each channel of each sample."""

    ranks, form = (4,), "(N, C, H, W) or (C, H, W)"


@documented(LAYER, base=_InstanceNorm, shape="8, 3, 5, 5, 5", num_features="C, the number of channels of x")
class InstanceNorm3d(_InstanceNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, D, H, W), for each channel of each sample."""

    ranks, form = (5,), "(N, C, D, H, W) or (C, D, H, W)"
