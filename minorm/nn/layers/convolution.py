"""Convolution layers. Each layer holds weight and bias, and calls a function: `F.conv1d` ... `F.conv_transpose3d`.

The shape of weight is (out, in / groups, *kernel), and (in, out / groups, *kernel) in transposed layers. The shape of
bias is (out). As in PyTorch, the starting values are uniform between -b and b, with b = 1 / sqrt(weight.shape[1] *
kernel elements). padding_mode chooses the elements around x: zeros, or copies of x's elements ("reflect", "replicate",
"circular"; see `F.pad`). In transposed layers padding_mode is "zeros".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

import minorm.functional as F
from minorm.functional.argument_texts import CONVOLUTION, PLACE
from minorm.functional.argument_texts import TRANSPOSED as F_TRANSPOSED
from minorm.functional.windows import check_most
from minorm.nn import init, weight_order
from minorm.nn.attributes import MadeBy
from minorm.nn.by_rank import OfRank
from minorm.nn.parameter import check_sizes, uninitialized
from minorm.tensor.tensor import Tensor

Size = int | Sequence[int]
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")
LAYER = {
    **CONVOLUTION,
    **PLACE,
    "in_channels": "C, the length of axis 1 of x",
    "out_channels": "the number of channels of y, each with its own weights",
    "kernel_size": "the lengths of the window over x, an int for all axes or one int per axis",
    "padding": (
        "the number of elements added to x on both sides, an int for all axes or one int per axis. The word "
        '"valid" adds none; "same" gives y the lengths of x, for stride 1 only. If the number of added elements is '
        "then odd, the end gets one more"
    ),
    "groups": (
        "the number of groups into which the channels are split; it must divide in_channels and out_channels. "
        "groups=in_channels is the depthwise convolution"
    ),
    "bias": "False leaves the bias out, as before a normalization",
    "padding_mode": (
        'the values of the padding: "zeros", or elements of x: "reflect" mirrors the elements at the edge, '
        '"replicate" repeats the outermost element, "circular" takes the elements from the other end'
    ),
}
TRANSPOSED = {
    **LAYER,
    **F_TRANSPOSED,
    "bias": "False leaves the bias out",
    "padding": "the number of elements cut off at both ends of y, an int for all axes or one int per axis",
    "groups": LAYER["groups"].partition(". ")[0],
    "padding_mode": '"zeros", the only mode, as in PyTorch',
}


def sizes_of(layer: str, name: str, value: Any, axes: int, least: int = 1) -> tuple[int, ...]:
    """Return a tuple with one int per axis. `value` is one int for all axes, or one int for each axis."""
    whole = isinstance(value, (int, np.integer))
    sizes = (value,) * axes if whole else tuple(value) if isinstance(value, Iterable) else ()
    if len(sizes) != axes or not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in sizes):
        raise TypeError(f"{layer}: {name} is {value!r}; expected an int, or {axes} ints, one for each axis")
    if min(sizes) < least:
        raise ValueError(f"{layer}: {name} is {value!r}; expected at least {least}")
    check_most(layer, name, value, int(max(sizes)))
    return tuple(int(n) for n in sizes)


class _Conv(OfRank):
    """Base of the six convolution layers, with the code that they share: checks, parameters and `repr`."""

    _made_by: ClassVar[MadeBy] = {
        "in_channels": lambda layer: layer._channels()[0],
        "out_channels": lambda layer: layer._channels()[1],
        "kernel_size": lambda layer: layer.weight.shape[2:],
    }
    _of_convolutions = ("weight",)
    transposed: ClassVar[bool] = False
    kernel_size: Any  # stored by `_as_setting` as a tuple of one int per axis
    stride: Any
    dilation: Any
    padding: Any
    output_padding: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size,
        padding: Size | str,
        dilation: Size,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
    ) -> None:
        super().__init__()
        layer = type(self).__name__
        check_sizes(layer, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{layer}: groups={groups} must divide in_channels={in_channels} and out_channels={out_channels}"
            )
        self.padding_mode = padding_mode
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = kernel_size, stride, dilation
        self.padding, self.output_padding = padding, 0
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = uninitialized((first, second // groups, *self.kernel_size), dtype, device)
        self.register_parameter("bias", uninitialized((out_channels,), dtype, device) if bias else None)
        self.reset_parameters()

    def _as_setting(self, name: str, value: Any) -> Any:
        layer = type(self).__name__
        if name in ("kernel_size", "stride", "dilation", "output_padding"):
            return sizes_of(layer, name, value, self._rank, least=int(name != "output_padding"))
        if name == "padding":
            return self._padding(layer, value)
        modes = ("zeros",) if self.transposed else PADDING_MODES
        if name == "padding_mode" and value not in modes:
            raise ValueError(f"{layer}: padding_mode is {value!r}; expected {' or '.join(map(repr, modes))}")
        return value

    def _channels(self) -> tuple[int, int]:
        """Return (in_channels, out_channels), computed from the weight's shape."""
        first, second = self.weight.shape[0], self.weight.shape[1] * self.groups
        return (first, second) if self.transposed else (second, first)

    def _padding(self, layer: str, padding: Any) -> tuple[int, ...] | str:
        if not isinstance(padding, str):
            return sizes_of(layer, "padding", padding, self._rank, least=0)
        if self.transposed or padding not in ("same", "valid"):
            words = "" if self.transposed else ", 'same' or 'valid'"
            raise ValueError(f"{layer}: padding is {padding!r}; expected an int or {self._rank} ints{words}")
        if padding == "same" and any(n != 1 for n in self.stride):
            raise ValueError(
                f"{layer}: padding='same' needs stride 1, because the output has the input's size; stride is "
                f"{self.stride}"
            )
        return padding

    def reset_parameters(self) -> None:
        """Draw weight and bias again."""
        init.default_(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (N, in_channels, *size) to (N, out_channels, *new size). For one sample the shapes have no N."""
        weight, padding = self.weight, self.padding
        weight_order.prepare(weight)
        if self.padding_mode != "zeros":
            x, padding = F.pad(x, self._around(), self.padding_mode), 0
        return self.function(x, weight, self.bias, self.stride, padding, self.dilation, self.groups)

    def _around(self) -> list[int]:
        """Return the padding in the order of `F.pad`: (before, after) for each axis, from the last axis backwards."""
        if not isinstance(self.padding, str):
            return [width for width in reversed(self.padding) for _ in range(2)]
        spans = [d * (k - 1) if self.padding == "same" else 0
                 for k, d in zip(self.kernel_size, self.dilation, strict=True)]  # fmt: skip
        return [width for span in reversed(spans) for width in (span // 2, span - span // 2)]

    def extra_repr(self) -> str:
        """Return the options that differ from the defaults as text for `repr`, in PyTorch's form."""
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        if self.padding != (0,) * self._rank:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * self._rank:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != (0,) * self._rank:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class _Forward(_Conv):
    """s, d and p are the stride, dilation and padding of the axis. Outside its bounds, x is 0. x is (N, {form}) with C
    = in_channels, or one sample ({form}). y is (N, out_channels, {new}). If an axis of x has length n, the axis of y
    has the length

        floor((n + 2 * padding - dilation * (kernel_size - 1) - 1) / stride) + 1

    weight (out_channels, in_channels / groups, {taps}) and bias (out_channels) are learned. Their starting values are
    uniform between -b and b, with b = 1 / sqrt(in_channels / groups * kernel elements). A call raises ValueError if the
    shapes do not fit together, and TypeError if x does not have weight's type. See `F.conv{rank}d`.

    Example:
        >>> layer = nn.{name}(3, 6, 3, padding=1)
        >>> layer(mn.randn(2, 3, {full})).shape
        (2, 6, {full})
        >>> layer.weight.shape
        (6, 3, {kernel})

    Written to ONNX as Conv (opset 22); LeCun et al. 1989.
    """

    family, arguments = "conv", LAYER

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )


class Conv1d(_Forward, rank=1):
    """y[n, o, i] = bias[o] + sum over c, k of weight[o, c, k] * x[n, c, s i + d k - p]."""


class Conv2d(_Forward, rank=2):
    """y[n, o, i, j] = bias[o] + sum over c, k, l of weight[o, c, k, l] * x[n, c, s i + d k - p, s j + d l - p]."""


class Conv3d(_Forward, rank=3):
    """y[n, o, h, i, j] = bias[o] + sum over c, m, k, l of weight[o, c, m, k, l] * x[n, c, s h + d m - p, ...].

    The dots stand for s i + d k - p, s j + d l - p.
    """


class _Transposed(_Conv):
    """s, d and p are the stride, dilation and padding of the axis. The backward pass of a convolution computes the
    gradient of its input by this formula. So a transposed layer maps the output shape of a convolution back to the
    input shape. x is (N, {form}) with C = in_channels, or one sample ({form}). y is (N, out_channels, {new}). If an
    axis of x has length n, the axis of y has the length

        (n - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1

    layer(x, output_size) takes the lengths of y instead of output_padding. weight (in_channels, out_channels / groups,
    {taps}) and bias (out_channels) are learned. Their starting values are uniform between -b and b, with b = 1 /
    sqrt(out_channels / groups * kernel elements). A call raises ValueError if the shapes do not fit together, and
    TypeError if x does not have weight's type. See `F.conv_transpose{rank}d`.

    Example:
        >>> layer = nn.{name}(3, 6, 2, stride=2)
        >>> layer(mn.randn(2, 3, {full})).shape
        (2, 6, {double})

    Written to ONNX as ConvTranspose (opset 22); Zeiler et al. 2010.
    """

    family, arguments, transposed = "conv_transpose", TRANSPOSED, True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self.output_padding = output_padding

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Map x (N, in_channels, *size) to (N, out_channels, *new size). If a stride is above 1, several new sizes are
        possible, and `output_size` chooses one.
        """
        extra = self.output_padding if output_size is None else self._extra(x, tuple(output_size))
        weight = self.weight
        weight_order.prepare(weight)
        return self.function(x, weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)

    def _extra(self, x: Tensor, wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Return the output_padding that gives y the size `wanted`. Along each axis, y can have `stride` different
        lengths.
        """
        wanted, padding = wanted[-self._rank :], tuple(map(int, self.padding))
        rules = zip(x.shape[-self._rank :], self.stride, padding, self.dilation, self.kernel_size, strict=True)
        least = tuple((n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in rules)
        extra = tuple(w - n for w, n in zip(wanted, least, strict=True))
        if any(not 0 <= e < s for e, s in zip(extra, self.stride, strict=True)):
            raise ValueError(
                f"{type(self).__name__}: output_size is {wanted}; for x.shape {x.shape} expected sizes from {least} "
                f"to {tuple(n + s - 1 for n, s in zip(least, self.stride, strict=True))}"
            )
        return extra


class ConvTranspose1d(_Transposed, rank=1):
    """y[n, o, s i + d k - p] += weight[c, o, k] * x[n, c, i] for all c, i, k; y starts as bias[o]."""


class ConvTranspose2d(_Transposed, rank=2):
    """y[n, o, s i + d k - p, s j + d l - p] += weight[c, o, k, l] * x[n, c, i, j] for all indices; y starts as
    bias[o].
    """


class ConvTranspose3d(_Transposed, rank=3):
    """y[n, o, s h + d m - p, ...] += weight[c, o, m, k, l] * x[n, c, h, i, j] for all indices; y starts as bias[o].

    The dots stand for s i + d k - p, s j + d l - p.
    """
