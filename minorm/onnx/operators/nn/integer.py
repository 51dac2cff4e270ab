"""MatMulInteger, ConvInteger, QLinearMatMul and QLinearConv: products of 8-bit integers, summed exactly in 32 bits.

Sums are taken in float64, which is exact up to 2^53. QLinear operators scale the sums in float32, round half way to
the even number and cut off at the ends of the type, as onnxruntime does. No gradient passes integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, reads
from minorm.onnx.operators.math.linear import read_matmul
from minorm.onnx.operators.nn.convolution import read_conv
from minorm.onnx.operators.whole import whole
from minorm.tensor.tensor import Tensor


@reads("MatMulInteger", since=10, fixed=EVERY)
def read_matmul_integer(node: Node) -> Callable[..., Tensor]:
    product = _matmul(node)

    def matmul(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
        return Tensor(product(a, b, a_zero, b_zero))

    return whole(node, matmul)


@reads("ConvInteger", since=10, fixed=EVERY)
def read_conv_integer(node: Node) -> Callable[..., Tensor]:
    product = _conv(node)

    def conv(x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None) -> Tensor:
        return Tensor(product(x, w, x_zero, w_zero))

    return whole(node, conv)


@reads("QLinearMatMul", since=10, fixed=EVERY)  # 21: scales of 16 bits
def read_qlinear_matmul(node: Node) -> Callable[..., Tensor]:
    product = _matmul(node)

    def matmul(
        a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor, y_scale: Tensor,
        y_zero: Tensor,
    ) -> Tensor:  # fmt: skip
        sums = product(a, b, a_zero, b_zero)
        left, right, own = _row(a_scale, a), _column(b_scale, b), y_scale.array.astype(np.float32)
        return _requantized(sums, left.astype(np.float32) * right.astype(np.float32) / own, y_zero)

    return whole(node, matmul)


@reads("QLinearConv", since=10, fixed=EVERY)
def read_qlinear_conv(node: Node) -> Callable[..., Tensor]:
    product = _conv(node)

    def conv(
        x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor, y_scale: Tensor,
        y_zero: Tensor, bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        sums = product(x, w, x_zero, w_zero)
        along = (-1, *(1,) * (x.ndim - 2))
        if bias is not None:
            sums = sums + _wrapped(bias.array).reshape(along)
        scale = _channel("w_scale", w_scale, w).reshape(along)
        return _requantized(sums, x_scale.array * scale / y_scale.array, y_zero)

    return whole(node, conv)


def _matmul(node: Node) -> Callable[..., Any]:
    multiply = read_matmul(node)

    def product(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Any:
        left = a.array.astype(np.float64) - (0 if a_zero is None else _row(a_zero, a))
        right = b.array.astype(np.float64) - (0 if b_zero is None else _column(b_zero, b))
        return _wrapped(multiply(Tensor(left), Tensor(right)).array)

    return product


def _conv(node: Node) -> Callable[..., Any]:
    convolve = read_conv(node)

    def product(x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None) -> Any:
        if x_zero is not None and x_zero.numel() != 1:
            raise ValueError(f"x_zero_point has shape {x_zero.shape}; expected one number")
        shift: Any = 0 if x_zero is None else x_zero.array.reshape(())
        along = (-1, *(1,) * (w.ndim - 1))
        zeros = 0 if w_zero is None else _channel("w_zero_point", w_zero, w).reshape(along)
        image, kernel = x.array.astype(np.float64) - shift, w.array.astype(np.float64) - zeros
        return _wrapped(convolve(Tensor(image), Tensor(kernel)).array)

    return product


def _wrapped(sums: Any) -> Any:
    """Whole numbers as int32 holds them: what lies beyond its ends comes in again at the other."""
    return sums.astype(np.int64).astype(np.int32)


def _row(parameter: Tensor, a: Tensor) -> Any:
    """A scale or zero point of the left factor: one number, one for each row, or shaped (..., M, 1)."""
    array = parameter.array
    if array.size == 1:
        return array.reshape(())
    wanted = a.shape[-2:-1]
    if array.shape == wanted:
        return array[:, None]
    if array.shape != (*a.shape[:-1], 1):
        raise ValueError(
            f"A has shape {a.shape}, its scale or zero point {array.shape}; expected one number, {wanted} or "
            f"{(*a.shape[:-1], 1)}"
        )
    return array


def _column(parameter: Tensor, b: Tensor) -> Any:
    """A scale or zero point of the right factor: one number, one for each column, or shaped (..., 1, N)."""
    array = parameter.array
    if array.size == 1:
        return array.reshape(())
    wanted = (*b.shape[:-2], 1, *b.shape[-1:])
    if array.shape not in (b.shape[-1:], wanted):
        raise ValueError(
            f"B has shape {b.shape}, its scale or zero point {array.shape}; expected one number, {b.shape[-1:]} or "
            f"{wanted}"
        )
    return array


def _channel(name: str, parameter: Tensor, w: Tensor) -> Any:
    """One number, or one for each of the kernel's channels."""
    if parameter.numel() != 1 and parameter.shape != w.shape[:1]:
        raise ValueError(f"{name} has shape {parameter.shape}; expected one number, or {w.shape[:1]}, one a channel")
    return parameter.array


def _requantized(sums: Any, scale: Any, zero: Tensor) -> Tensor:
    """round(sums * scale) + zero, cut off at the ends of the type of zero."""
    if zero.dtype not in (dtypes.int8, dtypes.uint8):
        raise TypeError(f"y_zero_point is {zero.dtype}; expected int8 or uint8")
    if zero.numel() != 1 and zero.shape != sums.shape[-1:]:
        raise ValueError(f"y_zero_point has shape {zero.shape}; expected one number")
    ends = np.iinfo(zero.dtype)
    steps = np.rint(sums.astype(np.float32) * np.asarray(scale, np.float32)) + zero.array.astype(np.float32)
    return Tensor(np.clip(np.nan_to_num(steps, nan=0), ends.min, ends.max).astype(zero.dtype))
