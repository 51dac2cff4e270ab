"""FrozenBatchNorm2d: a BatchNorm that never changes, for fine-tuning."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.functional.norm.texts import CHANNELS, LAYER
from minorm.nn.fused_pairs import takes_activation
from minorm.nn.module import Module
from minorm.nn.parameter import check_sizes
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor


@documented(LAYER, num_features=CHANNELS)
class FrozenBatchNorm2d(Module):
    """y = (x - running_mean) / sqrt(running_var + eps) * weight + bias for x (N, C, H, W), also in training.

    running_mean, running_var, weight and bias are buffers (C), which are saved and loaded but not trained. As in
    torchvision, the layer can load the state of a BatchNorm2d, and ignores num_batches_tracked in this state. Only x
    gets a gradient. To freeze the layers of an existing model, see `nn.utils.freeze_norm`. y has x's shape and type.

    Example:
        >>> layer = nn.FrozenBatchNorm2d(3)
        >>> layer(mn.randn(8, 3, 5, 5)).shape
        (8, 3, 5, 5)
        >>> list(layer.parameters())
        []

    Written to ONNX as BatchNormalization (opset 15); Ioffe and Szegedy 2015, arXiv:1502.03167.
    """

    ignored_keys: ClassVar[tuple[str, ...]] = ("num_batches_tracked",)
    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        device: Any = None,
        dtype: Any = None,
        *,
        compute_dtype: Any = None,
        backend: Any = None,
    ) -> None:
        super().__init__()
        check_sizes("FrozenBatchNorm2d", num_features=num_features)
        self.num_features, self.eps, self.compute_dtype, self.backend = num_features, eps, compute_dtype, backend
        for name in ("weight", "bias", "running_mean", "running_var"):
            array = np.zeros(num_features, dtype or dtypes.get_default_dtype())
            self.register_buffer(name, Tensor(array).to(device=device))
        self.reset_parameters()
        self.frozen = True  # an exported file says so too, so that its readers do not train the layer

    def reset_parameters(self) -> None:
        """Set weight and running_var to 1, and bias and running_mean to 0. Then y is almost equal to x."""
        for name, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
            getattr(self, name).fill_(value)

    @takes_activation
    def forward(self, x: Tensor, *, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """Normalize x (N, C, H, W); returns y of the same shape."""
        if x.ndim != 4 or x.shape[1] != self.num_features:
            raise ValueError(
                f"FrozenBatchNorm2d: x has shape {x.shape}; expected (N, C, H, W) with num_features="
                f"{self.num_features} channels"
            )
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps,
            compute_dtype=self.compute_dtype, backend=self.backend, activation=activation, residual=residual,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the options as text for `repr`, in torchvision's form."""
        return f"{self.num_features}, eps={self.eps}"
