"""Pooling layers: they hold the options and call `F.max_pool1d` ... `F.adaptive_avg_pool2d`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import minorm.functional as F
from minorm.functional.argument_texts import AXES
from minorm.nn.module import Module
from minorm.support.documented import arguments_of, documented
from minorm.tensor.tensor import Tensor

Size = int | Sequence[int]


class _MaxPool(Module):
    """s, d and p are stride, dilation and padding of the axis; padding never wins, NaN always does. x is (N, {form}),
    or one sample ({form}); y is (N, C, {new}), and a length n becomes

        floor((n + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1

    or, with ceil_mode, the quotient rounded up. With return_indices the result is (y, indices), what MaxUnpool takes.
    ValueError, when it is called, for windows that do not fit. See `F.max_pool2d`.

    Example:
        >>> nn.{name}(2)(mn.randn(2, 3, {full})).shape
        (2, 3, {half})

    ONNX MaxPool 22.
    """

    function: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, x: Tensor) -> Any:
        """x (N, C, *size) -> (N, C, *new size); with return_indices also where each maximum was"""
        return self.function(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        """The options, as PyTorch prints them."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


@documented(arguments_of(F.max_pool1d), base=_MaxPool, words=AXES[1])
class MaxPool1d(_MaxPool):
    """y[n, c, i] = max over k of x[n, c, s i + d k - p]."""

    function = staticmethod(F.max_pool1d)


@documented(arguments_of(F.max_pool2d), base=_MaxPool, words=AXES[2])
class MaxPool2d(_MaxPool):
    """y[n, c, i, j] = max over k, l of x[n, c, s i + d k - p, s j + d l - p]."""

    function = staticmethod(F.max_pool2d)


@documented(arguments_of(F.max_pool3d), base=_MaxPool, words=AXES[3])
class MaxPool3d(_MaxPool):
    """y[n, c, h, i, j] = max over m, k, l of x[n, c, s h + d m - p, s i + d k - p, s j + d l - p]."""

    function = staticmethod(F.max_pool3d)


class _AvgPool(Module):
    """s and p are stride and padding of the axis. x is (N, {form}), or one sample ({form}); y is (N, C, {new}), and a
    length n becomes

        floor((n + 2 * padding - kernel_size) / stride) + 1

    or, with ceil_mode, the quotient rounded up. ValueError, when it is called, for windows that do not fit, TypeError
    for integers. See `F.avg_pool2d`.

    Example:
        >>> nn.{name}(2)(mn.randn(2, 3, {full})).shape
        (2, 3, {half})

    ONNX AveragePool 22.
    """

    function: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """x (N, C, *size) -> (N, C, *new size)"""
        return self.function(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        """The options, as PyTorch prints them."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


@documented(arguments_of(F.avg_pool1d), base=_AvgPool, words=AXES[1])
class AvgPool1d(_AvgPool):
    """y[n, c, i] = mean over k of x[n, c, s i + k - p]."""

    function = staticmethod(F.avg_pool1d)


class _AvgPoolNd(_AvgPool):
    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Tensor:
        """x (N, C, *size) -> (N, C, *new size)"""
        return self.function(
            x,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


@documented(arguments_of(F.avg_pool2d), base=_AvgPool, words=AXES[2])
class AvgPool2d(_AvgPoolNd):
    """y[n, c, i, j] = mean over k, l of x[n, c, s i + k - p, s j + l - p]."""

    function = staticmethod(F.avg_pool2d)


@documented(arguments_of(F.avg_pool3d), base=_AvgPool, words=AXES[3])
class AvgPool3d(_AvgPoolNd):
    """y[n, c, h, i, j] = mean over m, k, l of x[n, c, s h + m - p, s i + k - p, s j + l - p]."""

    function = staticmethod(F.avg_pool3d)


class _AdaptiveAvgPool(Module):
    """x is (N, {form}), or one sample ({form}); y is (N, C, *output_size), whatever the lengths of x: so a classifier
    takes images of any size. output_size=1 is the global mean. ValueError for an axis of length 0, TypeError for
    integers.

    Example:
        >>> nn.{name}(4)(mn.randn(2, 3, {full})).shape
        (2, 3, {half})

    ONNX GlobalAveragePool 22 for output_size=1, AveragePool 22 where the parts are equal, else MatMul 13.
    """

    function: ClassVar[Callable[..., Any]]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """x (N, C, *size) -> (N, C, *output_size)"""
        return self.function(x, self.output_size)

    def extra_repr(self) -> str:
        """The size."""
        return f"output_size={self.output_size}"


@documented(arguments_of(F.adaptive_avg_pool1d), base=_AdaptiveAvgPool, words=AXES[1])
class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """y[n, c, i] = mean of x[n, c, floor(i * L / L') : ceil((i + 1) * L / L')]: L' parts of the axis."""

    function = staticmethod(F.adaptive_avg_pool1d)


@documented(arguments_of(F.adaptive_avg_pool2d), base=_AdaptiveAvgPool, words=AXES[2])
class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """y[n, c, i, j] = mean of x[n, c, floor(i * H / H') : ceil((i + 1) * H / H'), ...], and columns as rows."""

    function = staticmethod(F.adaptive_avg_pool2d)
