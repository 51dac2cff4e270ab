"""Pooling layers: they hold the options and call `F.max_pool1d` ... `F.adaptive_avg_pool2d`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import minorm.functional as F
from minorm.nn.module import Module
from minorm.tensor import Tensor

Size = int | Sequence[int]


class _MaxPool(Module):
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


class MaxPool1d(_MaxPool):
    """The largest element of each window of kernel_size: x (N, C, L); stride defaults to kernel_size."""

    function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPool):
    """The same over two axes: x (N, C, H, W)."""

    function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPool):
    """The same over three axes: x (N, C, D, H, W)."""

    function = staticmethod(F.max_pool3d)


class AvgPool1d(Module):
    """The mean of each window of kernel_size: x (N, C, L); stride defaults to kernel_size.

    count_include_pad: whether the zeros of the padding count in the mean.
    """

    function: ClassVar[Callable[..., Any]] = staticmethod(F.avg_pool1d)

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


class _AvgPoolNd(AvgPool1d):
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


class AvgPool2d(_AvgPoolNd):
    """The same over two axes: x (N, C, H, W); divisor_override divides the sum by another number."""

    function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPoolNd):
    """The same over three axes: x (N, C, D, H, W)."""

    function = staticmethod(F.avg_pool3d)


class AdaptiveAvgPool1d(Module):
    """Means over windows chosen so that the result has `output_size` elements: x (N, C, L) -> (N, C, output_size)."""

    function: ClassVar[Callable[..., Any]] = staticmethod(F.adaptive_avg_pool1d)

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """x (N, C, *size) -> (N, C, *output_size)"""
        return self.function(x, self.output_size)

    def extra_repr(self) -> str:
        """The size."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool2d(AdaptiveAvgPool1d):
    """The same over two axes: x (N, C, H, W); output_size is an int, or two, of which None keeps the input's."""

    function = staticmethod(F.adaptive_avg_pool2d)
