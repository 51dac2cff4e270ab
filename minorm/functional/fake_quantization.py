"""Fake quantization: rounds floats to the values that 8-bit integers can represent, and lets gradients pass.

A network that trains on rounded numbers learns weights that still work as integers. The names are PyTorch's. As in ONNX
QuantizeLinear, x is divided by the scale, while PyTorch multiplies x by the scale's reciprocal. The results differ only
in the rare case of a tie, by one step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.functional.arguments import float_type, number, whole
from minorm.graph import trace
from minorm.ops.operands import axis_of
from minorm.ops.quantization import FakeQuantize
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

RANGE = {
    "quant_min": "the least integer",
    "quant_max": "the largest integer",
}


@documented(
    RANGE,
    x="a Tensor of floats",
    scale="the step between two neighbours: a number, or a Tensor of one element, which gets a gradient",
    zero_point="the integer that stands for 0: a number, or a Tensor of one element",
)
@trace.operation
def fake_quantize_per_tensor_affine(x: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Tensor:
    """y = (clip(round(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale; ties round to even.

    The gradient of x ignores the rounding: the gradient is dy where x was not clipped, else 0.

    Example:
        >>> F.fake_quantize_per_tensor_affine(mn.tensor([-1.0, 0.26, 3.0]), 0.5, 1, 0, 4)
        tensor([-0.5,  0.5,  1.5])

    Its ONNX operators are QuantizeLinear and DequantizeLinear; Jacob et al. 2018, arXiv:1712.05877.
    """
    name = "fake_quantize_per_tensor_affine"
    float_type(name, "x", x)
    _check(name, quant_min, quant_max)
    if not isinstance(scale, Tensor):
        number(name, "scale", scale)
        if not 0 < scale < math.inf:
            raise ValueError(f"{name}: scale={scale}; expected a positive number")
    if not isinstance(zero_point, Tensor) and not quant_min <= whole(name, "zero_point", zero_point) <= quant_max:
        raise ValueError(f"{name}: zero_point={zero_point}; expected {quant_min} to {quant_max}")
    step, zero = _tensor(x, scale, x.dtype), _tensor(x, zero_point, dtypes.int32)
    for argument, given in (("scale", step), ("zero_point", zero)):
        if given.numel() != 1:
            raise ValueError(f"{name}: {argument} has shape {given.shape}; expected one number")
    return FakeQuantize.apply(x, step, zero, low=quant_min, high=quant_max, axis=0)


@documented(
    RANGE,
    x="a Tensor of floats",
    scale="the steps between neighbouring numbers: a Tensor with one step for each index along `axis`; it gets a "
    "gradient",
    zero_point="the integers that stand for 0, a Tensor of scale's shape",
    axis="the axis along which scales differ: 0 for the output channels of a weight",
)
@trace.operation
def fake_quantize_per_channel_affine(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """`fake_quantize_per_tensor_affine` with a separate scale and zero point for each index along `axis`.

    Example:
        >>> x = mn.tensor([[0.4, 1.0], [0.4, 1.0]])
        >>> zero = mn.tensor([0, 0], dtype=mn.int32)
        >>> F.fake_quantize_per_channel_affine(x, mn.tensor([0.5, 1.0]), zero, 0, -127, 127)
        tensor([[0.5, 1. ],
                [0. , 1. ]])

    Its ONNX operators are QuantizeLinear and DequantizeLinear (opset 13); Krishnamoorthi 2018, arXiv:1806.08342.
    """
    name = "fake_quantize_per_channel_affine"
    float_type(name, "x", x)
    place = axis_of(name, axis, x)
    step, zero = _tensor(x, scale, x.dtype), _tensor(x, zero_point, dtypes.int32)
    for argument, given in (("scale", step), ("zero_point", zero)):
        if given.shape != (x.shape[place],):
            raise ValueError(
                f"{name}: {argument} has shape {given.shape}; expected ({x.shape[place]},), one number for each index "
                f"along axis {axis} of x; x.shape is {x.shape}"
            )
    _check(name, quant_min, quant_max)
    return FakeQuantize.apply(x, step, zero, low=quant_min, high=quant_max, axis=place)


def _tensor(x: Tensor, value: Any, dtype: Any) -> Tensor:
    return value if isinstance(value, Tensor) else Tensor(np.array(value, dtype)).to(x.device)


def _check(name: str, low: int, high: int) -> None:
    if not whole(name, "quant_min", low) < whole(name, "quant_max", high):
        raise ValueError(f"{name}: quant_min is {low}, quant_max is {high}; expected quant_min < quant_max")
