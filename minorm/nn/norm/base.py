"""Base classes of the normalization layers: weight and bias, and running statistics.

Constructors take PyTorch's arguments. Only `momentum` has another meaning: here `momentum` (0.9 by default) is the
share of the *old* running value, while PyTorch's 0.1 is the share of the new value. Running variances are population
variances unless `unbiased_running_var=True`. Unless `update_nonfinite=True`, the running statistics skip a batch whose
statistics are not finite. `skipped_batches` counts these batches. This counter is not in the state_dict.
`compute_dtype=` is the type of the computation, forward and backward (see `F.layer_norm`). `backend=` is an object that
has the functions of minorm/kernels/protocol.py. `variance=` names a formula (see `F.batch_norm`). BatchNorm,
InstanceNorm, GroupNorm, LayerNorm, RMSNorm and MeanVarianceNorm also accept layer(x, mask): the statistics use only
elements where the mask is True. layer(x, activation="relu", residual=r) computes relu(layer(x) + r), the end of a
residual block, in one pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from minorm.devices import dtypes
from minorm.functional.norm.checks import LOW_MOMENTUM, warn_of_low_momentum
from minorm.functional.windows import channels_elsewhere
from minorm.nn import init
from minorm.nn.attributes import COUNTER, MadeBy
from minorm.nn.fused_pairs import takes_activation
from minorm.nn.module import Module
from minorm.nn.parameter import Parameter, check_sizes, uninitialized
from minorm.support.argument_errors import called_within
from minorm.tensor.tensor import Tensor


class Affine(Module):
    """Base of layers with a weight and a bias of the same shape. weight starts as 1, and bias starts as 0. weight and
    bias may be None.
    """

    weight: Parameter | None
    bias: Parameter | None
    _made_by: ClassVar[MadeBy] = dict.fromkeys(("affine", "elementwise_affine"), lambda layer: layer.weight is not None)

    def _add_affine(self, shape: tuple[int, ...], weight: bool, bias: bool, dtype: Any, device: Any) -> None:
        self.register_parameter("weight", uninitialized(shape, dtype, device) if weight else None)
        self.register_parameter("bias", uninitialized(shape, dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1, and bias to 0."""
        for parameter, value in ((self.weight, 1), (self.bias, 0)):
            if parameter is not None:
                init.constant_(parameter, value)


class RunningNorm(Affine):
    """Base of BatchNorm and InstanceNorm, which normalize each channel and have running statistics."""

    ranks: ClassVar[tuple[int, ...]] = ()  # the numbers of axes that x may have
    form: ClassVar[str] = ""
    normalize: ClassVar[Any]  # the function of minorm.functional
    _optional_keys = ("num_batches_tracked",)
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    update_nonfinite: bool = False
    _skipped: Tensor | None  # the number of skipped batches; not a buffer, since it describes the run, not the model

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
        update_nonfinite: bool = False,
        compute_dtype: Any = None,
        backend: Any = None,
        variance: str | None = None,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        if momentum is not None and momentum < LOW_MOMENTUM:
            warn_of_low_momentum(type(self).__name__, momentum)
        self.affine, self.track_running_stats = affine, track_running_stats
        self.unbiased_running_var, self.update_nonfinite = unbiased_running_var, update_nonfinite
        self.compute_dtype, self.backend, self.variance = compute_dtype, backend, variance
        shape = self._shape()
        self._add_affine(shape, affine, affine and bias, dtype, device)
        for buffer, sizes, kind in (
            ("running_mean", shape, dtype or dtypes.get_default_dtype()),
            ("running_var", shape, dtype or dtypes.get_default_dtype()),
            ("num_batches_tracked", (), dtypes.int64),
        ):
            value = Tensor(np.zeros(sizes, kind)).to(device=device) if track_running_stats else None
            self.register_buffer(buffer, value)
        self._register("_skipped", self._new_counter(), COUNTER, type(self).__name__)
        self.reset_running_stats()

    def _shape(self) -> tuple[int, ...]:
        """Return the shape of parameters and statistics; raise an error if num_features is not a valid size."""
        check_sizes(type(self).__name__, num_features=self.num_features)
        return (int(self.num_features),)  # type: ignore[arg-type]

    def reset_running_stats(self) -> None:
        """Set the running mean to 0, the running variance to 1, and the numbers of batches and skipped batches to 0."""
        for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
            if buffer is not None:
                buffer.fill_(value)
        if self._skipped is not None:
            self._skipped.fill_(0)

    @property
    def skipped_batches(self) -> int:
        """The number of batches that the running statistics skipped, because the batch's statistics were not finite.

        On a GPU, reading this number waits for the device.
        """
        return 0 if self._skipped is None else int(self._skipped.item())

    def _counter(self) -> Tensor | None:
        """Return the Tensor that counts the skipped batches, on the device of the running statistics."""
        mean, counter = self.running_mean, self._skipped
        if mean is not None and (counter is None or type(counter.array) is not type(mean.array)):
            counter = self._skipped = self._new_counter()
        return counter

    def _new_counter(self) -> Tensor | None:
        mean = self.running_mean
        return None if mean is None else Tensor(np.zeros((), dtypes.int64)).to(device=mean.device)

    def __setattr__(self, name: str, value: Any) -> None:
        later = name in self.__dict__
        if name == "momentum":
            _check_momentum(type(self).__name__, value)
            if (
                later
                and value is not None
                and value < LOW_MOMENTUM
                and not called_within("minorm.nn.norm", "minorm.nn.attributes")
            ):
                warn_of_low_momentum(type(self).__name__, value)
        elif name == "track_running_stats" and later:
            self._check_tracking(value)
        super().__setattr__(name, value)

    def _check_tracking(self, track: Any) -> None:
        """Raise ValueError if track is True and the layer has no running statistics. With track=False, training does
        not update the running statistics.
        """
        if track and self.__dict__.get("running_mean") is None:
            name = type(self).__name__
            raise ValueError(
                f"{name}: track_running_stats={track}, but the layer has no running statistics; expected False, or a "
                f"layer made with {name}(..., track_running_stats=True)"
            )

    @property
    def has_running_stats(self) -> bool:
        """True if training changes running statistics of this layer."""
        return self.running_mean is not None and bool(self.track_running_stats)

    @takes_activation
    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        activation: str | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Normalize x; returns y of the same shape. The channels are on axis 1 of x. The statistics use only elements
        where mask is True.
        """
        self._check(x)
        training = self._from_batch()
        kept = self.track_running_stats or not training
        return self.normalize(
            x,
            self.running_mean if kept else None,
            self.running_var if kept else None,
            self.weight,
            self.bias,
            training,
            self.momentum,
            self.eps,
            num_batches_tracked=self.num_batches_tracked if kept else None,
            unbiased_running_var=self.unbiased_running_var,
            update_nonfinite=self.update_nonfinite,
            skipped_batches=self._counter() if self.training else None,
            compute_dtype=self.compute_dtype,
            backend=self.backend,
            variance=self.variance,
            mask=mask,
            activation=activation,
            residual=residual,
        )

    def _from_batch(self) -> bool:
        """Return True if mean and var come from x: in training, and always if the layer has no running statistics."""
        return self.running_mean is None or (self.training and not self.frozen)

    def _check(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            raise ValueError(f"{type(self).__name__}: x has {x.ndim} axes; expected {self.form}; x.shape is {x.shape}")
        if x.shape[1] != self.num_features:
            raise ValueError(
                f"{type(self).__name__}: x has {x.shape[1]} channels, the layer num_features={self.num_features}; "
                f"expected x.shape[1] == {self.num_features}; x.shape is {x.shape}"
                f"{channels_elsewhere(x.shape, self.num_features)}"
            )

    def extra_repr(self) -> str:
        """Return the options as text for `repr`, in PyTorch's form."""
        bias = ", bias=False" if self.affine and self.bias is None else ""
        unbiased = ", unbiased_running_var=True" if self.unbiased_running_var else ""
        nonfinite = ", update_nonfinite=True" if self.update_nonfinite else ""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}{bias}{unbiased}{nonfinite}"
        )


def _check_momentum(layer: str, momentum: float | None) -> None:
    if momentum is None:
        return
    if isinstance(momentum, bool) or not hasattr(momentum, "__float__"):
        raise TypeError(f"{layer}: momentum is {momentum!r}; expected a number, 0 to 1, or None")
    if not 0 <= momentum <= 1:
        raise ValueError(f"{layer}: momentum={momentum}; expected the share of the old value to keep, 0 to 1, or None")


def checked_shape(layer: str, name: str, shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return `shape`, a sequence of lengths or one int, as a tuple. Raise an error unless each length is an int of at
    least 1.
    """
    sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    if not sizes:
        raise ValueError(f"{layer}: {name} is empty; expected at least one length")
    for i, size in enumerate(sizes):
        check_sizes(layer, **{f"{name}[{i}]": size})
    return tuple([int(size) for size in sizes])
