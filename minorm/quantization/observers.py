"""Observers record the ends of their inputs (the least and the largest number), and compute scale and zero point.

    observer = MinMaxObserver()
    observer(x)                                     # records the ends of x, and returns x
    scale, zero_point = observer.calculate_qparams()

q = round(x / scale) + zero_point can express every number between the ends. The range always contains 0, because
padding and ReLU make exact zeros:

    affine       scale = (high - low) / (quant_max - quant_min), zero_point = quant_min - round(low / scale)
    symmetric    scale = max(-low, high) / ((quant_max - quant_min) / 2), zero_point = 0 (128 for uint8)

Min-max observers keep the least and the largest number of all batches, so one outlier costs all other numbers their
precision. A moving average forgets the outlier. histograms.py has observers that cut off outliers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes, on_device_of
from minorm.functional.arguments import number, whole
from minorm.graph.grad_mode import no_grad
from minorm.nn import Module
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

ENDS = {np.dtype(np.int8): (-128, 127), np.dtype(np.uint8): (0, 255)}
EPS = float(np.finfo(np.float32).eps)  # the least scale, as in PyTorch, so that a constant 0 has a scale too
OPTIONS = {
    "dtype": "minorm.uint8 or minorm.int8",
    "symmetric": "True puts 0 in the middle of the integers",
    "quant_min": "the least integer; None is the least that dtype can hold",
    "quant_max": "the largest integer; None is the largest that dtype can hold",
    "eps": "the least scale",
    "averaging_constant": "the share of the newest batch in the moving average",
    "ch_axis": "the axis along which scales differ",
}


@documented(OPTIONS)
class ObserverBase(Module):
    """Base of the observers: it has the range of the integers, and computes scale and zero point from the ends.

    A subclass defines `observe(array)`, which updates the ends with one batch.

    Example:
        >>> mn.quantization.ObserverBase(mn.int8).calculate_qparams()  # before any batch
        (tensor(1.), tensor(0, dtype=int32))
    """

    min_val: Tensor
    max_val: Tensor
    ch_axis: int | None = None

    def __init__(
        self,
        dtype: Any = dtypes.uint8,
        symmetric: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__()
        self.dtype = np.dtype(dtype)
        name = type(self).__name__
        if self.dtype not in ENDS:
            raise TypeError(f"{name}: dtype is {dtype}; expected minorm.uint8 or minorm.int8")
        ends = ENDS[self.dtype]
        self.quant_min = ends[0] if quant_min is None else whole(name, "quant_min", quant_min)
        self.quant_max = ends[1] if quant_max is None else whole(name, "quant_max", quant_max)
        if not ends[0] <= self.quant_min < self.quant_max <= ends[1]:
            raise ValueError(
                f"{name}: quant_min={quant_min}, quant_max={quant_max}; expected "
                f"{ends[0]} <= quant_min < quant_max <= {ends[1]} for {self.dtype}"
            )
        number(name, "eps", eps)
        if not 0 < eps < float("inf"):
            raise ValueError(f"{name}: eps={eps}; expected a positive number")
        self.symmetric, self.eps = symmetric, eps
        self.register_buffer("min_val", Tensor(np.array(np.inf, np.float32)))
        self.register_buffer("max_val", Tensor(np.array(-np.inf, np.float32)))

    def forward(self, x: Tensor) -> Tensor:
        """Update the ends with x, and return x unchanged."""
        if x.device != self.min_val.device:
            self.to(device=x.device)
        with no_grad():
            array = x.detach().array
            if array.size:
                with on_device_of(array):
                    self.observe(array.astype(np.float32, copy=False))
        return x

    def observe(self, array: Any) -> None:
        """Update the ends with one batch, an array of float32."""
        raise NotImplementedError(f"{type(self).__name__} has no observe; define this method in the subclass")

    def _need_finite(self, array: Any) -> None:
        """Raise ValueError if the array has a NaN or an infinity.

        The ends would keep this number for ever.
        """
        if not is_finite(array):
            raise ValueError(f"{type(self).__name__}: x has a NaN or an infinity; expected finite numbers")

    def _set(self, low: Any, high: Any) -> None:
        for buffer, value in ((self.min_val, low), (self.max_val, high)):
            buffer.set_array(_tensor(value, np.float32).to(buffer.device).array)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        fit_to(state_dict, prefix, self.min_val, self.max_val, names=("min_val", "max_val"))
        super()._load_from_state_dict(state_dict, prefix, *others)

    @property
    def has_seen(self) -> bool:
        """True if the observer has seen a batch."""
        with on_device_of(self.min_val.array):
            return bool((self.min_val.array <= self.max_val.array).all())

    def ends(self) -> tuple[Any, Any]:
        """Return the ends: the least and the largest number that the integers must cover, as arrays."""
        return self.min_val.array, self.max_val.array

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Return scale (float32) and zero_point (int32), as vectors if channels differ; (1, 0) before any batch."""
        if not self.has_seen:
            shape = self.min_val.shape
            return Tensor(np.ones(shape, np.float32)), Tensor(np.zeros(shape, np.int32))
        with on_device_of(self.min_val.array):
            return qparams(*self.ends(), self.quant_min, self.quant_max, self.symmetric, self.dtype, self.eps)

    def reset_min_max_vals(self) -> None:
        """Forget all batches."""
        self._set(np.array(np.inf), np.array(-np.inf))

    def extra_repr(self) -> str:
        """Describe the integers."""
        return f"{self.dtype}, {self.quant_min} to {self.quant_max}, symmetric={self.symmetric}"


def is_finite(array: Any) -> bool:
    """Return True if all numbers are finite; otherwise the least or the largest number is NaN or infinite."""
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))


def fit_to(state_dict: dict[str, Any], prefix: str, *buffers: Tensor, names: tuple[str, ...]) -> None:
    """Give `buffers` the shapes that they have in the state dict.

    A new observer cannot know these shapes, which depend on the number of channels.
    """
    for name, buffer in zip(names, buffers, strict=True):
        given = state_dict.get(prefix + name)
        if given is not None and tuple(given.shape) != buffer.shape and len(given.shape) <= 1:
            buffer.set_array(np.zeros_like(buffer.array, shape=tuple(given.shape)))


def qparams(
    low: Any, high: Any, quant_min: int, quant_max: int, symmetric: bool, dtype: Any, eps: float = EPS
) -> tuple[Tensor, Tensor]:
    """Return the scale and zero point with which quant_min ... quant_max cover the numbers from low to high, and 0."""
    low, high = np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0))
    steps = np.float32(quant_max - quant_min)
    if symmetric:
        scale = np.maximum(np.maximum(-low, high) / (steps / np.float32(2)), np.float32(eps))
        middle = 128 if (quant_min, quant_max) == (0, 255) else (quant_min + quant_max) // 2  # as in PyTorch
        middle = middle if dtype == dtypes.uint8 else 0
        return _tensor(scale, np.float32), _tensor(np.full_like(scale, middle, dtype=np.int32), np.int32)
    scale = np.maximum((high - low) / steps, np.float32(eps))
    zero = np.clip(quant_min - np.rint(low / scale), quant_min, quant_max)
    return _tensor(scale, np.float32), _tensor(zero, np.int32)


def _tensor(value: Any, dtype: Any) -> Tensor:
    return Tensor(np.array(value, dtype) if isinstance(value, np.generic) else value.astype(dtype))


@documented(OPTIONS)
class MinMaxObserver(ObserverBase):
    """Records the least and the largest number of all batches. Raises ValueError for a NaN or an infinity.

    Example:
        >>> observer = mn.quantization.MinMaxObserver()
        >>> x = observer(mn.tensor([-1.0, 4.1]))
        >>> observer.calculate_qparams()
        (tensor(0.02), tensor(50, dtype=int32))
    """

    def observe(self, array: Any) -> None:
        """Update the ends with one batch."""
        self._need_finite(array)
        self._set(np.minimum(self.min_val.array, array.min()), np.maximum(self.max_val.array, array.max()))


@documented(OPTIONS)
class MovingAverageMinMaxObserver(ObserverBase):
    """Moving averages of the ends (least, largest number): ends += averaging_constant * (batch's ends - ends).

    A batch with a NaN or an infinity does not change the ends; during training, the loss shows such a batch.

    Example:
        >>> observer = mn.quantization.MovingAverageMinMaxObserver(averaging_constant=0.5)
        >>> for x in (mn.tensor([0.0, 1.0]), mn.tensor([0.0, 2.0])):
        ...     y = observer(x)
        >>> observer.max_val
        tensor(1.5)
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: Any = dtypes.uint8,
        symmetric: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(dtype, symmetric, quant_min, quant_max, eps)
        number(type(self).__name__, "averaging_constant", averaging_constant)
        if not 0 < averaging_constant <= 1:
            raise ValueError(
                f"{type(self).__name__}: averaging_constant={averaging_constant}; expected above 0, at most 1"
            )
        self.averaging_constant = averaging_constant

    def observe(self, array: Any) -> None:
        """Update the ends with one batch."""
        if is_finite(array):
            self._blend(array.min(), array.max())

    def _blend(self, low: Any, high: Any) -> None:
        if self.min_val.shape == low.shape and self.has_seen:
            share = np.float32(self.averaging_constant)
            low = self.min_val.array + share * (low - self.min_val.array)
            high = self.max_val.array + share * (high - self.max_val.array)
        self._set(low, high)


class _PerChannel(ObserverBase):
    ch_axis: int

    def _ends_of(self, array: Any) -> tuple[Any, Any]:
        axis = self.ch_axis
        if not -array.ndim <= axis < array.ndim:
            raise IndexError(f"{type(self).__name__}: ch_axis={axis} is out of range; x.shape is {array.shape}")
        others = tuple(i for i in range(array.ndim) if i != axis % array.ndim)
        return array.min(axis=others), array.max(axis=others)


@documented(OPTIONS)
class PerChannelMinMaxObserver(_PerChannel):
    """Records each channel's least and largest number in all batches, for weights with one scale per filter.

    Raises ValueError for a NaN or an infinity.

    Example:
        >>> observer = mn.quantization.PerChannelMinMaxObserver(dtype=mn.int8, symmetric=True, quant_min=-127)
        >>> weight = observer(mn.tensor([[1.27, 0.0], [0.0, -12.7]]))
        >>> observer.calculate_qparams()[0]
        tensor([0.01, 0.1 ])
    """

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: Any = dtypes.uint8,
        symmetric: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(dtype, symmetric, quant_min, quant_max, eps)
        self.ch_axis = ch_axis

    def observe(self, array: Any) -> None:
        """Update the ends with one batch."""
        self._need_finite(array)
        low, high = self._ends_of(array)
        if self.min_val.shape not in ((), low.shape):
            raise ValueError(
                f"{type(self).__name__}: x has {low.size} channels along axis {self.ch_axis}, earlier batches had "
                f"{self.min_val.numel()}; x.shape is {array.shape}"
            )
        self._set(np.minimum(self.min_val.array, low), np.maximum(self.max_val.array, high))


@documented(OPTIONS)
class MovingAveragePerChannelMinMaxObserver(MovingAverageMinMaxObserver, _PerChannel):
    """Moving averages of each channel's ends: ends += averaging_constant * (batch's ends - ends).

    Example:
        >>> observer = mn.quantization.MovingAveragePerChannelMinMaxObserver(ch_axis=1)
        >>> x = observer(mn.randn(8, 3))
        >>> observer.min_val.shape
        (3,)
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: Any = dtypes.uint8,
        symmetric: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
    ) -> None:
        super().__init__(averaging_constant, dtype, symmetric, quant_min, quant_max, eps)
        self.ch_axis = ch_axis

    def observe(self, array: Any) -> None:
        """Update the ends with one batch."""
        if is_finite(array):
            self._blend(*self._ends_of(array))
