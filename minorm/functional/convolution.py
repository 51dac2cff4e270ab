"""Convolution in one, two and three dimensions, and its transpose. PyTorch's names and argument order.

x is (N, C, *spatial), or one sample (C, *spatial). Along every axis, with kernel k, stride s, padding (low, high) and
dilation d,

    y[o] = sum over taps t of  weight[t] * x[o * s + t * d - low]          zero outside x
    length of y = floor((length of x + low + high - d * (k - 1) - 1) / s) + 1

(a cross-correlation, as everywhere in deep learning). Groups split the channels into `groups` convolutions side by
side; groups = C is the depthwise convolution.
"""

from __future__ import annotations

from typing import Any

from minorm import trace
from minorm.functional.arguments import floats
from minorm.functional.windows import Ints, Pairs, batches, check_fit, check_rank, ints, pairs
from minorm.ops.convolution import Convolution, ConvolutionTranspose
from minorm.tensor import Tensor

IntOrInts = int | tuple[int, ...]
Padding = str | int | tuple[int, ...] | tuple[tuple[int, int], ...]


@batches(1)
@trace.operation
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: Padding = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """x (N, C, L), weight (O, C / groups, K), bias (O) or None: y (N, O, L'). Options and errors as for `conv2d`."""
    return _conv("conv1d", 1, x, weight, bias, stride, padding, dilation, groups)


@batches(2)
@trace.operation
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: Padding = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """x (N, C, H, W), weight (O, C / groups, KH, KW), bias (O) or None: y (N, O, H', W').

    padding: an int, one int an axis, "valid" (none), "same" (y has x's size; stride 1; of an odd sum the larger part
    goes to the end), or a (low, high) pair an axis. All tensors are of one float type; 16-bit floats are computed in
    float32 and rounded once. ValueError for shapes that do not fit, TypeError for types.
    """
    return _conv("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


@batches(3)
@trace.operation
def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: Padding = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """x (N, C, D, H, W), weight (O, C / groups, KD, KH, KW), bias (O) or None: y (N, O, D', H', W'). As `conv2d`."""
    return _conv("conv3d", 3, x, weight, bias, stride, padding, dilation, groups)


@batches(1)
@trace.operation
def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: Padding = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """x (N, C, L), weight (C, O / groups, K), bias (O) or None: y (N, O, L'). As `conv_transpose2d`."""
    return _transpose("conv_transpose1d", 1, x, weight, bias, stride, padding, output_padding, groups, dilation)


@batches(2)
@trace.operation
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: Padding = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """The convolution's gradient for its input, read forward: x (N, C, H, W) is spread out by the stride.

    weight (C, O / groups, KH, KW), bias (O) or None; y (N, O, H', W') with
    H' = (H - 1) * stride - low - high + dilation * (KH - 1) + output_padding + 1.
    output_padding chooses among the sizes that a convolution of this stride takes to H; it is less than stride or
    dilation. padding: an int, one int an axis, or a (low, high) pair an axis. Errors as for `conv2d`.
    """
    return _transpose("conv_transpose2d", 2, x, weight, bias, stride, padding, output_padding, groups, dilation)


@batches(3)
@trace.operation
def conv_transpose3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: Padding = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """x (N, C, D, H, W), weight (C, O / groups, KD, KH, KW): y (N, O, D', H', W'). As `conv_transpose2d`."""
    return _transpose("conv_transpose3d", 3, x, weight, bias, stride, padding, output_padding, groups, dilation)


def _conv(
    name: str, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> Tensor:
    _check_tensors(name, rank, x, weight, bias, groups)
    channels, (outputs, share) = x.shape[1], weight.shape[:2]
    if share * groups != channels:
        raise ValueError(
            f"{name}: weight has {share} input channels per group, x has {channels} channels and groups={groups}; "
            f"expected weight.shape[1] * groups == x.shape[1]; x.shape is {x.shape}, weight.shape is {weight.shape}"
        )
    if outputs % groups:
        raise ValueError(
            f"{name}: groups={groups} must divide the output channels; weight.shape[0] is {outputs}, "
            f"weight.shape is {weight.shape}"
        )
    _check_bias(name, bias, outputs)
    kernel = weight.shape[2:]
    strides, dilations = ints(name, "stride", stride, rank), ints(name, "dilation", dilation, rank)
    if isinstance(padding, str):
        paddings = _named_padding(name, padding, kernel, strides, dilations)
    else:
        paddings = pairs(name, "padding", padding, rank)
    check_fit(name, x.shape[2:], kernel, paddings, dilations)
    return Convolution.apply(x, weight, bias, stride=strides, padding=paddings, dilation=dilations, groups=groups)


def _transpose(
    name: str,
    rank: int,
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: Any,
    dilation: Any,
) -> Tensor:
    _check_tensors(name, rank, x, weight, bias, groups)
    if weight.shape[0] != x.shape[1]:
        raise ValueError(
            f"{name}: weight has {weight.shape[0]} input channels, x has {x.shape[1]}; expected weight.shape[0] == "
            f"x.shape[1]; x.shape is {x.shape}, weight.shape is {weight.shape}, which is (C, O / groups, *kernel)"
        )
    if x.shape[1] % groups:
        raise ValueError(f"{name}: groups={groups} must divide the input channels; x.shape is {x.shape}")
    _check_bias(name, bias, weight.shape[1] * groups)
    strides, dilations = ints(name, "stride", stride, rank), ints(name, "dilation", dilation, rank)
    if isinstance(padding, str):
        raise TypeError(f"{name}: padding is {padding!r}; expected an int, a tuple of ints, or (low, high) pairs")
    paddings = pairs(name, "padding", padding, rank)
    extra = ints(name, "output_padding", output_padding, rank, least=0)
    if 0 in x.shape[2:]:
        raise ValueError(f"{name}: x.shape is {x.shape}; expected at least 1 along every axis but the first")
    size = []
    for n, k, s, (low, high), d, more in zip(
        x.shape[2:], weight.shape[2:], strides, paddings, dilations, extra, strict=True
    ):
        if more >= max(s, d):
            raise ValueError(
                f"{name}: output_padding is {output_padding!r}, stride is {stride!r}, dilation is {dilation!r}; "
                "expected output_padding < stride or < dilation along every axis"
            )
        size.append((n - 1) * s - low - high + d * (k - 1) + more + 1)
    if min(size) < 1:
        raise ValueError(
            f"{name}: the result would have spatial shape {tuple(size)}; expected at least 1 along every axis; "
            f"x.shape is {x.shape}, padding is {padding!r}; use less padding"
        )
    return ConvolutionTranspose.apply(
        x, weight, bias, size=tuple(size), stride=strides, padding=paddings, dilation=dilations, groups=groups
    )


def _check_tensors(name: str, rank: int, x: Any, weight: Any, bias: Any, groups: Any) -> None:
    check_rank(name, "x", x, rank)
    check_rank(name, "weight", weight, rank)
    floats(name, x=x, weight=weight, bias=bias)
    if type(groups) is not int or groups < 1:
        raise ValueError(f"{name}: groups is {groups!r}; expected an int >= 1")
    if not all(weight.shape):
        raise ValueError(f"{name}: weight.shape is {weight.shape}; expected at least 1 along every axis")
    if x.shape[1] == 0:
        raise ValueError(f"{name}: x has 0 channels; expected at least 1; x.shape is {x.shape}")


def _check_bias(name: str, bias: Any, outputs: int) -> None:
    if bias is not None and bias.shape != (outputs,):
        raise ValueError(f"{name}: bias has shape {bias.shape}; expected ({outputs},), one number an output channel")


def _named_padding(name: str, padding: str, kernel: Ints, stride: Ints, dilation: Ints) -> Pairs:
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding != "same":
        raise ValueError(f"{name}: padding is {padding!r}; expected 'same', 'valid', an int or a tuple of ints")
    if max(stride) > 1:
        raise ValueError(
            f"{name}: padding='same' needs stride 1, stride is {stride}; expected an explicit padding with this stride"
        )
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)
