"""Read and write MaxPool, AveragePool, LpPool and global pooling; write adaptive pooling as a pooling or as products.

MaxPool has indices from version 8 on, ceil_mode and dilations from 10 on, and takes integers from 12 on. AveragePool
has count_include_pad from 7 on, ceil_mode from 10 on, and dilations from 19 on. If the last window extends past the
end, padding is written instead of ceil_mode, because runtimes disagree about ceil_mode. The amount of padding does not
change a maximum, or an average that does not count padding. Before an average that counts padding, a Pad adds zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

import minorm.functional as F
from minorm.devices import dtypes
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import Rule, lowers, reads, writes
from minorm.onnx.graph.sizes import Shape, Size
from minorm.onnx.operators.nn.convolution import padding as paddings
from minorm.onnx.operators.nn.convolution import pads, windows
from minorm.onnx.operators.shape.padding import Pairs, ahead, pad
from minorm.ops.pooling import AdaptiveAvgPool, AvgPool, MaxPool, output_shape, reached
from minorm.ops.reduction import CumSum
from minorm.ops.stepwise import Quotient
from minorm.tensor.combining import where
from minorm.tensor.tensor import Tensor

Ints = Sequence[int]


def covering(lengths: Shape, result: Shape, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Pairs:
    """Return the padding with which ceil_mode=0 has the same windows as ceil_mode=1.

    An axis of n elements is padded so that its last window ends exactly at the end. If n is not known, we add `s - 1`
    elements of padding, which is enough for any n. The padding is at most `span - 1`, so that each window still starts
    inside the axis.
    """
    found = []
    for n, m, k, s, (low, high), d in zip(lengths, result, kernel, stride, padding, dilation, strict=True):
        span = d * (k - 1) + 1
        if isinstance(n, Size) or isinstance(m, Size):
            found.append((low, max(high, min(high + s - 1, span - 1))))
        else:
            found.append((low, max(high, (m - 1) * s + span - n - low)))
    return found


@writes(MaxPool, "MaxPool", since=1)
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
    if not return_indices and dtypes.is_float(x.dtype):
        x, padding = ahead(g, x, padding, -math.inf)
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
    # ONNX counts positions from the start of the tensor, minorm from the start of the plane.
    plane = g.constant(math.prod(int(n) for n in x.known_shape[2:]), np.int64, "plane")
    before = g.add("Mul", g.add("Div", place, plane), plane)
    return y, g.add("Sub", place, before)


@writes(AvgPool, "AveragePool", since=7)
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
    if divisor is not None:
        raise RuleNotApplicable("AveragePool has no other divisor than the number of elements in the window")
    padded = any(n != 0 for pair in padding for n in pair)
    around = (
        covering(x.known_shape[2:], g.result.shape[2:], kernel, stride, padding, dilation) if ceil_mode else padding
    )
    if list(around) != list(padding):
        if any(d != 1 for d in dilation):
            raise RuleNotApplicable("AveragePool cannot have a dilation and a window that extends past the end")
        if padded and count_include_pad:
            x = pad(g, x, [(0, 0), (0, 0), *padding], 0.0)
            around = [(0, all_of_it - high) for (_, all_of_it), (_, high) in zip(around, padding, strict=True)]
        padding, count_include_pad = around, False
    return g.add(
        "AveragePool",
        x,
        shape=g.result.shape,
        kernel_shape=[int(n) for n in kernel],
        strides=[int(n) for n in stride],
        pads=pads(padding),
        dilations=list(dilation) if any(d != 1 for d in dilation) else None,
        count_include_pad=int(count_include_pad) if any(n != 0 for pair in padding for n in pair) else None,
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
    """Write the sum over each window, by a depthwise convolution with ones, divided by the elements that count."""
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
    """Return for each of m windows on an axis of n elements how many of its taps count.

    `counted` says how many elements of padding count before the axis and after the axis.
    """
    taps = np.arange(m)[:, None] * s + np.arange(k) * d - low
    return ((taps >= -counted[0]) & (taps < n + counted[1])).sum(1)


# Adaptive pooling


def _write_global(g: Graph, x: Value, output_size: Any) -> Value:
    sizes = output_size if isinstance(output_size, tuple) else (output_size,) * (x.ndim - 2)
    if any(n is None or n != 1 for n in sizes):
        raise RuleNotApplicable("GlobalAveragePool gives only one element per axis")
    return g.add("GlobalAveragePool", x, shape=g.result.shape)


_global: Rule = _write_global
for _function in (F.adaptive_avg_pool1d, F.adaptive_avg_pool2d):
    writes(_function, "GlobalAveragePool", since=1)(_global)


@lowers(AdaptiveAvgPool)
def lower_adaptive(g: Graph, x: Value, output: Ints) -> Value:
    """Write a product with the matrix of averages along each axis: A_0 x, then x A_1^T."""
    if x.ndim > 4:
        raise RuleNotApplicable("adaptive pooling of three axes has no ONNX form")
    sizes = [int(n) for n in x.known_shape[2:]]
    matrices = [_averages(n, o).astype(x.dtype) for n, o in zip(sizes, output, strict=True)]
    y = g.add(
        "MatMul", x, g.constant(matrices[-1].T.copy(), name="averages"), shape=(*x.known_shape[:-1], int(output[-1]))
    )
    if x.ndim == 3:
        return y
    return g.add("MatMul", g.constant(matrices[0], name="averages"), y, shape=g.result.shape)


def _averages(n: int, o: int) -> Any:
    """Make the matrix whose row i averages the elements floor(i * n / o) to ceil((i + 1) * n / o) - 1."""
    matrix = np.zeros((o, n))
    for i in range(o):
        start, end = i * n // o, -(-(i + 1) * n // o)
        matrix[i, start:end] = 1 / (end - start)
    return matrix


# Reading: the padding may be as large as the whole kernel


STEPS = 8  # an element of a window takes as long as this many multiplications
COMPILED = (dtypes.float32, dtypes.float64)
FEW = 8192  # a tap of any other type takes at least as long as this many elements


def _options(node: Node, x: Tensor) -> dict[str, Any]:
    """Return the arguments for the Functions of minorm.ops.pooling, checked against the shape of x."""
    rank, size, kernel = x.ndim - 2, x.shape[2:], tuple(node["kernel_shape"])
    if rank not in (1, 2, 3):
        raise ValueError(f"x has shape {x.shape}; minorm pools over 1, 2 or 3 spatial axes")
    strides, dilations = windows(node, rank, kernel)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    pairs = tuple(paddings(node, size, spans, strides))
    ceil_mode = bool(node.get("ceil_mode"))
    out = output_shape(size, kernel, strides, pairs, dilations, ceil_mode)
    if any(max(pair) >= span for span, pair in zip(spans, pairs, strict=True)) or min(out) < 1:
        raise ValueError(
            f"the window spans {spans}, the padding is {pairs}, x has shape {x.shape}, ceil_mode is {int(ceil_mode)}; "
            "expected windows that are larger than the padding and that fit into the padded input; with ceil_mode=1, "
            "windows need only begin in the padded input"
        )
    node.fits((*x.shape[:2], *(n + low + high for n, (low, high) in zip(size, pairs, strict=True))), x.dtype)
    found, least = math.prod(x.shape[:2]) * math.prod(out), 1 if x.dtype in COMPILED else FEW
    node.check_work(STEPS, max(found, least), *reached(size, kernel, pairs, dilations))
    return {"kernel": kernel, "stride": strides, "padding": pairs, "dilation": dilations, "ceil_mode": ceil_mode}


@reads("MaxPool", since=1)  # 8: indices. 10: ceil_mode, dilations. 12: integers
def read_max_pool(node: Node) -> Callable[[Tensor], Any]:
    indices = node.wants(1)

    def pool(x: Tensor) -> Any:
        result = MaxPool.apply(x, **_options(node, x), return_indices=indices)
        return (result[0], _from_the_start(result[1].detach(), x.shape, node["storage_order"])) if indices else result

    return pool


def _from_the_start(places: Tensor, shape: tuple[int, ...], by_columns: int) -> Tensor:
    """Convert indices within each plane to indices in the whole tensor, which may count a plane column by column."""
    size, plane = shape[2:], math.prod(shape[2:])
    channels = np.arange(shape[1], dtype=np.int64).reshape(-1, *(1,) * len(size)) * plane
    ones = places[(slice(None), *(slice(0, 1),) * (places.ndim - 1))] * 0 + 1
    images = CumSum.apply(ones, axis=0, exclusive=True, reverse=False)  # 0, 1, 2 ... for any number of images
    if by_columns:
        rest, places = places, Tensor(np.zeros((), np.int64)).to(places.device)
        for i in reversed(range(len(size))):  # the last axis varies fastest in `rest`, the first one in the result
            above = Quotient.apply(rest, Tensor(np.asarray(size[i], np.int64)).to(rest.device))
            places = places + (rest - above * size[i]) * math.prod(size[:i])
            rest = above
    return places + images * (shape[1] * plane) + Tensor(channels).to(places.device)


@reads("AveragePool", since=1)  # 7: count_include_pad. 10: ceil_mode. 19: dilations
def read_average_pool(node: Node) -> Callable[[Tensor], Tensor]:
    counted = bool(node.get("count_include_pad"))
    return lambda x: AvgPool.apply(x, **_options(node, x), count_include_pad=counted, divisor=None)


@reads("LpPool", since=1)  # 1: p is a float. 18: ceil_mode, dilations
def read_lp_pool(node: Node) -> Callable[[Tensor], Tensor]:
    p = _power(node)

    def total(x: Tensor) -> Tensor:
        return AvgPool.apply(x, **_options(node, x), count_include_pad=False, divisor=1)

    return lambda x: _norm(x, p, total)


@reads("GlobalLpPool", since=1)
def read_global_lp_pool(node: Node) -> Callable[[Tensor], Tensor]:
    p = _power(node)
    return lambda x: _norm(x, p, lambda powers: powers.sum(_spatial(x), True))


def _power(node: Node) -> float:
    if not 0 < node["p"] < math.inf:
        raise ValueError(f"p is {node['p']}; expected a number above 0")
    return float(node["p"])


def _norm(x: Tensor, p: float, total: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute (total of |x|^p)^(1/p); where the result is 0, the gradient is 0."""
    wide = x.to(dtypes.compute_type(x.dtype)).abs()
    if p == 1:
        return total(wide).to(x.dtype)
    powers = total(wide * wide if p == 2 else wide**p)
    positive = powers > 0
    safe = where(positive, powers, 1.0)
    return where(positive, safe.sqrt() if p == 2 else safe ** (1 / p), 0.0).to(x.dtype)


# Global pooling

_MEANS = {3: F.adaptive_avg_pool1d, 4: F.adaptive_avg_pool2d}


@reads("GlobalAveragePool", since=1)
def read_global_average_pool(node: Node) -> Callable[[Tensor], Tensor]:
    def pool(x: Tensor) -> Tensor:
        axes = _spatial(x)
        return _MEANS[x.ndim](x, 1) if x.ndim in _MEANS and all(x.shape[2:]) else x.mean(axes, True)

    return pool


@reads("GlobalMaxPool", since=1)
def read_global_max_pool(node: Node) -> Callable[[Tensor], Tensor]:
    return lambda x: x.amax(_spatial(x), True)


def _spatial(x: Tensor) -> tuple[int, ...]:
    if x.ndim < 3:
        raise ValueError(f"x has shape {x.shape}; expected (N, C, *spatial)")
    return tuple(range(2, x.ndim))
