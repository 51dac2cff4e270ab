"""Filter response normalization, which needs no batch and no mean, and TLU, an activation with a learned threshold."""

from __future__ import annotations

from typing import Any

import minorm.functional as F
from minorm.functional.norm.texts import CHANNELS, LAYER
from minorm.nn import init
from minorm.nn.module import Module
from minorm.nn.norm.base import Affine
from minorm.nn.parameter import Parameter, check_sizes, uninitialized
from minorm.support.documented import documented
from minorm.tensor.combining import maximum
from minorm.tensor.tensor import Tensor


@documented(LAYER, num_features=CHANNELS, eps="added to the mean of squares")
class FilterResponseNorm2d(Affine):
    """y = x / sqrt(mean(x^2) + eps) * weight + bias for x (N, C, H, W), with the mean over H and W.

    weight and bias (C) start as 1 and 0. The mean of y is not 0, so use the activation `TLU`, whose threshold is
    learned, after this layer instead of ReLU. y has x's shape and type. See `F.filter_response_norm`.

    Example:
        >>> layer = nn.Sequential(nn.FilterResponseNorm2d(3), nn.TLU(3))
        >>> layer(mn.randn(8, 3, 5, 5)).shape
        (8, 3, 5, 5)

    An ONNX export writes the formula's operations; Singh and Krishnan 2019, arXiv:1911.09737.
    """

    weight: Parameter
    bias: Parameter

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-6,
        device: Any = None,
        dtype: Any = None,
        *,
        compute_dtype: Any = None,
        backend: Any = None,
    ) -> None:
        super().__init__()
        check_sizes("FilterResponseNorm2d", num_features=num_features)
        self.num_features, self.eps, self.compute_dtype, self.backend = num_features, eps, compute_dtype, backend
        self._add_affine((num_features,), True, True, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x (N, C, H, W); returns y of the same shape."""
        _check("FilterResponseNorm2d", x, self.num_features, "(N, C, H, W)", x.ndim == 4)
        options = {"compute_dtype": self.compute_dtype, "backend": self.backend}
        return F.filter_response_norm(x, self.weight, self.bias, self.eps, **options)

    def extra_repr(self) -> str:
        """Return num_features and eps as text for `repr`."""
        return f"{self.num_features}, eps={self.eps}"


@documented(LAYER, num_features=CHANNELS)
class TLU(Module):
    """y = max(x, tau) for x (N, C, *), with a learned threshold tau for each channel. tau starts as 0, as in ReLU.

    y has x's shape and type.

    Example:
        >>> nn.TLU(1)(mn.tensor([[-1.0, 2.0]]).T).detach()
        tensor([[0.],
                [2.]])

    Written to ONNX as Max (opset 13); Singh and Krishnan 2019, arXiv:1911.09737.
    """

    tau: Parameter

    def __init__(self, num_features: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        check_sizes("TLU", num_features=num_features)
        self.num_features = num_features
        self.tau = uninitialized((num_features,), dtype, device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set tau = 0."""
        init.constant_(self.tau, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Return max(x, tau) for x (N, C, *)."""
        _check("TLU", x, self.num_features, "(N, C, *)", x.ndim >= 2)
        return maximum(x, self.tau.reshape(-1, *(1,) * (x.ndim - 2)))

    def extra_repr(self) -> str:
        """Return the number of channels as text for `repr`."""
        return str(self.num_features)


def _check(layer: str, x: Tensor, channels: int, form: str, fits: bool) -> None:
    if not fits or x.shape[1] != channels:
        raise ValueError(f"{layer}: x has shape {x.shape}; expected {form} with num_features={channels} channels")
