"""More pooling layers: adaptive pooling, Lp norms, and the inverse of max pooling; see minorm.functional.volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minorm.nn.by_rank import OfRank
from minorm.nn.layers.pooling import _AdaptiveAvgPool
from minorm.nn.options import Options
from minorm.tensor.tensor import Tensor

OutputSize = int | Sequence[int | None] | None
Size = int | tuple[int, ...]


class AdaptiveAvgPool3d(_AdaptiveAvgPool, rank=3):
    """y[n, c, h, i, j] = mean of x[n, c, floor(h * D / D') : ceil((h + 1) * D / D'), ...].

    (D', H', W') is output_size. The dots stand for two more slices: one with i, H and H', and one with j, W and W'.
    """


class _AdaptiveMaxPool(OfRank, Options):
    """x is (N, {form}), or one sample ({form}); y is (N, C, *output_size) for all lengths of x. With
    return_indices=True the result is the pair (y, indices). If several elements are the maximum, the first element is
    taken. A call raises ValueError if an axis has length 0.

    Example:
        >>> nn.{name}(4)(mn.randn(2, 3, {full})).shape
        (2, 3, {half})

    Written to ONNX as Gather (opset 13) and ArgMax (opset 13).
    """

    family = "adaptive_max_pool"
    shown = "output_size"

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__(output_size=output_size, return_indices=return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPool, rank=1):
    """y[n, c, i] = max of x[n, c, floor(i * L / L') : ceil((i + 1) * L / L')], where L' is output_size."""


class AdaptiveMaxPool2d(_AdaptiveMaxPool, rank=2):
    """y[n, c, i, j] = max of x[n, c, floor(i * H / H') : ceil((i + 1) * H / H'), ...].

    (H', W') is output_size. The dots stand for the same slice with j, W and W'.
    """


class AdaptiveMaxPool3d(_AdaptiveMaxPool, rank=3):
    """y[n, c, h, i, j] = max of x[n, c, floor(h * D / D') : ceil((h + 1) * D / D'), ...].

    (D', H', W') is output_size. The dots stand for two more slices: one with i, H and H', and one with j, W and W'.
    """


class _LPPool(OfRank, Options):
    """x is (N, {form}), or one sample ({form}). y is (N, C, {new}). If an axis of x has length n, the axis of y has the
    length floor((n - kernel_size) / stride) + 1. ceil_mode=True rounds the quotient up instead of down. If p is odd and
    the sum is negative, y is NaN.

    Example:
        >>> nn.{name}(2, 2)(mn.randn(2, 3, {full})).shape
        (2, 3, {half})

    An ONNX export writes the formula's operations, with AveragePool (opset 22).
    """

    family = "lp_pool"
    shown = "norm_type kernel_size stride ceil_mode"

    def __init__(
        self, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__(norm_type=norm_type, kernel_size=kernel_size, stride=stride, ceil_mode=ceil_mode)


class LPPool1d(_LPPool, rank=1):
    """y = (sum of x^p)^(1/p) over each window of one axis, where p = norm_type."""


class LPPool2d(_LPPool, rank=2):
    """y = (sum of x^p)^(1/p) over each window of two axes, where p = norm_type."""


class LPPool3d(_LPPool, rank=3):
    """y = (sum of x^p)^(1/p) over each window of three axes, where p = norm_type."""


class _MaxUnpool(OfRank, Options):
    """layer(input, indices) takes the results of MaxPool{rank}d(return_indices=True). input is (N, {form}), or one
    sample ({form}). y is (N, C, {new}). If an axis of input has length n, the axis of y has the length

        (n - 1) * stride - 2 * padding + kernel_size

    layer(input, indices, output_size) gives y the lengths output_size, which must differ from the default lengths by
    less than stride. A call raises ValueError if indices does not have input's shape.

    Example:
        >>> x = mn.randn(2, 3, {full})
        >>> y, indices = nn.MaxPool{rank}d(2, return_indices=True)(x)
        >>> nn.{name}(2)(y, indices).shape  # the maxima at their positions, zeros elsewhere
        (2, 3, {full})

    Written to ONNX as ScatterElements (opset 18); Zeiler and Fergus 2013, arXiv:1311.2901.
    """

    family = "max_unpool"
    shown = "kernel_size stride padding"

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> None:
        stride = kernel_size if stride is None else stride
        super().__init__(kernel_size=kernel_size, stride=stride, padding=padding)

    def _as_setting(self, name: str, value: Any) -> Any:
        if name in ("kernel_size", "stride", "padding"):
            return (value,) * self._rank if isinstance(value, int) else tuple(value)
        return value

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Any:
        """Return y, which has the maxima `input` at the positions `indices`, and zeros elsewhere."""
        return type(self).function(input, indices, **self._arguments(), output_size=output_size)


class MaxUnpool1d(_MaxUnpool, rank=1):
    """y[n, c].reshape(-1)[indices[n, c, i]] = input[n, c, i]. All other elements of y are 0."""


class MaxUnpool2d(_MaxUnpool, rank=2):
    """y[n, c].reshape(-1)[indices[n, c, i, j]] = input[n, c, i, j]. All other elements of y are 0."""


class MaxUnpool3d(_MaxUnpool, rank=3):
    """y[n, c].reshape(-1)[indices[n, c, h, i, j]] = input[n, c, h, i, j]. All other elements of y are 0."""
