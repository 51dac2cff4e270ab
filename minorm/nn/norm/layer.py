"""LayerNorm and RMSNorm normalize over the trailing axes, with separate parameters for each element of these axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import minorm.functional as F
from minorm.functional.norm.texts import LAYER, RMS_EPS
from minorm.nn.fused_pairs import takes_activation
from minorm.nn.norm.base import Affine, checked_shape
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(LAYER)
class LayerNorm(Affine):
    """y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and var over the last axes of x.

    x is (..., *normalized_shape). layer(x, mask) uses only the elements where mask is True. y has x's shape and type.
    See `F.layer_norm`.

    Example:
        >>> layer = nn.LayerNorm(16)
        >>> layer(mn.randn(8, 10, 16)).shape
        (8, 10, 16)

    Written to ONNX as LayerNormalization (opset 17); Ba, Kiros and Hinton 2016, arXiv:1607.06450.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        compute_dtype: Any = None,
        backend: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = checked_shape("LayerNorm", "normalized_shape", normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.compute_dtype, self.backend = compute_dtype, backend
        self._add_affine(self.normalized_shape, elementwise_affine, elementwise_affine and bias, dtype, device)

    @takes_activation
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        activation: str | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Normalize x (..., *normalized_shape); returns y of the same shape."""
        return F.layer_norm(
            x, self.normalized_shape, self.weight, self.bias, self.eps, compute_dtype=self.compute_dtype,
            backend=self.backend, mask=mask, activation=activation, residual=residual,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the options as text for `repr`, in PyTorch's form."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


@documented(LAYER, eps=RMS_EPS)
class RMSNorm(Affine):
    """y = x / sqrt(mean(x^2) + eps) * weight for x (..., *normalized_shape), with the mean over the last axes.

    layer(x, mask) uses only the elements where mask is True. y has x's shape and type. See `F.rms_norm`.

    Example:
        >>> layer = nn.RMSNorm(16)
        >>> layer(mn.randn(8, 10, 16)).shape
        (8, 10, 16)

    Written to ONNX as RMSNormalization (opset 23); Zhang and Sennrich 2019, arXiv:1910.07467.
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        compute_dtype: Any = None,
        backend: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = checked_shape("RMSNorm", "normalized_shape", normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.compute_dtype, self.backend = compute_dtype, backend
        self._add_affine(self.normalized_shape, elementwise_affine, False, dtype, device)

    @takes_activation
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        activation: str | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Normalize x (..., *normalized_shape); returns y of the same shape."""
        return F.rms_norm(
            x, self.normalized_shape, self.weight, self.eps, compute_dtype=self.compute_dtype,
            backend=self.backend, mask=mask, activation=activation, residual=residual,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the options as text for `repr`, in PyTorch's form."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
