"""Read Col2Im, which adds up windows to an image, and CenterCropPad, which cuts or pads around the middle."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from minorm.functional.scatter import scatter
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import reads
from minorm.ops.operands import axes_of
from minorm.tensor.combining import pad
from minorm.tensor.tensor import Tensor


@reads("Col2Im", since=18, fixed=(1, 2))
def read_col2im(node: Node) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Add up windows of shape (N, C * taps, count) at their positions in an image of shape (N, C, *image_shape)."""

    def fold(x: Tensor, image_shape: Tensor, block_shape: Tensor) -> Tensor:
        image, block = integers(image_shape, "image_shape"), integers(block_shape, "block_shape")
        rank = len(image)
        strides, dilations = node["strides"] or [1] * rank, node["dilations"] or [1] * rank
        pads = node["pads"] or [0] * (2 * rank)
        if not rank or {len(block), len(strides), len(dilations), len(pads) // 2} != {rank} or len(pads) % 2:
            raise ValueError(
                f"image_shape is {image}, block_shape {block}, strides {strides}, dilations {dilations}, pads {pads}; "
                "expected one number per axis, and in pads two numbers per axis"
            )
        if min(*image, *block) < 1:
            raise ValueError(f"image_shape is {image}, block_shape {block}; expected lengths of at least 1")
        padded = [n + low + high for n, low, high in zip(image, pads[:rank], pads[rank:], strict=True)]
        spans = zip(padded, block, strides, dilations, strict=True)
        counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in spans]
        taps, columns = math.prod(block), math.prod(max(0, n) for n in counts)
        if x.ndim != 3 or x.shape[1] % taps or x.shape[2] != columns:
            raise ValueError(f"x has shape {x.shape}; expected (N, C * {taps}, {columns})")
        n, channels = x.shape[0], x.shape[1] // taps
        node.fits((n, channels, *padded), x.dtype)
        node.fits(x.shape, np.int64)
        where = np.zeros((1, 1), np.int64)  # (taps, windows) in the padded image
        for length, k, count, s, d in zip(padded, block, counts, strides, dilations, strict=True):
            along = np.arange(k)[:, None] * d + np.arange(count) * s
            where = where[:, None, :, None] * length + along[:, None]
            where = where.reshape(where.shape[0] * k, -1)
        places = Tensor(np.broadcast_to(where.reshape(-1), (n, channels, taps * columns)))
        zeros = x.new_zeros((n, channels, math.prod(padded)))
        summed = scatter(zeros, 2, places, x.reshape(n, channels, taps * columns), "add")
        inside = (slice(low, low + length) for low, length in zip(pads[:rank], image, strict=True))
        return summed.reshape(n, channels, *padded)[(slice(None), slice(None), *inside)]

    return fold


@reads("CenterCropPad", since=18, fixed=(1,))
def read_center_crop_pad(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    """Cut each axis at both ends, or add zeros at both ends.

    If the number of elements to cut or add is odd, the end of the axis gets one element more than the beginning.
    """

    def fit(x: Tensor, shape: Tensor) -> Tensor:
        axes = range(x.ndim) if node["axes"] is None else axes_of("CenterCropPad", tuple(node["axes"]), x)
        wanted = integers(shape, "shape")
        if len(wanted) != len(axes) or min(wanted, default=0) < 0:
            raise ValueError(f"shape is {wanted}; expected {len(axes)} lengths of at least 0")
        lengths = [*x.shape]
        index, around = [slice(None)] * x.ndim, [0, 0] * x.ndim
        for axis, n in zip(axes, wanted, strict=True):
            before = abs(n - lengths[axis]) // 2
            if n < lengths[axis]:
                index[axis] = slice(before, before + n)
            else:
                last = 2 * (x.ndim - 1 - axis)  # `pad` counts axes from the last
                around[last : last + 2] = [before, n - lengths[axis] - before]
            lengths[axis] = n
        node.fits(lengths, x.dtype)
        return pad(x[tuple(index)], around) if any(around) else x[tuple(index)]

    return fit
