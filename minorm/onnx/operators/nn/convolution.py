"""Read and write Conv and ConvTranspose.

Version 11 only described the attributes more clearly; version 22 added bfloat16. Paddings are always written as low and
high numbers, never as `auto_pad`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import minorm.functional as F
from minorm.graph.grad_mode import is_grad_enabled
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import reads, writes
from minorm.onnx.operators.shape.padding import Pairs, ahead
from minorm.ops.convolution import Convolution, ConvolutionTranspose
from minorm.tensor.tensor import Tensor


def pads(pairs: Pairs) -> list[int]:
    """Flatten (low, high) pairs into ONNX's order: all lows, then all highs."""
    return [int(low) for low, _ in pairs] + [int(high) for _, high in pairs]


@writes(Convolution, "Conv", since=1)
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
    x, padding = ahead(g, x, padding, 0.0)
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


CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def windows(node: Node, rank: int, kernel: Sequence[int]) -> tuple[Any, Any]:
    """Return a stride and a dilation for each axis; check that kernel_shape is the kernel shape of the weight."""
    for name in ("kernel_shape", "strides", "dilations"):
        if node.get(name) is not None and len(node[name]) != rank:
            raise ValueError(f"{name} is {node[name]}; expected one number for each of {rank} spatial axes")
    if node["kernel_shape"] is not None and tuple(node["kernel_shape"]) != tuple(kernel):
        raise ValueError(
            f"kernel_shape is {node['kernel_shape']}, the weight has kernel shape {tuple(kernel)}; expected equal "
            "shapes"
        )
    return tuple(node["strides"] or (1,) * rank), tuple(node.get("dilations") or (1,) * rank)


def padding(node: Node, size: Sequence[int], spans: Sequence[int], strides: Sequence[int]) -> Pairs:
    """Return the padding (low, high) of each axis from `pads` or `auto_pad`; `spans` are the dilated kernel lengths."""
    rank, kind = len(size), node["auto_pad"]
    if kind in ("NOTSET", "", None):
        pads = node["pads"] or [0] * (2 * rank)
        if len(pads) != 2 * rank:
            raise ValueError(f"pads is {pads}; expected {rank} low and {rank} high numbers")
        return list(zip(pads[:rank], pads[rank:], strict=True))
    if kind == "VALID":
        return [(0, 0)] * rank
    if kind not in ("SAME_UPPER", "SAME_LOWER"):
        raise ValueError(f"auto_pad is {kind!r}; expected NOTSET, SAME_UPPER, SAME_LOWER or VALID")
    pairs = []
    for n, span, stride in zip(size, spans, strides, strict=True):
        total = max(0, (-(-n // stride) - 1) * stride + span - n)
        small, large = total // 2, total - total // 2
        pairs.append((small, large) if kind == "SAME_UPPER" else (large, small))
    return pairs


def _ask(node: Node, x: Tensor, w: Tensor, channels: int, size: Sequence[int], places: Sequence[int]) -> None:
    """Raise an error if the larger of image and result takes too much memory, or if all products take too much time.

    The time is the size of the weight times the number of places at which the kernel is applied. A convolution applies
    its kernel (with all taps, and all channels of a group) at every pixel of the result. A transposed convolution
    applies its kernel at every pixel of the image. Stride and dilation reduce the number of places, and groups make the
    weight smaller. Rows shorter than ROW pixels take as long as rows of ROW pixels. A weight that is applied at fewer
    than ROW pixels takes as long as at ROW pixels.
    """
    rows = x.shape[0] * channels * math.prod(size[:-1])
    node.fits((rows, max(size[-1], ROW)), x.dtype)
    node.check_work(w.numel(), max(x.shape[0] * math.prod(places), ROW))


def _ask_parts(node: Node, strides: Sequence[int], size: Sequence[int]) -> None:
    """Raise an error if planning takes too much time.

    A transposed convolution computes its result in parts; pixels that are one stride apart are in the same part.
    """
    node.check_work(PART, math.prod(min(s, max(1, n)) for s, n in zip(strides, size, strict=True)) - 1)


ROW = 64
PART = 1_000_000  # each part but the first takes as long as this many multiplications


@reads("Conv", since=1)
def read_conv(node: Node) -> Callable[..., Tensor]:
    form = read_form(node)

    def conv(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        return CONV[x.ndim - 2](x, w, b, *form(x, w))

    return conv


def read_form(node: Node) -> Callable[[Tensor, Tensor], tuple[Any, ...]]:
    """Return a function of x and w that checks the limits, and returns stride, padding, dilation and groups."""

    def form(x: Tensor, w: Tensor) -> tuple[Any, ...]:
        rank, kernel = x.ndim - 2, w.shape[2:]
        if rank not in CONV:
            raise ValueError(f"x has shape {x.shape}; minorm convolves over 1, 2 or 3 spatial axes")
        strides, dilations = windows(node, rank, kernel)
        spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
        pads = tuple(padding(node, x.shape[2:], spans, strides))
        padded = [n + low + high for n, (low, high) in zip(x.shape[2:], pads, strict=True)]
        places = [max(0, (n - span) // s + 1) for n, span, s in zip(padded, spans, strides, strict=True)]
        _ask(node, x, w, max(x.shape[1], w.shape[0]), padded, places)
        if x.requires_grad and is_grad_enabled():
            _ask_parts(node, strides, padded)
        return strides, pads, dilations, node["group"]

    return form


@writes(ConvolutionTranspose, "ConvTranspose", since=1)
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


TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


@reads("ConvTranspose", since=1)
def read_conv_transpose(node: Node) -> Callable[..., Tensor]:
    def conv_transpose(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        rank = x.ndim - 2
        if rank not in TRANSPOSE:
            raise ValueError(f"x has shape {x.shape}; minorm convolves over 1, 2 or 3 spatial axes")
        strides, dilations = windows(node, rank, w.shape[2:])
        extra = list(node["output_padding"] or [0] * rank)
        spans = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
        full = [(n - 1) * s + span + more for n, s, span, more in zip(x.shape[2:], strides, spans, extra, strict=True)]
        pads = _transposed_padding(node, x.shape[2:], full, strides, extra)
        _ask(node, x, w, max(x.shape[1], w.shape[1] * node["group"]), full, x.shape[2:])
        _ask_parts(node, strides, full)
        return TRANSPOSE[rank](x, w, b, strides, pads, tuple(extra), node["group"], dilations)

    return conv_transpose


def _transposed_padding(
    node: Node, size: Sequence[int], full: Sequence[int], strides: Sequence[int], extra: list[int]
) -> tuple[tuple[int, int], ...]:
    """Return pairs (low, high): how many elements to cut from the two ends of each axis of the result.

    full     the lengths of the result before elements are cut
    extra    receives the number of elements to add, for each axis that must become longer
    """
    wanted, kind = node["output_shape"], node["auto_pad"]
    if not wanted and kind not in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(padding(node, size, [1] * len(size), strides))
    if not wanted:
        wanted = [n * s for n, s in zip(size, strides, strict=True)]
    wanted = wanted[-len(size) :]  # some writers put N and C before them
    pairs = []
    for axis, (n, m) in enumerate(zip(full, wanted, strict=True)):
        total = n - m
        if total < 0:
            extra[axis], total = extra[axis] - total, 0
        small, large = total // 2, total - total // 2
        pairs.append((small, large) if kind == "SAME_UPPER" else (large, small))
    return tuple(pairs)
