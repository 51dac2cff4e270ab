"""Convolution on CuPy arrays: by cuDNN where its frontend is installed and takes it, else by columns and cuBLAS."""

from __future__ import annotations

from math import prod
from typing import Any

from minorm.devices import dtypes
from minorm.kernels.epilogue import applied, check_epilogue
from minorm.kernels.gpu import conv_columns as columns
from minorm.kernels.gpu import conv_cudnn
from minorm.kernels.gpu.plans import window_struct
from minorm.kernels.gpu.sums import sum_axes
from minorm.kernels.reference import conv as reference
from minorm.kernels.reference.conv import check_accumulate, check_bias, checked, output_shape

__all__ = ["backward", "forward", "grad_bias", "grad_input", "grad_weight", "output_shape"]

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def forward(
    x: Any, w: Any, b: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int, epilogue: Any = None
) -> Any:
    """y = W * x + b, and then the epilogue of minorm/kernels/epilogue.py."""
    y_shape = checked("conv.forward", x.shape, w.shape, stride, padding, dilation, groups)
    check_bias("conv.forward", b, w.shape[0])
    check_epilogue("conv.forward", epilogue, w.shape[0], dtypes.compute_type(x.dtype))
    if not _covers(x, w, x.shape[2:], y_shape[2:]):
        return reference.forward(x, w, b, stride, padding, dilation, groups, epilogue)
    y = conv_cudnn.forward(x, w, b, stride, padding, dilation)
    if y is None:
        y = columns.forward(x, w, b, stride, padding, dilation, groups)
    return y if epilogue is None else applied(y, epilogue)


def grad_input(
    dy: Any,
    w: Any,
    x_shape: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    b: Any = None,
    accumulate: Any = None,
) -> Any:
    """dx = W^T * dy, plus a bias where this is the forward pass of a transposed convolution; then plus `accumulate`."""
    checked("conv.grad_input", x_shape, w.shape, stride, padding, dilation, groups, dy.shape)
    check_bias("conv.grad_input", b, x_shape[1])
    check_accumulate("conv.grad_input", accumulate, x_shape, dy.dtype)
    if not _covers(dy, w, x_shape[2:], dy.shape[2:]):
        return reference.grad_input(dy, w, x_shape, stride, padding, dilation, groups, b, accumulate)
    dx = conv_cudnn.grad_input(dy, w, x_shape, stride, padding, dilation, b)
    if dx is None:
        return columns.grad_input(dy, w, x_shape, stride, padding, dilation, groups, b, accumulate)
    return dx if accumulate is None else dx + accumulate


def grad_weight(
    dy: Any, x: Any, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int, bias: bool = True
) -> tuple[Any, Any]:
    """(dW = dy * x, db); without `bias` db is None, and takes no launch."""
    checked("conv.grad_weight", x.shape, w_shape, stride, padding, dilation, groups, dy.shape)
    if not _covers(dy, x, x.shape[2:], dy.shape[2:]):
        return reference.grad_weight(dy, x, w_shape, stride, padding, dilation, groups, bias)
    dw = conv_cudnn.grad_weight(dy, x, w_shape, stride, padding, dilation)
    if dw is None:
        dw = columns.grad_weight(dy, x, w_shape, stride, padding, dilation, groups)
    return dw, grad_bias(dy) if bias else None


def backward(
    dy: Any,
    x: Any,
    w: Any,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    needs: tuple[bool, bool, bool] = (True, True, True),
    accumulate: Any = None,
) -> tuple[Any, Any, Any]:
    """(dx plus `accumulate`, dW, db), None where nobody needs it; by columns dy is brought into their form once."""
    how = stride, padding, dilation, groups
    checked("conv.backward", x.shape, w.shape, *how, dy.shape)
    check_accumulate("conv.backward", accumulate, x.shape, dy.dtype)
    covered = all(_covers(dy, other, x.shape[2:], dy.shape[2:]) for other in (x, w))
    if needs[:2] == (True, True) and covered and not conv_cudnn.is_used(x, padding):
        dx, dw = columns.gradients(dy, x, w, *how, accumulate)
        return dx, dw, grad_bias(dy) if needs[2] else None
    return _separate(dy, x, w, *how, needs, accumulate)


def grad_bias(dy: Any) -> Any:
    """db: dy summed over everything but the channels."""
    return sum_axes(dy, (0, *range(2, dy.ndim)))


_separate = reference.composed(grad_input, grad_weight, grad_bias)


def _covers(a: Any, b: Any, size: Ints, out: Ints) -> bool:
    """Is there something to compute, of a type and size that the kernels know?"""
    known = a.dtype in dtypes.FLOATS and a.dtype == b.dtype and len(size) <= 3
    return known and a.size > 0 and b.size > 0 and prod(out) > 0 and prod(size) < window_struct.LARGEST
