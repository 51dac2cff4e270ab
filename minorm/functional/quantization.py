"""quantize and dequantize, which let gradients pass. Not public yet.

Integers have no gradient. If x requires a gradient, `quantize` returns a Quantized, which holds the result twice: as
integers, and as floats of the same values. `dequantize` reads these floats, so the gradient passes straight through. An
operation on the integers between the two functions, such as a Reshape, drops the floats and so the gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.functional.arguments import float_type
from minorm.graph import trace
from minorm.graph.grad_mode import is_grad_enabled
from minorm.ops import quantization as ops
from minorm.ops.operands import axis_of
from minorm.tensor.tensor import Tensor

INTEGERS = frozenset((dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16))


class Quantized(Tensor):
    """A Tensor of integers. Its attribute `straight` is a Tensor of floats with the same values, which belongs to the
    graph.
    """

    __slots__ = ("straight",)
    straight: Tensor


@trace.operation
def quantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    dtype: Any = dtypes.uint8,
    axis: int = 1,
    block_size: int = 0,
) -> Tensor:
    """q = round(x / scale) + zero_point, clipped to the range of the type; ties round to even.

    q has the type of zero_point, or the type `dtype` if zero_point is missing. The type of q is an integer type of 8 or
    16 bits, or one of the narrow types in NARROW, which ONNX files can hold. scale is one number, or has one number for
    each of the n indices along `axis`. With a block_size, scale has x's shape except for the length ceil(n /
    block_size) along `axis`. Gradients pass straight through to scale, and to x except where q is clipped.
    """
    wanted = np.dtype(dtype) if zero_point is None else zero_point.dtype
    of_bias = zero_point is not None and wanted == dtypes.int32  # the type of biases in files with int8 weights
    if wanted not in INTEGERS and wanted not in ops.NARROW and not of_bias:
        raise TypeError(f"quantize: the result would be {wanted}; expected int8, uint8, int16 or uint16")
    place = _axis("quantize", x, scale, zero_point, axis, block_size)
    options = {"dtype": wanted, "axis": place, "block": block_size}
    if not (is_grad_enabled() and (x.requires_grad or scale.requires_grad)):
        return ops.ToIntegers.apply(x, scale, zero_point, **options)
    straight = ops.Quantize.apply(x, scale, zero_point, **options)
    narrow = Tensor.from_array(straight.array.astype(wanted)) if wanted in ops.NARROW else straight.detach().to(wanted)
    result = Quantized(straight.array)
    result.set_array(narrow.array)
    result.straight = straight
    return result


@trace.operation
def dequantize(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    axis: int = 1,
    block_size: int = 0,
    dtype: Any = None,
) -> Tensor:
    """y = (x - zero_point) * scale, in the type `dtype`. If dtype is None, y has scale's type. See `quantize` for the
    shape of scale.
    """
    if x.dtype.kind not in "iu" and x.dtype not in ops.NARROW:
        raise TypeError(f"dequantize: x is {x.dtype}; expected integers")
    if zero_point is not None and zero_point.dtype != x.dtype:
        raise TypeError(f"dequantize: zero_point is {zero_point.dtype}, x is {x.dtype}; expected one type")
    place = _axis("dequantize", x, scale, zero_point, axis, block_size)
    given = x.straight if isinstance(x, Quantized) else x
    return ops.Dequantize.apply(given, scale, zero_point, dtype=dtype, axis=place, block=block_size)


@trace.operation
def dynamic_quantize(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize x to uint8, and return (q, scale, zero_point). The range of uint8 stands for the range from min(x, 0) to
    max(x, 0). No gradient flows to the scale.
    """
    float_type("dynamic_quantize", "x", x)
    given = x.detach().cpu().array
    low, high = min(0.0, float(given.min(initial=0))), max(0.0, float(given.max(initial=0)))
    scale = x.dtype.type((high - low) / 255)
    zero = np.clip(np.rint(-low / float(scale)), 0, 255) if scale else 0
    if not scale:
        scale = x.dtype.type(1)  # all of x is 0
    parts = Tensor(np.array(scale, x.dtype)).to(x.device), Tensor(np.array(zero, np.uint8)).to(x.device)
    return quantize(x, *parts), *parts


def _axis(name: str, x: Tensor, scale: Tensor, zero_point: Tensor | None, axis: int, block_size: int) -> int:
    """Return the axis, counted from the front. Raise an error unless scale and zero_point have a valid shape."""
    float_type(name, "scale", scale)
    if zero_point is not None and zero_point.shape != scale.shape:
        raise ValueError(f"{name}: zero_point has shape {zero_point.shape}, scale {scale.shape}; expected equal shapes")
    if scale.ndim <= 1 and scale.numel() == 1:
        return 0
    place = axis_of(name, axis, x)
    if block_size:
        n = -(-x.shape[place] // block_size)
        expected = (*x.shape[:place], n, *x.shape[place + 1 :])
    else:
        expected = x.shape[place : place + 1]
    if scale.shape != expected:
        raise ValueError(
            f"{name}: scale has shape {scale.shape}; expected one number, or {expected} for x {x.shape}, axis {axis} "
            f"and block_size {block_size}"
        )
    return place
