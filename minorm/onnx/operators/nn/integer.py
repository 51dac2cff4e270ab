"""Read MatMulInteger, ConvInteger, QLinearMatMul and QLinearConv: 8-bit products with exact sums in 32 bits.

QLinear operators scale the sums in float32, round halves to even and saturate at the ends of the type's range, like
onnxruntime (minorm/ops/quantization.py). No gradient flows through integers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minorm.devices import dtypes
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, READERS, reads
from minorm.onnx.operators.math.linear import ask_matmul
from minorm.onnx.operators.nn.convolution import read_form
from minorm.onnx.operators.traced_as_one_call import whole
from minorm.ops.quantization import IntegerConvolution, IntegerMatMul, QuantizedAdd
from minorm.tensor.tensor import Tensor


@reads("MatMulInteger", since=10, fixed=EVERY)
def read_matmul_integer(node: Node) -> Callable[..., Tensor]:
    def matmul(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
        return _matmul(node, a, b, a_zero, b_zero)

    return whole(node, matmul)


@reads("ConvInteger", since=10, fixed=EVERY)
def read_conv_integer(node: Node) -> Callable[..., Tensor]:
    form = read_form(node)

    def conv(x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None) -> Tensor:
        _check_conv(w, x_zero, w_zero, None)
        return IntegerConvolution.apply(x, w, x_zero, w_zero, form=form(x, w))

    return whole(node, conv)


@reads("QLinearMatMul", since=10, fixed=EVERY)  # 21: scales of 16 bits
def read_qlinear_matmul(node: Node) -> Callable[..., Tensor]:
    relu, turned = bool(node.get("relu", 0)), bool(node.get("transB", 0))

    def matmul(
        a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor, y_scale: Tensor,
        y_zero: Tensor, bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if turned:
            ask_matmul(node, a.shape, b.shape[::-1], dtypes.int32)
            return IntegerMatMul.apply(
                a, b, a_zero, b_zero, bias, a_scale, b_scale, y_scale, y_zero, relu=relu, turned=True
            )
        _check_row(a_scale, a)
        _check_column(b_scale, b)
        _check_result(y_scale, y_zero, b.shape[-1:])
        return _matmul(node, a, b, a_zero, b_zero, bias, a_scale, b_scale, y_scale, y_zero, relu=relu)

    return whole(node, matmul)


@reads("QLinearConv", since=10, fixed=EVERY)
def read_qlinear_conv(node: Node) -> Callable[..., Tensor]:
    form, relu = read_form(node), bool(node.get("relu", 0))

    def conv(
        x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor, w_zero: Tensor, y_scale: Tensor,
        y_zero: Tensor, bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        _check_conv(w, x_zero, w_zero, w_scale)
        _check_number("x_scale", x_scale)
        _check_result(y_scale, y_zero)
        scales = x_scale, w_scale, y_scale
        return IntegerConvolution.apply(x, w, x_zero, w_zero, bias, *scales, y_zero, form=form(x, w), relu=relu)

    return whole(node, conv)


def read_fused(node: Node) -> Callable[..., Tensor]:
    """Read a node of quantized/byte_nodes.py, which stands for several nodes and may also have `relu` and `transB`."""
    if node.operator == "QLinearAdd":
        return _read_add(node)
    return READERS[node.operator, node.since].rule(node)


def _read_add(node: Node) -> Callable[..., Tensor]:
    relu = bool(node.attributes.get("relu", 0))

    def add(a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, *rest: Tensor | None) -> Tensor:
        wide = dtypes.int8 if a.shape == b.shape else dtypes.float64  # broadcast sums use floats
        node.fits(np.broadcast_shapes(a.shape, b.shape), wide)
        return QuantizedAdd.apply(a, b, a_scale, a_zero, *rest, relu=relu)

    return add


def _matmul(
    node: Node, a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None, *rest: Tensor | None,
    **options: bool,
) -> Tensor:  # fmt: skip
    if a_zero is not None:
        _check_row(a_zero, a)
    if b_zero is not None:
        _check_column(b_zero, b)
    ask_matmul(node, a.shape, b.shape, dtypes.int32)
    if b.ndim == 1:
        product: Tensor = IntegerMatMul.apply(a, b.unsqueeze(-1), a_zero, b_zero, *rest, **options)
        return product.squeeze(-1)
    if a.ndim == 1:
        product = IntegerMatMul.apply(a.unsqueeze(0), b, a_zero, b_zero, *rest, **options)
        return product.squeeze(-2)
    return IntegerMatMul.apply(a, b, a_zero, b_zero, *rest, **options)


def _check_row(parameter: Tensor, a: Tensor) -> None:
    """Check a scale or zero point of the left factor: one number, one number per row, or the shape (..., M, 1)."""
    wanted = a.shape[-2:-1]
    if parameter.numel() != 1 and parameter.shape not in (wanted, (*a.shape[:-1], 1)):
        raise ValueError(
            f"A has shape {a.shape}, its scale or zero point {parameter.shape}; expected one number, {wanted} or "
            f"{(*a.shape[:-1], 1)}"
        )


def _check_column(parameter: Tensor, b: Tensor) -> None:
    """Check a scale or zero point of the right factor: one number, one number per column, or the shape (..., 1, N)."""
    wanted = (*b.shape[:-2], 1, *b.shape[-1:])
    if parameter.numel() != 1 and parameter.shape not in (b.shape[-1:], wanted):
        raise ValueError(
            f"B has shape {b.shape}, its scale or zero point {parameter.shape}; expected one number, {b.shape[-1:]} or "
            f"{wanted}"
        )


def _check_conv(w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None, w_scale: Tensor | None) -> None:
    if x_zero is not None:
        _check_number("x_zero_point", x_zero)
    for name, parameter in (("w_zero_point", w_zero), ("w_scale", w_scale)):
        if parameter is not None and parameter.numel() != 1 and parameter.shape != w.shape[:1]:
            raise ValueError(
                f"{name} has shape {parameter.shape}; expected one number, or {w.shape[:1]}, one per channel"
            )


def _check_result(scale: Tensor, zero: Tensor, columns: tuple[int, ...] | None = None) -> None:
    """Check scale and zero point of the result: one number, or one for each column."""
    if zero.dtype not in dtypes.BYTES:
        raise TypeError(f"y_zero_point is {zero.dtype}; expected int8 or uint8")
    for name, parameter in (("y_scale", scale), ("y_zero_point", zero)):
        if parameter.shape != columns:
            _check_number(name, parameter)


def _check_number(name: str, parameter: Tensor) -> None:
    if parameter.numel() != 1:
        raise ValueError(f"{name} has shape {parameter.shape}; expected one number")
