"""Pooling layers. Each layer holds options and calls a function: `F.max_pool1d` ... `F.adaptive_avg_pool2d`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minorm.nn.by_rank import OfRank
from minorm.nn.options import OfOne

Size = int | Sequence[int]


class _MaxPool(OfRank, OfOne):
    """s, d and p are the stride, dilation and padding of the axis. The maximum ignores padding, and is NaN if the
    window has a NaN. x is (N, {form}), or one sample ({form}). y is (N, C, {new}). If an axis of x has length n, the
    axis of y has the length

        floor((n + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1

    With ceil_mode=True the quotient is rounded up instead of down. With return_indices=True the result is the pair (y,
    indices) that MaxUnpool takes. A call raises ValueError if the windows do not fit. See `F.max_pool2d`.

    Example:
        >>> nn.{name}(2)(mn.randn(2, 3, {full})).shape
        (2, 3, {half})

    Written to ONNX as MaxPool (opset 22).
    """

    family = "max_pool"
    shown = "kernel_size stride padding dilation ceil_mode"

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(
            kernel_size=kernel_size,
            stride=kernel_size if stride is None else stride,
            padding=padding,
            dilation=dilation,
            return_indices=return_indices,
            ceil_mode=ceil_mode,
        )


class MaxPool1d(_MaxPool, rank=1):
    """y[n, c, i] = max over k of x[n, c, s i + d k - p]."""


class MaxPool2d(_MaxPool, rank=2):
    """y[n, c, i, j] = max over k, l of x[n, c, s i + d k - p, s j + d l - p]."""


class MaxPool3d(_MaxPool, rank=3):
    """y[n, c, h, i, j] = max over m, k, l of x[n, c, s h + d m - p, s i + d k - p, s j + d l - p]."""


class _AvgPool(OfRank, OfOne):
    """s and p are the stride and padding of the axis. x is (N, {form}), or one sample ({form}). y is (N, C, {new}). If
    an axis of x has length n, the axis of y has the length

        floor((n + 2 * padding - kernel_size) / stride) + 1

    With ceil_mode=True the quotient is rounded up instead of down. A call raises ValueError if the windows do not fit,
    and TypeError if x holds integers. See `F.avg_pool2d`.

    Example:
        >>> nn.{name}(2)(mn.randn(2, 3, {full})).shape
        (2, 3, {half})

    Written to ONNX as AveragePool (opset 22).
    """

    family = "avg_pool"
    shown = "kernel_size stride padding"

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        stride = kernel_size if stride is None else stride
        super().__init__(kernel_size=kernel_size, stride=stride, padding=padding, ceil_mode=ceil_mode,
                         count_include_pad=count_include_pad, divisor_override=divisor_override)  # fmt: skip


class AvgPool1d(_AvgPool, rank=1):
    """y[n, c, i] = mean over k of x[n, c, s i + k - p]."""

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)


class AvgPool2d(_AvgPool, rank=2):
    """y[n, c, i, j] = mean over k, l of x[n, c, s i + k - p, s j + l - p]."""


class AvgPool3d(_AvgPool, rank=3):
    """y[n, c, h, i, j] = mean over m, k, l of x[n, c, s h + m - p, s i + k - p, s j + l - p]."""


class _AdaptiveAvgPool(OfRank, OfOne):
    """x is (N, {form}), or one sample ({form}); y is (N, C, *output_size) for all lengths of x, so a classifier can
    take images of any size. output_size=1 gives the global mean. A call raises ValueError if an axis has length 0, and
    TypeError if x holds integers.

    Example:
        >>> nn.{name}(4)(mn.randn(2, 3, {full})).shape
        (2, 3, {half})

    Written to ONNX as GlobalAveragePool (opset 22) for output_size=1, as AveragePool (opset 22) if output_size divides
    the lengths of x, and otherwise as MatMul (opset 13).
    """

    family = "adaptive_avg_pool"
    shown = "output_size"

    def __init__(self, output_size: Any) -> None:
        super().__init__(output_size=output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPool, rank=1):
    """y[n, c, i] = mean of x[n, c, floor(i * L / L') : ceil((i + 1) * L / L')], where L' is output_size."""


class AdaptiveAvgPool2d(_AdaptiveAvgPool, rank=2):
    """y[n, c, i, j] = mean of x[n, c, floor(i * H / H') : ceil((i + 1) * H / H'), ...].

    (H', W') is output_size. The dots stand for the same slice with j, W and W'.
    """
