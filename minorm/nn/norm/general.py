"""MeanVarianceNorm and Normalization: statistics over any axes, as in ONNX and TensorRT."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import minorm.functional as F
from minorm.functional.norm.texts import ANY_AXES, AXES, AXIS_GROUPS, GUARD_EPS, LAYER
from minorm.nn.attributes import MadeBy
from minorm.nn.fused_pairs import takes_activation
from minorm.nn.module import Module
from minorm.nn.norm.base import Affine, checked_shape
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(LAYER, axes=AXES, eps=GUARD_EPS)
class MeanVarianceNorm(Module):
    """y = (x - mean) / (sqrt(var) + eps), with mean and var over `axes`. eps is outside the root.

    layer(x, mask) uses only the elements where mask is True. y has x's shape and type. See `F.mean_variance_norm`.

    Example:
        >>> layer = nn.MeanVarianceNorm(axes=(1,))
        >>> layer(mn.tensor([[1.0, 3.0]]))
        tensor([[-1.,  1.]])

    Written to ONNX as MeanVarianceNormalization (opset 13).
    """

    def __init__(
        self,
        axes: Sequence[int] = (0, 2, 3),
        eps: float = 1e-9,
        *,
        compute_dtype: Any = None,
        backend: Any = None,
        variance: str | None = None,
    ) -> None:
        super().__init__()
        self.axes, self.eps, self.compute_dtype, self.backend = _axes(axes), eps, compute_dtype, backend
        self.variance = variance

    @takes_activation
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        activation: str | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Normalize x and return y of the same shape. x must have all of `axes`."""
        return F.mean_variance_norm(
            x, self.axes, self.eps, compute_dtype=self.compute_dtype, backend=self.backend, variance=self.variance,
            mask=mask, activation=activation, residual=residual,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the options as text for `repr`."""
        return f"axes={self.axes}, eps={self.eps}"


@documented(
    LAYER,
    scale_shape=(
        "the shape of weight and bias, with as many axes as x and length 1 where they do not vary: [1, C, 1, 1]; None "
        "means that there is no weight and no bias"
    ),
    axes=ANY_AXES,
    num_groups=AXIS_GROUPS,
)
class Normalization(Affine):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var over any axes.

    If num_groups is above 1, mean and var are also over the channels of a group. y has x's shape and type. See
    `F.normalization`.

    Example:
        >>> layer = nn.Normalization([1, 3, 1, 1], axes=(2, 3))  # an instance normalization
        >>> layer(mn.randn(8, 3, 5, 5)).shape
        (8, 3, 5, 5)

    TensorRT calls this INormalizationLayer. An ONNX export writes an operator that computes the same; if there is no
    such operator, the export writes the formula.
    """

    _made_by: ClassVar[MadeBy] = {"scale_shape": lambda layer: None if layer.weight is None else layer.weight.shape}

    def __init__(
        self,
        scale_shape: Sequence[int] | None = None,
        axes: int | Sequence[int] = (2, 3),
        num_groups: int = 1,
        eps: float = 1e-5,
        compute_dtype: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        backend: Any = None,
    ) -> None:
        super().__init__()
        self.scale_shape = None if scale_shape is None else checked_shape("Normalization", "scale_shape", scale_shape)
        self.axes = _axes(axes)
        self.num_groups, self.eps, self.compute_dtype, self.backend = num_groups, eps, compute_dtype, backend
        affine = self.scale_shape is not None
        self._add_affine(self.scale_shape or (), affine, affine, dtype, device)

    @takes_activation
    def forward(self, x: Tensor, *, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """Normalize x and return y of the same shape. x must have all of `axes`."""
        return F.normalization(
            x,
            self.weight,
            self.bias,
            self.axes,
            self.num_groups,
            self.eps,
            self.compute_dtype,
            backend=self.backend,
            activation=activation,
            residual=residual,
        )

    def extra_repr(self) -> str:
        """Return the options as text for `repr`."""
        return f"{self.scale_shape}, axes={self.axes}, num_groups={self.num_groups}, eps={self.eps}"


def _axes(axes: Any) -> Any:
    """Return `axes` unchanged if it is an int (a bit mask), and as a tuple if it is a sequence. F.normalization checks
    the result.
    """
    return tuple(axes) if isinstance(axes, Iterable) else axes
