"""Normalization layers without state of their own but weight and bias: GroupNorm, LayerNorm, RMSNorm and others.

Constructors are PyTorch's. `compute_dtype=` is the type to compute in, forward and backward (see `F.layer_norm`);
`backend=` takes an object with the functions of minorm/kernels/protocol.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import minorm.functional as F
from minorm.nn import init
from minorm.nn.module import Module
from minorm.nn.parameter import Parameter, check_sizes, uninitialized
from minorm.tensor import Tensor


class Affine(Module):
    """weight and bias of one shape, either of which may be absent; they start as 1 and 0."""

    weight: Parameter | None
    bias: Parameter | None

    def _add_affine(self, shape: tuple[int, ...], weight: bool, bias: bool, dtype: Any, device: Any) -> None:
        self.register_parameter("weight", uninitialized(shape, dtype, device) if weight else None)
        self.register_parameter("bias", uninitialized(shape, dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """weight = 1, bias = 0."""
        for parameter, value in ((self.weight, 1), (self.bias, 0)):
            if parameter is not None:
                init.constant_(parameter, value)


class GroupNorm(Affine):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over x (N, C, *), mean and var of each group of each sample.

    weight and bias (num_channels), or (num_groups) with per_group=True as in ONNX GroupNormalization 18.
    See `F.group_norm`.
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

    def forward(self, x: Tensor) -> Tensor:
        """x (N, num_channels, *) -> y of the same shape"""
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ValueError(
                f"GroupNorm: x has shape {x.shape}, the layer num_channels={self.num_channels}; "
                f"expected (N, {self.num_channels}, *)"
            )
        options = {"compute_dtype": self.compute_dtype, "backend": self.backend}
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps, **options)

    def extra_repr(self) -> str:
        """The options, as PyTorch prints them."""
        bias = ", bias=False" if self.affine and self.bias is None else ""
        per_group = ", per_group=True" if self.per_group else ""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}{bias}{per_group}"


class LayerNorm(Affine):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over x (..., *normalized_shape), mean and var over those axes.

    weight and bias have shape normalized_shape. See `F.layer_norm`.
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
        self.normalized_shape = _shape("LayerNorm", "normalized_shape", normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.compute_dtype, self.backend = compute_dtype, backend
        self._add_affine(self.normalized_shape, elementwise_affine, elementwise_affine and bias, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *normalized_shape) -> y of the same shape"""
        options = {"compute_dtype": self.compute_dtype, "backend": self.backend}
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps, **options)

    def extra_repr(self) -> str:
        """The options, as PyTorch prints them."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Affine):
    """y = x / sqrt(mean(x^2) + eps) * weight over x (..., *normalized_shape), the mean over those axes.

    weight has shape normalized_shape; eps=None is 1.2e-7, 2.2e-16 for float64. See `F.rms_norm`.
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
        self.normalized_shape = _shape("RMSNorm", "normalized_shape", normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.compute_dtype, self.backend = compute_dtype, backend
        self._add_affine(self.normalized_shape, elementwise_affine, False, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *normalized_shape) -> y of the same shape"""
        options = {"compute_dtype": self.compute_dtype, "backend": self.backend}
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps, **options)

    def extra_repr(self) -> str:
        """The options, as PyTorch prints them."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class MeanVarianceNorm(Module):
    """y = (x - mean) / (sqrt(var) + eps), mean and var over `axes`. See `F.mean_variance_norm`."""

    def __init__(
        self, axes: Sequence[int] = (0, 2, 3), eps: float = 1e-9, *, compute_dtype: Any = None, backend: Any = None
    ) -> None:
        super().__init__()
        self.axes, self.eps, self.compute_dtype, self.backend = _axes(axes), eps, compute_dtype, backend

    def forward(self, x: Tensor) -> Tensor:
        """x with all of `axes` -> y of the same shape"""
        options = {"compute_dtype": self.compute_dtype, "backend": self.backend}
        return F.mean_variance_norm(x, self.axes, self.eps, **options)

    def extra_repr(self) -> str:
        """The options."""
        return f"axes={self.axes}, eps={self.eps}"


class Normalization(Affine):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over any axes and groups: TensorRT's layer.

    scale_shape: the shape of weight and bias, of x's rank with 1 where they do not vary ([1, C, 1, 1], say); None
    leaves them out. The other arguments as in `F.normalization`.
    """

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
        self.scale_shape = None if scale_shape is None else _shape("Normalization", "scale_shape", scale_shape)
        self.axes = _axes(axes)
        self.num_groups, self.eps, self.compute_dtype, self.backend = num_groups, eps, compute_dtype, backend
        affine = self.scale_shape is not None
        self._add_affine(self.scale_shape or (), affine, affine, dtype, device)

    def forward(self, x: Tensor) -> Tensor:
        """x with all of `axes` -> y of the same shape"""
        return F.normalization(
            x,
            self.weight,
            self.bias,
            self.axes,
            self.num_groups,
            self.eps,
            self.compute_dtype,
            backend=self.backend,
        )

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.scale_shape}, axes={self.axes}, num_groups={self.num_groups}, eps={self.eps}"


def _axes(axes: Any) -> Any:
    """A mask as it is, anything else as a tuple; the function says what is wrong with it."""
    return tuple(axes) if isinstance(axes, Iterable) else axes


def _shape(layer: str, name: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if not sizes:
        raise ValueError(f"{layer}: {name} is empty; expected at least one length")
    for i, size in enumerate(sizes):
        check_sizes(layer, **{f"{name}[{i}]": size})
    return tuple([int(size) for size in sizes])


class LocalResponseNorm(Module):
    """y = x / (k + alpha / size * sum x^2)^beta over `size` neighbouring channels. See `F.local_response_norm`."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x of shape (N, C, *)."""
        return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The options, as PyTorch prints them."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
