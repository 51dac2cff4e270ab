"""Pooling in one, two and three dimensions, with PyTorch's names and argument order.

x is (N, C, *spatial), or one sample (C, *spatial). A window has `kernel_size` taps, which are `dilation` apart. The
window moves in steps of `stride` (of kernel_size if stride is None) over x with `padding` on both sides. With
ceil_mode=True, a last window that starts inside x, or in the padding before x, is kept even if it ends beyond the
padding. So a window larger than x covers all of x.
"""

from __future__ import annotations

import functools
from typing import Any

from minorm.devices import dtypes
from minorm.functional.argument_texts import AXES, POOLING, SAMPLE
from minorm.functional.windows import Ints, Pairs, batches, check_fit, check_rank, for_each_rank, ints, pairs
from minorm.graph import trace
from minorm.kernels.reference.pool import output_shape
from minorm.ops.operands import check_room
from minorm.ops.pooling import AdaptiveAvgPool, AvgPool, MaxPool
from minorm.support.documented import documented
from minorm.tensor.tensor import Tensor

IntOrInts = int | tuple[int, ...]
Padding = int | tuple[int, ...] | tuple[tuple[int, int], ...]


@for_each_rank(
    "max_pool",
    POOLING | {"x": SAMPLE},
    "y[n, c, i] = max over k of x[n, c, i * stride + k * dilation - padding]",
    "y[n, c, i, j] = max over k, l of x[n, c, i * stride + k * dilation - padding, ...]\n\n"
    "The dots stand for j * stride + l * dilation - padding.",
    "y[n, c, h, i, j] = max over m, k, l of x[n, c, h * stride + m * dilation - padding, ...]\n\n"
    "The dots stand for i * stride + k * dilation - padding, j * stride + l * dilation - padding.",
    example=4,
)
def _max(
    rank: int,
    x: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: Padding = 0,
    dilation: IntOrInts = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """y is (N, C, {new}). The maximum ignores padding, and is NaN if the window has a NaN. If several elements are the
    maximum, the first element gets the gradient and gives the index. Along each axis, for K taps and padding (low,
    high),

        length of y = floor((length of x + low + high - dilation * (K - 1) - 1) / stride) + 1

    With return_indices=True the result is (y, indices). Raises ValueError if the windows do not fit.

    Example:
        >>> x = mn.arange(4.0).expand({shape})
        >>> F.{name}(x, kernel_size=2).reshape(-1)[:2]
        tensor([1., 3.])

    Its ONNX operator is MaxPool.
    """
    name = f"max_pool{rank}d"
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


max_pool1d, max_pool2d, max_pool3d = _max


@for_each_rank(
    "avg_pool",
    POOLING | {"x": SAMPLE + "; floats"},
    "y[n, c, i] = mean over k of x[n, c, i * stride + k * dilation - padding]",
    "y[n, c, i, j] = mean over k, l of x[n, c, i * stride + k * dilation - padding, ...]\n\n"
    "The dots stand for j * stride + l * dilation - padding.",
    "y[n, c, h, i, j] = mean over m, k, l of x[n, c, h * stride + m * dilation - padding, ...]\n\n"
    "The dots stand for i * stride + k * dilation - padding, j * stride + l * dilation - padding.",
    example=4,
)
def _avg(
    rank: int,
    x: Tensor,
    kernel_size: IntOrInts,
    stride: IntOrInts | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    dilation: IntOrInts = 1,
) -> Tensor:
    """y is (N, C, {new}). The mean divides by the number of taps that lie on x or on the padding.
    count_include_pad=False counts only the taps on x, and divisor_override replaces this number. With ceil_mode=True,
    taps can lie beyond the padding; those taps are never counted. Along each axis, for K taps and padding (low, high),

        length of y = floor((length of x + low + high - dilation * (K - 1) - 1) / stride) + 1

    PyTorch has no dilation here; the argument comes from ONNX. Raises ValueError if the windows do not fit, and
    TypeError if x holds integers.

    Example:
        >>> x = mn.arange(4.0).expand({shape})
        >>> F.{name}(x, kernel_size=2).reshape(-1)[:2]
        tensor([0.5, 2.5])

    Its ONNX operator is AveragePool.
    """
    name, divisor = f"avg_pool{rank}d", divisor_override
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


avg_pool1d, avg_pool2d, avg_pool3d = _avg


def _adaptive(name: str, rank: int, x: Any, output_size: Any) -> Tensor:
    """Raises ValueError if an axis of the input has length 0, and TypeError if the input holds integers.

    Example:
        >>> x = mn.arange(6.0).expand({shape})
        >>> F.{name}(x, output_size=2).reshape(-1)[:2]
        tensor([1., 4.])

    Its ONNX operator is GlobalAveragePool for output_size=1, and AveragePool if output_size divides the old lengths.
    """
    check_rank(name, "x", x, rank)
    _check_float(name, x)
    size = x.shape[2:]
    if 0 in size:
        raise ValueError(f"{name}: x.shape is {x.shape}; expected at least 1 along every spatial axis")
    if isinstance(output_size, (tuple, list)) and len(output_size) == rank:
        output_size = tuple(n if o is None else o for o, n in zip(output_size, size, strict=True))
    output = ints(name, "output_size", output_size, rank)
    check_room(name, (*x.shape[:2], *output))
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


@documented(POOLING, base=_adaptive, shape="1, 1, 6", x=SAMPLE.format_map(AXES[1]) + "; floats")
@batches(1)
@trace.operation
def adaptive_avg_pool1d(x: Tensor, output_size: int | tuple[int | None, ...]) -> Tensor:
    """y[n, c, i] = mean of x[n, c, floor(i * L / L') : ceil((i + 1) * L / L')], where L' = output_size

    y is (N, C, L').
    """
    return _adaptive("adaptive_avg_pool1d", 1, x, output_size)


@documented(POOLING, base=_adaptive, shape="1, 1, 6, 6", x=SAMPLE.format_map(AXES[2]) + "; floats")
@batches(2)
@trace.operation
def adaptive_avg_pool2d(x: Tensor, output_size: int | tuple[int | None, ...]) -> Tensor:
    """y[n, c, i, j] = mean of x[n, c, floor(i * H / H') : ceil((i + 1) * H / H'), ...], with (H', W') = output_size

    y is (N, C, H', W'). The dots stand for the slice of the columns, which has j, W and W' in place of i, H and H'.
    output_size=1 gives the global average.
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
                f"{name}: padding is {padding!r}, kernel_size is {kernel_size!r}; expected padding <= kernel_size // "
                "2, whatever the dilation; for more padding, pad x itself"
            )
    _check_fit(name, x.array.shape[2:], kernel, strides, paddings, dilations, bool(ceil_mode))
    return kernel, strides, paddings, dilations


@functools.lru_cache(maxsize=1024)  # a training step asks for the same shapes again and again
def _check_fit(
    name: str, size: Ints, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, ceil_mode: bool
) -> None:
    """Raise ValueError if the window is larger than the padded input. With ceil_mode, raise the error only if y would
    be empty.
    """
    if not ceil_mode or min(output_shape(size, kernel, stride, padding, dilation, True)) < 1:
        check_fit(name, size, kernel, padding, dilation)
    check_room(name, output_shape(size, kernel, stride, padding, dilation, ceil_mode))


def _check_float(name: str, x: Any) -> None:
    if not dtypes.is_float(x.array.dtype):
        raise TypeError(f"{name}: x is {x.dtype}; expected a float type; convert it with x.float()")
