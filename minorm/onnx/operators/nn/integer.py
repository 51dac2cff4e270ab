"""MatMulInteger, ConvInteger, QLinearMatMul and QLinearConv: products of 8-bit integers, summed exactly in 32 bits.

QLinear operators scale the sums in float32, round half way to the even number and cut off at the ends of the type, as
onnxruntime does (minorm/ops/quantization.py). No gradient passes integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minorm.devices import dtypes
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import EVERY, READERS, reads
from minorm.onnx.operators.math.linear import ask_matmul
from minorm.onnx.operators.nn.convolution import read_form
from minorm.onnx.operators.whole import whole
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
        return IntegerConvolution.apply(x, w, x_zero, w_zero, form=_form(form(x, w)))

    return whole(node, conv)


@reads("QLinearMatMul", since=10, fixed=EVERY)  # 21: scales of 16 bits
def read_qlinear_matmul(node: Node) -> Callable[..., Tensor]:
    relu, turned = bool(node.get("relu", 0)), bool(node.get("transB", 0))

    def matmul(
        a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor, y_scale: Tensor,
        y_zero: Tensor, bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        if turned:
            return IntegerMatMul.apply(
                a, b, a_zero, b_zero, bias, a_scale, b_scale, y_scale, y_zero, relu=relu, turned=True
            )
        _check_row(a_scale, a)
        _check_column(b_scale, b)
        _check_result(y_zero, b.shape[-1:])
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
        _check_result(y_zero, ())
        scales = x_scale, w_scale, y_scale
        return IntegerConvolution.apply(x, w, x_zero, w_zero, bias, *scales, y_zero, form=_form(form(x, w)), relu=relu)

    return whole(node, conv)


def read_fused(node: Node) -> Callable[..., Tensor]:
    """What computes a node that stands for several, of quantized/byte_nodes.py. `relu` and `transB` are not ONNX's."""
    if node.operator == "QLinearAdd":
        relu = bool(node.attributes.get("relu", 0))
        return lambda a, a_scale, a_zero, b, *rest: QuantizedAdd.apply(a, b, a_scale, a_zero, *rest, relu=relu)
    return READERS[node.operator, node.since].rule(node)


def _matmul(
    node: Node, a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None, *rest: Tensor | None,
    **options: bool,
) -> Tensor:  # fmt: skip
    if a_zero is not None:
        _check_row(a_zero, a)
    if b_zero is not None:
        _check_column(b_zero, b)
    ask_matmul(node, a, b)
    if b.ndim == 1:
        product: Tensor = IntegerMatMul.apply(a, b.unsqueeze(-1), a_zero, b_zero, *rest, **options)
        return product.squeeze(-1)
    if a.ndim == 1:
        product = IntegerMatMul.apply(a.unsqueeze(0), b, a_zero, b_zero, *rest, **options)
        return product.squeeze(-2)
    return IntegerMatMul.apply(a, b, a_zero, b_zero, *rest, **options)


def _form(how: dict[str, Any]) -> tuple[Any, ...]:
    return how["stride"], how["padding"], how["dilation"], how["groups"]


def _check_row(parameter: Tensor, a: Tensor) -> None:
    """A scale or zero point of the left factor: one number, one for each row, or shaped (..., M, 1)."""
    wanted = a.shape[-2:-1]
    if parameter.numel() != 1 and parameter.shape not in (wanted, (*a.shape[:-1], 1)):
        raise ValueError(
            f"A has shape {a.shape}, its scale or zero point {parameter.shape}; expected one number, {wanted} or "
            f"{(*a.shape[:-1], 1)}"
        )


def _check_column(parameter: Tensor, b: Tensor) -> None:
    """A scale or zero point of the right factor: one number, one for each column, or shaped (..., 1, N)."""
    wanted = (*b.shape[:-2], 1, *b.shape[-1:])
    if parameter.numel() != 1 and parameter.shape not in (b.shape[-1:], wanted):
        raise ValueError(
            f"B has shape {b.shape}, its scale or zero point {parameter.shape}; expected one number, {b.shape[-1:]} or "
            f"{wanted}"
        )


def _check_conv(w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None, w_scale: Tensor | None) -> None:
    if x_zero is not None and x_zero.numel() != 1:
        raise ValueError(f"x_zero_point has shape {x_zero.shape}; expected one number")
    for name, parameter in (("w_zero_point", w_zero), ("w_scale", w_scale)):
        if parameter is not None and parameter.numel() != 1 and parameter.shape != w.shape[:1]:
            raise ValueError(
                f"{name} has shape {parameter.shape}; expected one number, or {w.shape[:1]}, one a channel"
            )


def _check_result(zero: Tensor, columns: tuple[int, ...]) -> None:
    if zero.dtype not in (dtypes.int8, dtypes.uint8):
        raise TypeError(f"y_zero_point is {zero.dtype}; expected int8 or uint8")
    if zero.numel() != 1 and (not columns or zero.shape != columns):
        raise ValueError(f"y_zero_point has shape {zero.shape}; expected one number")
