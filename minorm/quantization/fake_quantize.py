"""FakeQuantize: a layer that rounds x to the values of 8-bit integers. The scale comes from an observer or is learned.

In training, the observer watches x, and scale and zero point follow the observer. In evaluation, scale and zero point
do not change. (In PyTorch's layer they change until `disable_observer` is called.) The backward pass ignores the
rounding.

LearnedFakeQuantize is LSQ (Esser et al. 2020, arXiv:1902.08153). The scale is a Parameter, and the observer chooses
only its first value. The gradient of the scale is divided by sqrt(elements * quant_max), so that this gradient is about
as large as a weight's gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.functional.fake_quantization import fake_quantize_per_channel_affine, fake_quantize_per_tensor_affine
from minorm.graph.graph import Function
from minorm.nn import Module, Parameter
from minorm.quantization.observers import MovingAverageMinMaxObserver, ObserverBase, fit_to
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

ARGUMENTS = {
    "observer": "the class of the observer, such as `minorm.quantization.MinMaxObserver`",
    "observer_kwargs": "arguments for the observer: dtype, symmetric, quant_min, quant_max, ch_axis ...",
}


@documented(ARGUMENTS)
class FakeQuantize(Module):
    """y = (clip(round(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale

    scale and zero_point are buffers. The switches fake_quant_enabled and observer_enabled are buffers too, so a
    checkpoint contains all four. If the type of x is another float type than float32, x is rounded in its own type.

    Example:
        >>> fake = mn.quantization.FakeQuantize(dtype=mn.int8)
        >>> y = fake(mn.tensor([-1.0, 0.5, 1.0]))
        >>> len(set(fake(mn.linspace(-1, 1, 1000)).tolist())) <= 256
        True

    Written to ONNX as QuantizeLinear and DequantizeLinear; Jacob et al. 2018, arXiv:1712.05877.
    """

    scale: Tensor
    zero_point: Tensor
    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(
        self, observer: Callable[..., ObserverBase] = MovingAverageMinMaxObserver, **observer_kwargs: Any
    ) -> None:
        super().__init__()
        self.activation_post_process = observer(**observer_kwargs)
        self.register_buffer("fake_quant_enabled", Tensor(np.array(1, np.uint8)))
        self.register_buffer("observer_enabled", Tensor(np.array(1, np.uint8)))
        scale, zero_point = self.activation_post_process.calculate_qparams()
        self._add_scale(scale)
        self.register_buffer("zero_point", zero_point)

    def _add_scale(self, scale: Tensor) -> None:
        self.register_buffer("scale", scale)

    def qparams(self) -> tuple[Any, Any]:
        """Return the scale and the zero point with which x is rounded, as arrays on the CPU."""
        return np.asarray(np.abs(self.scale.detach().cpu().array)), self.zero_point.cpu().array

    @property
    def dtype(self) -> Any:
        """The type of the integers."""
        return self.activation_post_process.dtype

    @property
    def quant_min(self) -> int:
        """The least integer."""
        return self.activation_post_process.quant_min

    @property
    def quant_max(self) -> int:
        """The largest integer."""
        return self.activation_post_process.quant_max

    @property
    def ch_axis(self) -> int | None:
        """The axis along which the scales differ; None if there is only one scale."""
        return self.activation_post_process.ch_axis

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """Return the scale and the zero point that fit the values that the observer has seen."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, x: Tensor) -> Tensor:
        """Return x rounded, or x itself if rounding is switched off."""
        if self.training and not self.frozen and self.observer_enabled.item():
            self.observe(x)
        return self.fake_quantize(x) if self.fake_quant_enabled.item() else x

    def observe(self, x: Tensor) -> None:
        """Let the observer see x, and take scale and zero point from the observer."""
        self.activation_post_process(x)
        scale, zero_point = self.calculate_qparams()
        self.scale.set_array(scale.to(self.scale.device).array)
        self.zero_point.set_array(zero_point.to(self.zero_point.device).array)

    def fake_quantize(self, x: Tensor) -> Tensor:
        """Return x rounded, even if rounding is switched off."""
        step = self._step(x)
        if self.ch_axis is None or step.numel() == 1:
            return fake_quantize_per_tensor_affine(x, step, self.zero_point, self.quant_min, self.quant_max)
        axis = self.ch_axis
        return fake_quantize_per_channel_affine(x, step, self.zero_point, axis, self.quant_min, self.quant_max)

    def _step(self, x: Tensor) -> Tensor:  # noqa: ARG002  LearnedFakeQuantize needs x
        return self.scale

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Round from now on."""
        self.fake_quant_enabled.fill_(int(enabled))

    def disable_fake_quant(self) -> None:
        """Return x unchanged from now on."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Let scale and zero point follow the observer in training, from now on."""
        self.observer_enabled.fill_(int(enabled))

    def disable_observer(self) -> None:
        """Keep scale and zero point unchanged from now on."""
        self.enable_observer(False)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        fit_to(state_dict, prefix, self.scale, self.zero_point, names=("scale", "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        """Return the type and the range of the integers."""
        return f"{self.dtype}, {self.quant_min} to {self.quant_max}"


class _Scaled(Function):
    """Returns x itself, and multiplies the gradient by `factor`."""

    def forward(self, x: Any, *, factor: float) -> Any:
        self.factor = factor
        return x.copy()

    def backward(self, dy: Any) -> Any:
        return dy * dy.dtype.type(self.factor)

    def gradient(self, dy: Any) -> Any:
        return dy * self.factor


@documented(ARGUMENTS)
class LearnedFakeQuantize(FakeQuantize):
    """FakeQuantize with a learned scale (LSQ). The observer chooses the first scale from the first batch.

        d y / d scale = round(x / scale) - x / scale, but quant_min - zero_point or quant_max - zero_point if x is
        cut off

    Example:
        >>> fake = mn.quantization.LearnedFakeQuantize(dtype=mn.int8, symmetric=True)
        >>> fake(mn.randn(100)).sum().backward()
        >>> fake.scale.grad.shape
        ()
    """

    def _add_scale(self, scale: Tensor) -> None:
        self.scale = Parameter(scale)

    def observe(self, x: Tensor) -> None:
        """Take the first scale from the observer; afterwards only the optimizer changes the scale."""
        super().observe(x)
        self.disable_observer()

    def _step(self, x: Tensor) -> Tensor:
        shared = self.scale.numel() if isinstance(x, Parameter) else x.shape[0] if x.ndim else 1
        count = max(1, x.numel() // max(1, shared))  # the weights, or one sample's features, that share a scale
        step: Tensor = _Scaled.apply(self.scale, factor=1 / float(np.sqrt(count * self.quant_max)))
        return step.abs()
