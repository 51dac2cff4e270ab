"""Pooling layers beyond windows of one size; see minorm.functional.volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minorm.functional import volumes as F
from minorm.nn.options import Options
from minorm.tensor import Tensor

OutputSize = int | Sequence[int | None] | None
Size = int | tuple[int, ...]


class AdaptiveAvgPool3d(Options):
    """(N, C, D, H, W) -> (N, C, *output_size): means of parts; None keeps an axis."""

    function = staticmethod(F.adaptive_avg_pool3d)
    shown = "output_size"

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__(output_size=output_size)


class _AdaptiveMaxPool(Options):
    shown = "output_size"

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """(N, C, L): the largest elements of output_size parts; with return_indices also their places."""

    function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """(N, C, H, W): the largest elements of output_size parts; with return_indices also their places."""

    function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """(N, C, D, H, W): the largest elements of output_size parts; with return_indices also their places."""

    function = staticmethod(F.adaptive_max_pool3d)


class _LPPool(Options):
    shown = "norm_type kernel_size stride ceil_mode"

    def __init__(
        self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode)


class LPPool1d(_LPPool):
    """(sum of x^p)^(1/p) over each window of 1 axis, p = norm_type."""

    function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPool):
    """(sum of x^p)^(1/p) over each window of 2 axes, p = norm_type."""

    function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPool):
    """(sum of x^p)^(1/p) over each window of 3 axes, p = norm_type."""

    function = staticmethod(F.lp_pool3d)


class _MaxUnpool(Options):
    shown = "kernel_size stride padding"

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        def each(size: Any) -> Any:
            return (size,) * self.rank if isinstance(size, int) else tuple(size)

        super().__init__(
            kernel_size=each(kernel_size), stride=each(kernel_size if stride is None else stride), padding=each(padding)
        )

    rank = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Any:
        """The elements of a pooling at the places it found them, zeros elsewhere."""
        return type(self).function(input, indices, **self.options(), output_size=output_size)


class MaxUnpool1d(_MaxUnpool):
    """What MaxPool1d(return_indices=True) found, back at its places; zeros elsewhere."""

    function, rank = staticmethod(F.max_unpool1d), 1


class MaxUnpool2d(_MaxUnpool):
    """What MaxPool2d(return_indices=True) found, back at its places; zeros elsewhere."""

    function, rank = staticmethod(F.max_unpool2d), 2


class MaxUnpool3d(_MaxUnpool):
    """What MaxPool3d(return_indices=True) found, back at its places; zeros elsewhere."""

    function, rank = staticmethod(F.max_unpool3d), 3
