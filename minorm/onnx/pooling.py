"""MaxPool, AveragePool, GlobalAveragePool; adaptive pooling where it is one of these, else two matrix products.

What each version added: MaxPool 8 indices, 10 ceil_mode and dilations, 12 integers; AveragePool 7 count_include_pad,
10 ceil_mode, 19 dilations. A last window that hangs over the end is written as padding, because runtimes disagree
about ceil_mode: the maximum does not see padding, and an average is multiplied by what its window should count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

import minorm.functional as F
from minorm import dtypes
from minorm.onnx.convolution import Pairs, pads
from minorm.onnx.errors import Decline
from minorm.onnx.graph import Graph, Value
from minorm.onnx.registry import Rule, lowers, writes
from minorm.onnx.shape import pad
from minorm.onnx.sizes import Shape, Size
from minorm.ops.pooling import AdaptiveAvgPool, AvgPool, MaxPool

Ints = Sequence[int]


def covering(lengths: Shape, result: Shape, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Pairs:
    """The padding that makes the last window of each axis end exactly at the end."""
    found = []
    for n, m, k, s, (low, high), d in zip(lengths, result, kernel, stride, padding, dilation, strict=True):
        if isinstance(n, Size) or isinstance(m, Size):
            raise Decline("ceil_mode on an axis of free length")
        found.append((low, max(high, (m - 1) * s + d * (k - 1) + 1 - n - low)))
    return found


@writes(MaxPool, "MaxPool", since=(1, 8, 10, 11, 12, 22))
def write_max_pool(
    g: Graph,
    x: Value,
    kernel: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    if ceil_mode:
        padding = covering(x.known_shape[2:], g.result.shape[2:], kernel, stride, padding, dilation)
    attributes: dict[str, Any] = {
        "kernel_shape": list(kernel),
        "strides": list(stride),
        "pads": pads(padding),
        "dilations": list(dilation) if any(d != 1 for d in dilation) else None,
    }
    shape = g.result.shape
    if not return_indices:
        return g.add("MaxPool", x, shape=shape, **attributes)
    y, place = g.add("MaxPool", x, outputs=2, shape=(shape, shape), dtype=(x.dtype, dtypes.int64), **attributes)
    # ONNX counts places from the start of the tensor, minorm from the start of the plane.
    plane = g.constant(math.prod(int(n) for n in x.known_shape[2:]), np.int64, "plane")
    before = g.add("Mul", g.add("Div", place, plane), plane)
    return y, g.add("Sub", place, before)


@writes(AvgPool, "AveragePool", since=(7, 10, 11, 19, 22))
def write_avg_pool(
    g: Graph,
    x: Value,
    kernel: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Value:
    if ceil_mode and covering(x.known_shape[2:], g.result.shape[2:], kernel, stride, padding, dilation) != list(
        padding
    ):
        raise Decline("AveragePool with a window that hangs over the end")
    if divisor is not None:
        raise Decline("AveragePool divides by the number of elements only")
    padded = any(n != 0 for pair in padding for n in pair)
    return g.add(
        "AveragePool",
        x,
        shape=g.result.shape,
        kernel_shape=[int(n) for n in kernel],
        strides=[int(n) for n in stride],
        pads=pads(padding),
        dilations=list(dilation) if any(d != 1 for d in dilation) else None,
        count_include_pad=int(count_include_pad) if padded else None,
    )


@lowers(AvgPool)
def lower_avg_pool(
    g: Graph,
    x: Value,
    kernel: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Value:
    """The sum over each window, by a depthwise convolution with ones, divided by what the window counts."""
    lengths = [int(n) for n in x.known_shape[2:]]
    around = covering(tuple(lengths), g.result.shape[2:], kernel, stride, padding, dilation)
    channels = int(x.known_shape[1])
    ones = g.constant(np.ones((channels, 1, *kernel)), x.dtype, "ones")
    shape = g.result.shape
    wide = pad(g, x, [(0, 0), (0, 0), *around], 0.0)
    total = g.add(
        "Conv",
        wide,
        ones,
        shape=shape,
        kernel_shape=list(kernel),
        strides=list(stride),
        dilations=list(dilation),
        group=channels,
    )
    if divisor is not None:
        return g.add("Div", total, g.scalar(divisor, x))
    counts = [
        _counts(n, int(m), k, s, pair if count_include_pad else (0, 0), pair[0], d)
        for n, m, k, s, pair, d in zip(lengths, shape[2:], kernel, stride, padding, dilation, strict=True)
    ]
    return g.add("Div", total, g.constant(reduce(np.multiply.outer, counts), x.dtype, "counts"))


def _counts(n: int, m: int, k: int, s: int, counted: tuple[int, int], low: int, d: int) -> Any:
    """How many taps of each of m windows meet an axis of n with `counted` elements around it."""
    taps = np.arange(m)[:, None] * s + np.arange(k) * d - low
    return ((taps >= -counted[0]) & (taps < n + counted[1])).sum(1)


# Adaptive pooling


def _write_global(g: Graph, x: Value, output_size: Any) -> Value:
    sizes = output_size if isinstance(output_size, tuple) else (output_size,) * (x.ndim - 2)
    if any(n is None or n != 1 for n in sizes):
        raise Decline("GlobalAveragePool gives one element an axis")
    return g.add("GlobalAveragePool", x, shape=g.result.shape)


_global: Rule = _write_global
for _function in (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d):
    writes(_function, "GlobalAveragePool", since=(1, 22))(_global)


@lowers(AdaptiveAvgPool)
def lower_adaptive(g: Graph, x: Value, output: Ints) -> Value:
    """Along each axis a product with the matrix of averages: A_0 x, then x A_1^T."""
    if x.ndim > 4:
        raise Decline("adaptive pooling of three axes")
    sizes = [int(n) for n in x.known_shape[2:]]
    matrices = [_averages(n, o).astype(x.dtype) for n, o in zip(sizes, output, strict=True)]
    y = g.add(
        "MatMul", x, g.constant(matrices[-1].T.copy(), name="averages"), shape=(*x.known_shape[:-1], int(output[-1]))
    )
    if x.ndim == 3:
        return y
    return g.add("MatMul", g.constant(matrices[0], name="averages"), y, shape=g.result.shape)


def _averages(n: int, o: int) -> Any:
    """Row i averages from floor(i * n / o) to before ceil((i + 1) * n / o)."""
    matrix = np.zeros((o, n))
    for i in range(o):
        start, end = i * n // o, -(-(i + 1) * n // o)
        matrix[i, start:end] = 1 / (end - start)
    return matrix
