"""Conv and ConvTranspose. 11: clearer words for the same attributes. 22: bfloat16.

Paddings are always written as numbers, low and high; `auto_pad` is never used.
"""

from __future__ import annotations

from collections.abc import Sequence

from minorm.onnx.graph import Graph, Value
from minorm.onnx.registry import writes
from minorm.ops.convolution import Convolution, ConvolutionTranspose

Pairs = Sequence[tuple[int, int]]


def pads(padding: Pairs) -> list[int]:
    """(low, high) pairs in ONNX's order: all lows, then all highs."""
    return [int(low) for low, _ in padding] + [int(high) for _, high in padding]


@writes(Convolution, "Conv", since=(1, 11, 22))
def write_conv(
    g: Graph,
    x: Value,
    w: Value,
    b: Value | None,
    stride: tuple[int, ...],
    padding: Pairs,
    dilation: tuple[int, ...],
    groups: int,
) -> Value:
    return g.add(
        "Conv",
        x,
        w,
        b,
        shape=g.result.shape,
        kernel_shape=[int(n) for n in w.known_shape[2:]],
        strides=list(stride),
        pads=pads(padding),
        dilations=list(dilation),
        group=groups,
    )


@writes(ConvolutionTranspose, "ConvTranspose", since=(1, 11, 22))
def write_conv_transpose(
    g: Graph,
    x: Value,
    w: Value,
    b: Value | None,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: Pairs,
    dilation: tuple[int, ...],
    groups: int,
) -> Value:
    kernel = [int(n) for n in w.known_shape[2:]]
    extra = [
        m - ((n - 1) * s - low - high + d * (k - 1) + 1)
        for m, n, k, s, (low, high), d in zip(size, x.known_shape[2:], kernel, stride, padding, dilation, strict=True)
    ]
    return g.add(
        "ConvTranspose",
        x,
        w,
        b,
        shape=g.result.shape,
        kernel_shape=kernel,
        strides=list(stride),
        pads=pads(padding),
        dilations=list(dilation),
        output_padding=[int(n) for n in extra] if any(n != 0 for n in extra) else None,
        group=groups,
    )
