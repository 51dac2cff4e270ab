"""Convolution on CuPy arrays: uses cuDNN if its frontend is installed and has a plan, otherwise columns and cuBLAS."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

from minorm.devices import dtypes
from minorm.kernels.epilogue import applied, check_epilogue
from minorm.kernels.gpu import conv_columns as columns
from minorm.kernels.gpu import conv_cudnn, elementwise
from minorm.kernels.gpu.channels_last import laid as in_order
from minorm.kernels.gpu.channels_last import only_last
from minorm.kernels.gpu.plans import window_struct
from minorm.kernels.gpu.sums import sum_axes
from minorm.kernels.reference import conv as reference
from minorm.kernels.reference.conv import check_accumulate, check_bias, checked, output_shape

__all__ = [
    "backward", "forward", "grad_bias", "grad_input", "grad_weight", "in_order", "laid_out", "output_shape",
    "weights_laid_out",
]  # fmt: skip

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def laid_out(x: Any, dtype: Any) -> Any:
    """Return x in the type and memory order that a convolution reads. If x already has both, return x itself."""
    return conv_cudnn.laid_out(x, dtype)


def weights_laid_out(w: Any, dtype: Any) -> Any:
    """Return weights w in the memory order in which a convolution of the type `dtype` reads them. The type of w stays.

    The channels come last if tensor cores compute. Other convolutions read both orders, so then w itself is returned.
    """
    return in_order(w, True) if w.size and conv_cudnn.computes_last(dtype) else w


def forward(
    x: Any, w: Any, b: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int, epilogue: Any = None
) -> Any:
    """Return y = W * x + b, followed by the epilogue of minorm/kernels/epilogue.py."""
    y_shape, covered = _geometry("conv.forward", x.shape, w.shape, stride, padding, dilation, groups)
    check_bias("conv.forward", b, w.shape[0])
    check_epilogue("conv.forward", epilogue, w.shape[0], dtypes.compute_type(x.dtype))
    if not covered or not _of_one_type(x, w):
        return reference.forward(x, w, b, stride, padding, dilation, groups, epilogue)
    y = conv_cudnn.forward(x, w, b, y_shape, stride, padding, dilation)
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
    """Return dx = W^T * dy + b + accumulate. Only the forward pass of a transposed convolution passes a bias b."""
    _, covered = _geometry("conv.grad_input", x_shape, w.shape, stride, padding, dilation, groups, dy.shape)
    check_bias("conv.grad_input", b, x_shape[1])
    check_accumulate("conv.grad_input", accumulate, x_shape, dy.dtype)
    if not covered or not _of_one_type(dy, w):
        return reference.grad_input(dy, w, x_shape, stride, padding, dilation, groups, b, accumulate)
    dx = conv_cudnn.grad_input(dy, w, x_shape, stride, padding, dilation, b)
    if dx is None:
        return columns.grad_input(dy, w, x_shape, stride, padding, dilation, groups, b, accumulate)
    if accumulate is not None:
        elementwise.accumulate(dx, accumulate)
    return dx


def grad_weight(
    dy: Any,
    x: Any,
    w_shape: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    bias: bool = True,
    like: Any = None,
) -> tuple[Any, Any]:
    """Return (dW = dy * x, db), where dW has the memory order of `like`. With bias=False, db is None."""
    _, covered = _geometry("conv.grad_weight", x.shape, w_shape, stride, padding, dilation, groups, dy.shape)
    if not covered or not _of_one_type(dy, x):
        return reference.grad_weight(dy, x, w_shape, stride, padding, dilation, groups, bias)
    last = like is not None and only_last(w_shape, like.strides, like.itemsize)
    dw = conv_cudnn.grad_weight(dy, x, w_shape, stride, padding, dilation, last)
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
    """Return (dx plus `accumulate`, dW, db). A gradient that is not needed is None. The layout of dy is changed only
    once for all gradients.
    """
    how = stride, padding, dilation, groups
    _, covered = _geometry("conv.backward", x.shape, w.shape, *how, dy.shape)
    check_accumulate("conv.backward", accumulate, x.shape, dy.dtype)
    covered = covered and _of_one_type(dy, x) and _of_one_type(dy, w)
    by_columns = covered and not conv_cudnn.is_used(x.dtype, padding)
    if by_columns and needs[:2] == (True, True):
        dx, dw = columns.gradients(dy, x, w, *how, accumulate)
        return dx, dw, grad_bias(dy) if needs[2] else None
    if not by_columns and dy.dtype == x.dtype:
        dy = laid_out(dy, dy.dtype)
    dx = dw = db = None
    if needs[1]:
        dw, db = grad_weight(dy, x, w.shape, *how, needs[2], w)
    elif needs[2]:
        db = grad_bias(dy)
    if needs[0]:
        dx = grad_input(dy, w, x.shape, *how, accumulate=accumulate)
    return dx, dw, db


def grad_bias(dy: Any) -> Any:
    """Return db: dy summed over all axes but the channels."""
    return sum_axes(dy, (0, *range(2, dy.ndim)))


@functools.lru_cache(maxsize=4096)
def _geometry(
    operation: str,
    x: Ints,
    w: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    dy: Ints | None = None,
) -> tuple[Ints, bool]:
    """Check the shapes. Return the shape of y, and True if the kernels can compute it. They cannot if an array is empty
    or too large.
    """
    y = checked(operation, x, w, stride, padding, dilation, groups, dy)
    sizes = prod(x), prod(w), prod(y[2:])
    return y, min(sizes) > 0 and len(x) <= 5 and prod(x[2:]) < window_struct.LARGEST


def _of_one_type(a: Any, b: Any) -> bool:
    """Return True if a and b have the same float type."""
    return a.dtype in dtypes.FLOATS and a.dtype == b.dtype
