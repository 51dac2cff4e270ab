"""InstanceNorm: mean and variance of each channel of each sample."""

from __future__ import annotations

from typing import Any

import minorm.functional as F
from minorm.nn.norm.base import RunningNorm
from minorm.tensor import Tensor


class _InstanceNorm(RunningNorm):
    process_group: Any = None  # of a distributed run: see sync.py

    def normalize(self, *args: Any, **options: Any) -> Tensor:
        """F.instance_norm, with the process group."""
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
        compute_dtype: Any = None,
        backend: Any = None,
        variance: str | None = None,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias,
            unbiased_running_var=unbiased_running_var, compute_dtype=compute_dtype, backend=backend,
            variance=variance,
        )  # fmt: skip

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x with its channels on axis 1, or one sample with them on axis 0 -> y of the same shape"""
        if x.ndim + 1 in self.ranks:
            if x.shape[0] != self.num_features:
                raise ValueError(
                    f"{type(self).__name__}: x has {x.ndim} axes, so it is one sample, with {x.shape[0]} channels; the "
                    f"layer has num_features={self.num_features}; expected {self.form}; x.shape is {x.shape}"
                )
            return super().forward(x.reshape(1, *x.shape), mask).reshape(x.shape)
        return super().forward(x, mask)


class InstanceNorm1d(_InstanceNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over x (N, C, L), mean and var of each channel of each sample.

    affine=True adds weight and bias (C), bias=False leaves the bias out; track_running_stats=True adds running
    statistics, which evaluation then uses. x may also be one sample, (C, L). layer(x, mask) takes the elements alone
    where mask is True. See `F.instance_norm`.
    """

    ranks, form = (3,), "(N, C, L) or (C, L)"


class InstanceNorm2d(_InstanceNorm):
    """The same over x (N, C, H, W) or (C, H, W)."""

    ranks, form = (4,), "(N, C, H, W) or (C, H, W)"


class InstanceNorm3d(_InstanceNorm):
    """The same over x (N, C, D, H, W) or (C, D, H, W)."""

    ranks, form = (5,), "(N, C, D, H, W) or (C, D, H, W)"
