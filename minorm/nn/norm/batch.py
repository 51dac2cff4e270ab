"""BatchNorm: normalizes each channel with its mean and variance over the batch, or with running statistics in
evaluation.
"""

from __future__ import annotations

from typing import Any, ClassVar

import minorm.functional as F
from minorm.functional.norm.texts import LAYER
from minorm.nn.norm.base import RunningNorm
from minorm.nn.parameter import check_sizes
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


class _BatchNorm(RunningNorm):
    """In training, mean and var are taken over the batch, and they update running_mean and running_var (C):

        running = running * momentum + batch * (1 - momentum)

    In evaluation, and in a frozen layer, mean and var are running_mean and running_var. layer(x, mask) uses only the
    elements where mask is True. y has x's shape and type. See `F.batch_norm`.

    Example:
        >>> layer = nn.{name}(3)
        >>> layer(mn.randn({shape})).shape
        ({shape})
        >>> layer.eval()(mn.randn({shape})).shape  # with running_mean and running_var
        ({shape})

    Written to ONNX as BatchNormalization (opset 15); Ioffe and Szegedy 2015, arXiv:1502.03167.
    """

    normalize: ClassVar[Any] = staticmethod(F.batch_norm)
    takes_group: ClassVar[bool] = True  # convert_sync_batchnorm may replace it by a SyncBatchNorm

    def _shape(self) -> tuple[int, ...]:
        shape, name = self.num_features, type(self).__name__
        if not isinstance(shape, tuple):
            return super()._shape()
        if len(shape) + 1 not in self.ranks:
            raise ValueError(
                f"{name}: num_features={shape}; expected C, or the shape x.shape[1:] of an input {self.form}"
            )
        if not self.affine and not self.track_running_stats:
            raise ValueError(
                f"{name}: num_features={shape} has no effect with affine=False and track_running_stats=False; "
                "expected affine=True or track_running_stats=True; without them, use F.normalization(x, axes=(0,))"
            )
        for size in shape:
            check_sizes(name, num_features=size)
        return shape

    def _check(self, x: Tensor) -> None:
        if not isinstance(self.num_features, tuple):
            super()._check(x)
        elif x.shape[1:] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}: x has shape {x.shape}, the layer num_features={self.num_features}; "
                f"expected x.shape[1:] == {self.num_features}"
            )


class _Variant(_BatchNorm):
    """Base of the layers that compute something else than BatchNorm in training. Such a layer raises an error for an
    option that it does not support. The statistics are always taken over a single rank.
    """

    takes_group: ClassVar[bool] = False

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]  # takes less
        """Normalize x. An activation or a residual cannot be computed in the same pass."""
        return super().forward(x, mask)

    def _without(self, options: dict[str, Any]) -> dict[str, Any]:
        """Remove the options that only F.batch_norm takes, and return the rest. Raise ValueError if a removed option is
        not None.
        """
        for name in ("variance", "mask", "activation", "residual"):
            if options.pop(name, None) is not None:
                raise ValueError(
                    f"{type(self).__name__}: {name} is given; expected None: only BatchNorm layers take it"
                )
        return options


@documented(LAYER, base=_BatchNorm, shape="8, 3, 5")
class BatchNorm1d(_BatchNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for x (N, C) or (N, C, L), with mean and var of each channel."""

    ranks, form = (2, 3), "(N, C) or (N, C, L)"


@documented(LAYER, base=_BatchNorm, shape="8, 3, 5, 5")
class BatchNorm2d(_BatchNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, H, W), with mean and var of each channel."""

    ranks, form = (4,), "(N, C, H, W)"


@documented(LAYER, base=_BatchNorm, shape="8, 3, 5, 5, 5")
class BatchNorm3d(_BatchNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias for x (N, C, D, H, W), with mean and var of each channel."""

    ranks, form = (5,), "(N, C, D, H, W)"
