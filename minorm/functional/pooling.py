"""Pooling in one, two and three dimensions. PyTorch's names and argument order.

x is (N, C, *spatial), or one sample (C, *spatial). A window of `kernel_size` taps, `dilation` apart, moves by `stride`
(None: by kernel_size) over x with `padding` on both sides. ceil_mode keeps a last window that hangs over the end, if it
starts inside: a window that is larger than x sees all of it.
"""

from __future__ import annotations

from typing import Any

from minorm import dtypes, trace
from minorm.functional.windows import Ints, Pairs, batches, check_fit, check_rank, ints, pairs
from minorm.kernels.reference.pool import output_shape
from minorm.ops.pooling import AdaptiveAvgPool, AvgPool, MaxPool
from minorm.tensor import Tensor

IntOrInts = int | tuple[int, ...]
Padding = int | tuple[int, ...] | tuple[tuple[int, int], ...]


@batches(1)
@trace.operation
def max_pool1d(
    x: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: Padding = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """x (N, C, L): the largest element of every window, (N, C, L'). As `max_pool2d`."""
    return _max("max_pool1d", 1, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@batches(2)
@trace.operation
def max_pool2d(
    x: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: Padding = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """x (N, C, H, W): the largest element of every window, (N, C, H', W'); padding never wins, NaN always does.

    padding: an int, one int an axis, or (low, high) pairs; at most half the kernel. return_indices: also the place
    h * W + w of each maximum, an int64 Tensor; the first of equals. ValueError for windows that do not fit.
    """
    return _max("max_pool2d", 2, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@batches(3)
@trace.operation
def max_pool3d(
    x: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: Padding = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """x (N, C, D, H, W): the largest element of every window, (N, C, D', H', W'). As `max_pool2d`."""
    return _max("max_pool3d", 3, x, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@batches(1)
@trace.operation
def avg_pool1d(
    x: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dilation: IntOrInts = 1,
) -> Tensor:
    """x (N, C, L): the mean of every window, (N, C, L'). As `avg_pool2d`."""
    return _avg(
        "avg_pool1d", 1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, dilation
    )


@batches(2)
@trace.operation
def avg_pool2d(
    x: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dilation: IntOrInts = 1,
) -> Tensor:
    """x (N, C, H, W): the mean of every window, (N, C, H', W').

    The sum is divided by the number of taps that meet x or its padding, without the padding if count_include_pad is
    False, or by divisor_override. What hangs over the padding (ceil_mode) never counts. dilation is ONNX's; PyTorch has
    none. padding: an int, one int an axis, or (low, high) pairs; at most half the kernel. ValueError for windows that
    do not fit.
    """
    return _avg(
        "avg_pool2d", 2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, dilation
    )


@batches(3)
@trace.operation
def avg_pool3d(
    x: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dilation: IntOrInts = 1,
) -> Tensor:
    """x (N, C, D, H, W): the mean of every window, (N, C, D', H', W'). As `avg_pool2d`."""
    return _avg(
        "avg_pool3d", 3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, dilation
    )


@batches(1)
@trace.operation
def adaptive_avg_pool1d(x: Tensor, output_size: int | tuple[int | None, ...]) -> Tensor:
    """x (N, C, L): means of `output_size` parts of the axis, (N, C, output_size). As `adaptive_avg_pool2d`."""
    return _adaptive("adaptive_avg_pool1d", 1, x, output_size)


@batches(2)
@trace.operation
def adaptive_avg_pool2d(x: Tensor, output_size: int | tuple[int | None, ...]) -> Tensor:
    """x (N, C, H, W): means of output_size parts of each axis, (N, C, *output_size); 1 is the global average.

    Part i of o runs from floor(i * n / o) to before ceil((i + 1) * n / o). None keeps an axis as it is.
    """
    return _adaptive("adaptive_avg_pool2d", 2, x, output_size)


def _windows(
    name: str, rank: int, x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any
) -> tuple[Ints, Ints, Pairs, Ints]:
    check_rank(name, "x", x, rank)
    kernel = ints(name, "kernel_size", kernel_size, rank)
    strides = kernel if stride is None else ints(name, "stride", stride, rank)
    dilations = ints(name, "dilation", dilation, rank)
    paddings = pairs(name, "padding", padding, rank)
    for k, pair in zip(kernel, paddings, strict=True):
        if max(pair) > k // 2:
            raise ValueError(
                f"{name}: padding is {padding!r}, kernel_size is {kernel_size!r}; expected padding <= half the kernel, "
                "without its dilation; pad x itself for more"
            )
    if not ceil_mode or min(output_shape(x.shape[2:], kernel, strides, paddings, dilations, True)) < 1:
        check_fit(name, x.shape[2:], kernel, paddings, dilations)
    return kernel, strides, paddings, dilations


def _max(
    name: str,
    rank: int,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    kernel, strides, paddings, dilations = _windows(name, rank, x, kernel_size, stride, padding, dilation, ceil_mode)
    result = MaxPool.apply(
        x,
        kernel=kernel,
        stride=strides,
        padding=paddings,
        dilation=dilations,
        ceil_mode=bool(ceil_mode),
        return_indices=bool(return_indices),
    )
    return (result[0], result[1].detach()) if return_indices else result


def _avg(
    name: str,
    rank: int,
    x: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: Any,
    dilation: Any,
) -> Tensor:
    kernel, strides, paddings, dilations = _windows(name, rank, x, kernel_size, stride, padding, dilation, ceil_mode)
    _check_float(name, x)
    if divisor is not None and (type(divisor) is not int or divisor == 0):
        raise ValueError(f"{name}: divisor_override is {divisor!r}; expected an int that is not 0, or None")
    return AvgPool.apply(
        x,
        kernel=kernel,
        stride=strides,
        padding=paddings,
        dilation=dilations,
        ceil_mode=bool(ceil_mode),
        count_include_pad=bool(count_include_pad),
        divisor=divisor,
    )


def _adaptive(name: str, rank: int, x: Any, output_size: Any) -> Tensor:
    check_rank(name, "x", x, rank)
    _check_float(name, x)
    size = x.shape[2:]
    if 0 in size:
        raise ValueError(f"{name}: x.shape is {x.shape}; expected at least 1 along every spatial axis")
    if isinstance(output_size, (tuple, list)) and len(output_size) == rank:
        output_size = tuple(n if o is None else o for o, n in zip(output_size, size, strict=True))
    output = ints(name, "output_size", output_size, rank)
    if any(n % o for n, o in zip(size, output, strict=True)):
        return AdaptiveAvgPool.apply(x, output=output)
    kernel = tuple(n // o for n, o in zip(size, output, strict=True))
    return AvgPool.apply(
        x,
        kernel=kernel,
        stride=kernel,
        padding=((0, 0),) * rank,
        dilation=(1,) * rank,
        ceil_mode=False,
        count_include_pad=True,
        divisor=None,
    )


def _check_float(name: str, x: Any) -> None:
    if not dtypes.is_float(x.array.dtype):
        raise TypeError(f"{name}: x is {x.dtype}; expected a float type; convert it with x.float()")
