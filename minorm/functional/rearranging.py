"""Rearranges elements: turns channels into pixels and back, and windows of an image into columns and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import constant_of
from minorm.functional.argument_texts import WINDOWS
from minorm.functional.arguments import floats
from minorm.functional.scatter import scatter
from minorm.functional.windows import ints
from minorm.graph import trace
from minorm.ops.operands import check_room
from minorm.support.argument_errors import not_a_tensor
from minorm.support.documented import documented
from minorm.tensor import combining
from minorm.tensor.tensor import Tensor

IntOrInts = int | tuple[int, ...]


@documented({}, input="(*, C * r^2, H, W)", upscale_factor="r, the factor by which height and width grow")
@trace.operation
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """y[..., c, h * r + i, w * r + j] = input[..., c * r^2 + i * r + j, h, w]. Each r^2 channels become r x r pixels.

    y is (*, C, H * r, W * r), where r is upscale_factor. Raises ValueError unless r^2 divides the number of channels.

    Example:
        >>> F.pixel_shuffle(mn.arange(4.0).reshape(4, 1, 1), upscale_factor=2)
        tensor([[[0., 1.],
                 [2., 3.]]])

    ONNX DepthToSpace (opset 13) in mode CRD does the same; Shi et al. 2016, arXiv:1609.05158.
    """
    _check("pixel_shuffle", input, 3)
    r, (channels, height, width) = upscale_factor, input.shape[-3:]
    if r < 1 or channels % (r * r):
        raise ValueError(
            f"pixel_shuffle: upscale_factor is {r}, input has shape {input.shape}; expected upscale_factor ** 2 to "
            f"divide the {channels} channels"
        )
    lead, k = input.shape[:-3], input.ndim - 3
    apart = input.reshape(*lead, channels // (r * r), r, r, height, width)
    ordered = apart.permute(*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return ordered.reshape(*lead, channels // (r * r), height * r, width * r)


@documented({}, input="(*, C, H * r, W * r)", downscale_factor="r, the factor by which height and width shrink")
@trace.operation
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """y[..., c * r^2 + i * r + j, h, w] = input[..., c, h * r + i, w * r + j]. Each r x r pixels become r^2 channels.

    y is (*, C * r^2, H, W), where r is downscale_factor. This is the inverse of `pixel_shuffle`. Raises ValueError
    unless r divides height and width.

    Example:
        >>> F.pixel_unshuffle(mn.arange(4.0).reshape(1, 2, 2), downscale_factor=2).reshape(-1)
        tensor([0., 1., 2., 3.])
    """
    _check("pixel_unshuffle", input, 3)
    r, (channels, height, width) = downscale_factor, input.shape[-3:]
    if r < 1 or height % r or width % r:
        raise ValueError(
            f"pixel_unshuffle: downscale_factor is {r}, input has shape {input.shape}; expected a divisor of height "
            "and width"
        )
    lead, k = input.shape[:-3], input.ndim - 3
    apart = input.reshape(*lead, channels, height // r, r, width // r, r)
    ordered = apart.permute(*range(k), k, k + 2, k + 4, k + 1, k + 3)
    return ordered.reshape(*lead, channels * r * r, height // r, width // r)


@documented({}, input="(N, C, *)", groups="the number of groups of channels; it must divide C")
@trace.operation
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """y[:, i * groups + g] = input[:, g * n + i] with n = C / groups: y takes one channel from each group in turn.

    y has the shape of input. Raises ValueError unless groups divides C.

    Example:
        >>> F.channel_shuffle(mn.arange(4.0).reshape(1, 4, 1), groups=2).reshape(-1)
        tensor([0., 2., 1., 3.])

    Zhang et al. 2018, arXiv:1707.01083.
    """
    _check("channel_shuffle", input, 3)
    count, channels = input.shape[:2]
    if groups < 1 or channels % groups:
        raise ValueError(f"channel_shuffle: groups is {groups}; expected a divisor of the {channels} channels")
    apart = input.reshape(count, groups, channels // groups, *input.shape[2:])
    return apart.transpose(1, 2).reshape(input.shape)


native_channel_shuffle = channel_shuffle


@documented(WINDOWS, input="(N, C, H, W), or one image (C, H, W); floats")
@trace.operation
def unfold(
    input: Tensor, kernel_size: IntOrInts, dilation: IntOrInts = 1, padding: IntOrInts = 0, stride: IntOrInts = 1
) -> Tensor:
    """y[n, (c, k, l), (i, j)] = input[n, c, i * stride + k * dilation - padding, ...]: each window of an image becomes
    a column.

    y is (N, C * kh * kw, L), where L is the number of windows. (c, k, l) is a position in a window, and (i, j) is a
    window. A convolution multiplies these columns by its weight. The padding is zeros.

    Example:
        >>> F.unfold(mn.arange(4.0).reshape(1, 2, 2), kernel_size=(1, 2))
        tensor([[0., 2.],
                [1., 3.]])
    """
    floats("unfold", input=input)
    if input.ndim not in (3, 4):
        raise ValueError(f"unfold: input has shape {input.shape}; expected (N, C, H, W) or (C, H, W)")
    if input.ndim == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    places, (high, wide), (top, left) = _windows("unfold", input.shape[2:], kernel_size, dilation, padding, stride)
    rows = combining.pad(input, (left, left, top, top)).reshape(*input.shape[:2], high * wide)
    count, columns = places.shape
    return rows[:, :, constant_of(places.reshape(-1), input.array)].reshape(
        input.shape[0], input.shape[1] * count, columns
    )


@documented(
    WINDOWS,
    input="(N, C * kh * kw, L), or (C * kh * kw, L) for one image; floats",
    output_size="the height and width of y, one int for both or two ints",
    padding="the rows and columns by which the windows reach beyond y at both ends, one int for both or two ints",
)
@trace.operation
def fold(
    input: Tensor,
    output_size: IntOrInts,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Tensor:
    """y[n, c, i * stride + k * dilation - padding, ...] += input[n, (c, k, l), (i, j)]: the sum of `unfold`'s windows.

    y is (N, C, *output_size). Raises ValueError if input's last axis does not have the number of windows.

    Example:
        >>> x = F.unfold(mn.ones(1, 1, 3), kernel_size=(1, 2))
        >>> F.fold(x, output_size=(1, 3), kernel_size=(1, 2))  # two windows meet in the middle
        tensor([[[1., 2., 1.]]])

    ONNX Col2Im (opset 18) does the same.
    """
    floats("fold", input=input)
    if input.ndim == 2:
        return fold(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    height, width = ints("fold", "output_size", output_size, 2)
    places, (high, wide), (top, left) = _windows("fold", (height, width), kernel_size, dilation, padding, stride)
    count, columns = places.shape
    if input.ndim != 3 or input.shape[1] % count or input.shape[2] != columns:
        raise ValueError(f"fold: input has shape {input.shape}; expected (N, C * {count}, {columns})")
    channels = input.shape[1] // count
    where = constant_of(places.reshape(-1), input.array)
    where = np.broadcast_to(where, (len(input), channels, count * columns))
    nothing = Tensor(np.zeros_like(input.array, shape=(len(input), channels, high * wide)))
    summed = scatter(nothing, 2, Tensor(where), input.reshape(len(input), channels, -1), "add")
    image = summed.reshape(len(input), channels, high, wide)
    return image[:, :, top : top + height, left : left + width]


def _windows(
    name: str, lengths: tuple[int, ...], kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Return (indices, lengths, padding). indices (taps, windows) gives the position of each window's elements in the
    flattened padded plane. The `lengths` that are returned are those of the padded plane.
    """
    kernel, steps = ints(name, "kernel_size", kernel_size, 2), ints(name, "stride", stride, 2)
    apart, around = ints(name, "dilation", dilation, 2), ints(name, "padding", padding, 2, least=0)
    padded = tuple(n + 2 * p for n, p in zip(lengths, around, strict=True))
    axes = []
    for n, k, s, d in zip(padded, kernel, steps, apart, strict=True):
        count = (n - d * (k - 1) - 1) // s + 1
        if count < 1:
            raise ValueError(
                f"{name}: windows of size {kernel} with dilation {apart} do not fit into the padded lengths {padded}"
            )
        check_room(name, (k, count))
        axes.append(np.arange(k)[:, None] * d + np.arange(count) * s)
    (high, wide), (rows, columns) = padded, axes
    places = rows[:, None, :, None] * wide + columns[None, :, None, :]
    return places.reshape(math.prod(kernel), -1), (high, wide), around


def _check(name: str, input: Any, least: int) -> None:
    if not isinstance(input, Tensor):
        raise not_a_tensor(name, "input", input)
    if input.ndim < least:
        raise ValueError(f"{name}: input has shape {input.shape}; expected at least {least} axes")
