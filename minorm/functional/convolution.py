"""Convolution in one, two and three dimensions, and its transpose, with PyTorch's names and argument order.

x is (N, C, *spatial), or one sample (C, *spatial). Along every axis, with kernel k, stride s, padding (low, high) and
dilation d,

    y[o] = sum over taps t of  weight[t] * x[o * s + t * d - low]          zero outside x
    length of y = floor((length of x + low + high - d * (k - 1) - 1) / s) + 1

This is a cross-correlation, as everywhere in deep learning. `groups` splits the channels into that many independent
convolutions; with groups = C the result is the depthwise convolution.
"""

from __future__ import annotations

import functools
from typing import Any

from minorm.functional.argument_texts import CONVOLUTION, SAMPLE, TRANSPOSED
from minorm.functional.arguments import floats
from minorm.functional.windows import Ints, Pairs, channels_elsewhere, check_fit, check_rank, for_each_rank, ints, pairs
from minorm.ops.convolution import Convolution, ConvolutionTranspose, output_shape
from minorm.ops.operands import check_room
from minorm.tensor.tensor import Tensor

IntOrInts = int | tuple[int, ...]
Padding = str | int | tuple[int, ...] | tuple[tuple[int, int], ...]


@for_each_rank(
    "conv",
    CONVOLUTION | {"x": SAMPLE, "weight": "(O, C / groups, {taps})"},
    "y[n, o, i] = bias[o] + sum over c, k of weight[o, c, k] * x[n, c, i * stride + k * dilation - padding]",
    "y[n, o, i, j] = bias[o] + sum of weight[o, c, k, l] * x[n, c, i * stride + k * dilation - padding, ...]\n\n"
    "The sum is over c, k, l. The dots stand for j * stride + l * dilation - padding.",
    "y[n, o, h, i, j] = bias[o] + sum of weight[o, c, m, k, l] * x[n, c, h * stride + m * dilation - padding, ...]\n\n"
    "The sum is over c, m, k, l. The dots stand for\n"
    "i * stride + k * dilation - padding, j * stride + l * dilation - padding.",
    example=4,
)
def _conv(
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: Padding = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Tensor:
    """y is (N, O, {new}). This is a cross-correlation, as everywhere in deep learning. Outside its bounds, x is 0.
    Along each axis, for K taps and padding (low, high),

        length of y = floor((length of x + low + high - dilation * (K - 1) - 1) / stride) + 1

    All tensors must have the same float type. For 16-bit floats the computation is in float32, and only the result is
    rounded. Raises ValueError if the shapes do not fit together, and TypeError if the types differ.

    Example:
        >>> x = mn.ones({shape})
        >>> F.{name}(x, weight=x, padding="same").shape == x.shape
        True
        >>> F.{name}(x, weight=x).item() == x.numel()  # one window, a sum of ones
        True

    Its ONNX operator is Conv; LeCun et al. 1989. Dumoulin and Visin 2016, arXiv:1603.07285, explain the lengths.
    """
    options = checked_options(f"conv{rank}d", rank, x, weight, bias, stride, padding, dilation, groups)
    return Convolution.apply(x, weight, bias, **options)


conv1d, conv2d, conv3d = _conv


def checked_options(
    name: str, rank: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any
) -> dict[str, Any]:
    """Check all arguments, and return the options that the operation takes besides its tensors."""
    _check_tensors(name, rank, x, weight, bias, groups)
    strides, dilations = ints(name, "stride", stride, rank), ints(name, "dilation", dilation, rank)
    if not isinstance(padding, str):
        padding = pairs(name, "padding", padding, rank)
    b_shape = None if bias is None else bias.array.shape
    return _options(name, x.array.shape, weight.array.shape, b_shape, strides, padding, dilations, groups)


@functools.lru_cache(maxsize=1024)  # a training step asks for the same shapes again and again
def _options(
    name: str, x: Ints, weight: Ints, bias: Ints | None, stride: Ints, padding: str | Pairs, dilation: Ints, groups: int
) -> dict[str, Any]:
    """Return the options of the operation, with the padding as numbers; raise ValueError if the shapes do not fit.

    The result is cached for later calls, so callers must not change it.
    """
    channels, (outputs, share), kernel = x[1], weight[:2], weight[2:]
    if share * groups != channels:
        raise ValueError(
            f"{name}: weight has {share} input channels per group, x has {channels} channels and groups={groups}; "
            f"expected weight.shape[1] * groups == x.shape[1]; x.shape is {x}, weight.shape is {weight}"
            f"{channels_elsewhere(x, share * groups)}"
        )
    if outputs % groups:
        raise ValueError(
            f"{name}: groups={groups} must divide the output channels; weight.shape[0] is {outputs}, "
            f"weight.shape is {weight}"
        )
    _check_bias(name, bias, outputs)
    paddings = _named_padding(name, padding, kernel, stride, dilation) if isinstance(padding, str) else padding
    check_fit(name, x[2:], kernel, paddings, dilation)
    check_room(name, (x[0], outputs, *output_shape(x[2:], kernel, stride, paddings, dilation)))
    return {"stride": stride, "padding": paddings, "dilation": dilation, "groups": groups}


@for_each_rank(
    "conv_transpose",
    TRANSPOSED | {"x": SAMPLE, "weight": "(C, O / groups, {taps})"},
    "y[n, o, i * stride + k * dilation - padding] += weight[c, o, k] * x[n, c, i]; y starts as bias[o].\n\n"
    "The sum is over all c, i, k.",
    "y[n, o, i * stride + k * dilation - padding, ...] += weight[c, o, k, l] * x[n, c, i, j]; y starts as bias[o].\n\n"
    "The sum is over all c, i, j, k, l. The dots stand for j * stride + l * dilation - padding.",
    "y[n, o, h * stride + m * dilation - padding, ...] += weight[c, o, m, k, l] * x[n, c, h, i, j]\n\n"
    "y starts as bias[o]. The sum is over all c, h, i, j, m, k, l. The dots stand for\n"
    "i * stride + k * dilation - padding, j * stride + l * dilation - padding.",
    example=4,
)
def _transpose(
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrInts = 1,
    padding: Padding = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Tensor:
    """y is (N, O, {new}). The gradient of a convolution's input is computed by the same formula as y. A stride above 1
    makes y longer than x. Along each axis, for K taps and padding (low, high),

        length of y = (length of x - 1) * stride - low - high + dilation * (K - 1) + output_padding + 1

    All tensors must have the same float type. For 16-bit floats the computation is in float32, and only the result is
    rounded. Raises ValueError if the shapes do not fit together, and TypeError if the types differ.

    Example:
        >>> x = mn.ones({shape})
        >>> F.{name}(x, weight=x, stride=2).shape[-1]  # (4 - 1) * 2 + (4 - 1) + 1
        10

    Its ONNX operator is ConvTranspose; Zeiler et al. 2010.
    """
    name = f"conv_transpose{rank}d"
    _check_tensors(name, rank, x, weight, bias, groups)
    if weight.shape[0] != x.shape[1]:
        raise ValueError(
            f"{name}: weight has {weight.shape[0]} input channels, x has {x.shape[1]}; expected weight.shape[0] == "
            f"x.shape[1]; x.shape is {x.shape}, weight.shape is {weight.shape}, which is (C, O / groups, *kernel)"
        )
    if x.shape[1] % groups:
        raise ValueError(f"{name}: groups={groups} must divide the input channels; x.shape is {x.shape}")
    _check_bias(name, None if bias is None else bias.shape, weight.shape[1] * groups)
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
    check_room(name, (x.shape[0], weight.shape[1] * groups, *size))
    return ConvolutionTranspose.apply(
        x, weight, bias, size=tuple(size), stride=strides, padding=paddings, dilation=dilations, groups=groups
    )


conv_transpose1d, conv_transpose2d, conv_transpose3d = _transpose


def _check_tensors(name: str, rank: int, x: Any, weight: Any, bias: Any, groups: Any) -> None:
    check_rank(name, "x", x, rank)
    check_rank(name, "weight", weight, rank)
    floats(name, x=x, weight=weight, bias=bias)
    if type(groups) is not int or groups < 1:
        raise ValueError(f"{name}: groups is {groups!r}; expected an int >= 1")
    if not weight.array.size:
        raise ValueError(f"{name}: weight.shape is {weight.shape}; expected at least 1 along every axis")
    if x.array.shape[1] == 0:
        raise ValueError(f"{name}: x has 0 channels; expected at least 1; x.shape is {x.shape}")


def _check_bias(name: str, shape: Ints | None, outputs: int) -> None:
    if shape is not None and shape != (outputs,):
        raise ValueError(f"{name}: bias has shape {shape}; expected ({outputs},), one number for each output channel")


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
