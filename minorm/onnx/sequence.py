"""Sequences: lists of Tensors between nodes, which PyTorch's exporter leaves behind for chunk, split and stack.

Inside a graph alone: inputs and outputs of the graph are Tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minorm.joining import cat, stack
from minorm.onnx.reading import Node
from minorm.onnx.registry import EVERY, reads
from minorm.ops.operands import axis_of
from minorm.tensor import Tensor

Sequence = list[Tensor]


@reads("SplitToSequence", since=(11, 24), fixed=(1,))
def read_split(node: Node) -> Callable[..., Sequence]:
    """Without lengths, pieces of 1, without the axis if keepdims=0; one number: pieces so long, the last shorter."""

    def split(x: Tensor, lengths: Tensor | None = None) -> Sequence:
        axis = axis_of("SplitToSequence", node["axis"], x)
        if lengths is None:
            return list(x.split(1, axis) if node["keepdims"] else x.unbind(axis))
        return list(x.split(lengths.tolist(), axis))

    return split


@reads("SequenceConstruct", since=(11,))
def read_construct(node: Node) -> Callable[..., Sequence]:
    return lambda *parts: list(parts)


@reads("SequenceAt", since=(11,), fixed=(1,))
def read_at(node: Node) -> Callable[[Sequence, Tensor], Tensor]:
    return lambda parts, position: parts[int(position)]


@reads("SequenceLength", since=(11,), fixed=EVERY)
def read_length(node: Node) -> Callable[[Sequence], Tensor]:
    return lambda parts: Tensor(np.array(len(parts), np.int64))


@reads("ConcatFromSequence", since=(11,))
def read_concat(node: Node) -> Callable[[Sequence], Tensor]:
    join = stack if node["new_axis"] else cat

    def concat(parts: Sequence) -> Tensor:
        node.fits((sum(x.numel() for x in parts),), parts[0].dtype)
        return join(parts, node["axis"])

    return concat
