"""BatchNorm and InstanceNorm: they own parameters and running statistics and call one function of minorm.functional.

Constructors are PyTorch's, with one difference in meaning: `momentum` is the share of the *old* running value that is
kept, 0.9 by default, where PyTorch's 0.1 is the share of the new one. Running variances are the population's unless
`unbiased_running_var=True`. `compute_dtype=` is the type to compute in, forward and backward (see `F.layer_norm`);
`backend=` takes an object with the functions of minorm/kernels/protocol.py.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np

import minorm.functional as F
from minorm import dtypes
from minorm.nn.norm_stateless import Affine
from minorm.nn.parameter import check_sizes
from minorm.tensor import Tensor


class _Running(Affine):
    """A normalization per channel with running statistics: what BatchNorm and InstanceNorm have in common."""

    ranks: ClassVar[tuple[int, ...]] = ()  # of x
    form: ClassVar[str] = ""
    normalize: ClassVar[Any]  # the function of minorm.functional
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int | tuple[int, ...],
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
        unbiased_running_var: bool,
        compute_dtype: Any,
        backend: Any,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        shape = num_features if isinstance(num_features, tuple) else (num_features,)
        for size in shape:
            check_sizes(name, num_features=size)
        _check_momentum(name, momentum)
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.unbiased_running_var = unbiased_running_var
        self.compute_dtype, self.backend = compute_dtype, backend
        self._add_affine(shape, affine, affine and bias, dtype, device)
        for buffer, sizes, kind in (
            ("running_mean", shape, dtype or dtypes.float32),
            ("running_var", shape, dtype or dtypes.float32),
            ("num_batches_tracked", (), dtypes.int64),
        ):
            value = Tensor(np.zeros(sizes, kind)).to(device=device) if track_running_stats else None
            self.register_buffer(buffer, value)
        self.reset_running_stats()

    def reset_running_stats(self) -> None:
        """Forget all batches: mean 0, variance 1."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                buffer.fill_(value)

    def forward(self, x: Tensor) -> Tensor:
        """x with its channels on axis 1 -> y of the same shape"""
        self._check(x)
        return self.normalize(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self._from_batch(),
            self.momentum,
            self.eps,
            num_batches_tracked=self.num_batches_tracked,
            unbiased_running_var=self.unbiased_running_var,
            compute_dtype=self.compute_dtype,
            backend=self.backend,
        )

    def _from_batch(self) -> bool:
        """Normalize with the statistics of x? Yes in training, and always where none are tracked."""
        return self.running_mean is None or (self.training and not self.frozen)

    def _check(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            raise ValueError(f"{type(self).__name__}: x has {x.ndim} axes; expected {self.form}; x.shape is {x.shape}")
        if x.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}: x has {x.shape[1]} channels, the layer num_features={self.num_features}; "
                f"expected x.shape[1] == {self.num_features}; x.shape is {x.shape}"
            )

    def extra_repr(self) -> str:
        """The options, as PyTorch prints them."""
        bias = ", bias=False" if self.affine and self.bias is None else ""
        unbiased = ", unbiased_running_var=True" if self.unbiased_running_var else ""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}{bias}{unbiased}"
        )


class _BatchNorm(_Running):
    normalize: ClassVar[Any] = staticmethod(F.batch_norm)

    def __init__(
        self,
        num_features: int | tuple[int, ...],
        eps: float = 1e-5,
        momentum: float | None = 0.9,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        unbiased_running_var: bool = False,
        compute_dtype: Any = None,
        backend: Any = None,
    ) -> None:
        if isinstance(num_features, tuple):
            name = type(self).__name__
            if len(num_features) + 1 not in self.ranks:
                raise ValueError(
                    f"{name}: num_features={num_features}; expected C, or a shape as x.shape[1:] in {self.form}"
                )
            if not affine and not track_running_stats:
                raise ValueError(
                    f"{name}: num_features={num_features} with affine=False and track_running_stats=False leaves "
                    "the layer nothing of that shape; expected one of them, or F.normalization(x, axes=(0,))"
                )
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias, unbiased_running_var,
            compute_dtype, backend,
        )  # fmt: skip

    def _check(self, x: Tensor) -> None:
        if isinstance(self.num_features, tuple) and x.shape[1:] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}: x has shape {x.shape}, the layer num_features={self.num_features}; "
                f"expected x.shape[1:] == {self.num_features}"
            )
        if not isinstance(self.num_features, tuple):
            super()._check(x)


class BatchNorm1d(_BatchNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over x (N, C) or (N, C, L), mean and var of each channel.

    In training they are the batch's, and are blended into running_mean and running_var (C); in evaluation, and when
    frozen, they are the running ones. momentum: the share of the old running value that is kept (PyTorch's 0.1 is 0.9
    here); None averages over all batches. affine=False leaves weight and bias out, bias=False the bias alone,
    track_running_stats=False the running statistics: then the batch's are always used. num_features is C; or the shape
    (C, *positions), for statistics and parameters of every position, taken over N alone (spatial=0 of ONNX
    BatchNormalization 7). See `F.batch_norm`.
    """

    ranks, form = (2, 3), "(N, C) or (N, C, L)"


class BatchNorm2d(_BatchNorm):
    """The same over x (N, C, H, W)."""

    ranks, form = (4,), "(N, C, H, W)"


class BatchNorm3d(_BatchNorm):
    """The same over x (N, C, D, H, W)."""

    ranks, form = (5,), "(N, C, D, H, W)"


class _InstanceNorm(_Running):
    process_group: Any = None  # of a distributed run: see norm_sync.py

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
    ) -> None:
        check_sizes(type(self).__name__, num_features=num_features)
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias, unbiased_running_var,
            compute_dtype, backend,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """x with its channels on axis 1, or one sample with them on axis 0 -> y of the same shape"""
        if x.ndim + 1 in self.ranks:
            if x.shape[0] != self.num_features:
                raise ValueError(
                    f"{type(self).__name__}: x has {x.ndim} axes, so it is one sample, with {x.shape[0]} channels; the "
                    f"layer has num_features={self.num_features}; expected {self.form}; x.shape is {x.shape}"
                )
            return super().forward(x.reshape(1, *x.shape)).reshape(x.shape)
        return super().forward(x)


class InstanceNorm1d(_InstanceNorm):
    """y = (x - mean) / sqrt(var + eps) * weight + bias over x (N, C, L), mean and var of each channel of each sample.

    affine=True adds weight and bias (C), bias=False leaves the bias out; track_running_stats=True adds running
    statistics, which evaluation then uses. x may also be one sample, (C, L). See `F.instance_norm`.
    """

    ranks, form = (3,), "(N, C, L) or (C, L)"


class InstanceNorm2d(_InstanceNorm):
    """The same over x (N, C, H, W) or (C, H, W)."""

    ranks, form = (4,), "(N, C, H, W) or (C, H, W)"


class InstanceNorm3d(_InstanceNorm):
    """The same over x (N, C, D, H, W) or (C, D, H, W)."""

    ranks, form = (5,), "(N, C, D, H, W) or (C, D, H, W)"


def _check_momentum(layer: str, momentum: float | None) -> None:
    if momentum is None:
        return
    if isinstance(momentum, bool) or not hasattr(momentum, "__float__"):
        raise TypeError(f"{layer}: momentum is {momentum!r}; expected a number, 0 to 1, or None")
    if not 0 <= momentum <= 1:
        raise ValueError(f"{layer}: momentum={momentum}; expected the share of the old value to keep, 0 to 1, or None")
    if momentum < 0.5:
        warnings.warn(
            f"{layer}: momentum={momentum} keeps {momentum:.0%} of the old running value at each step. "
            f"In minorm momentum is the share that is kept; PyTorch's momentum={momentum} is "
            f"momentum={1 - momentum:g} here. To mean {momentum} all the same without this warning, "
            "set layer.momentum after construction",
            stacklevel=5,
        )
