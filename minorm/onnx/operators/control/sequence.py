"""Operators on sequences, the lists of Tensors that PyTorch's exporter writes for chunk, split and stack.

Sequences exist only inside a graph: inputs and outputs of the graph are Tensors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minorm.onnx.graph.memory_budget import TURN
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import EVERY, reads
from minorm.ops.operands import axis_of
from minorm.tensor.combining import cat, stack
from minorm.tensor.tensor import Tensor

Sequence = list[Tensor]
MAX_PIECES = 1 << 16


@reads("SplitToSequence", since=11, fixed=(1,))
def read_split(node: Node) -> Callable[..., Sequence]:
    """Split a Tensor into pieces of the given lengths, of one length (the last piece may be shorter), or of length 1.

    If no length is given and keepdims is 0, the pieces lose the axis.
    """

    def split(x: Tensor, lengths: Tensor | None = None) -> Sequence:
        axis = axis_of("SplitToSequence", node["axis"], x)
        size = 1 if lengths is None else int(lengths.item()) if lengths.ndim == 0 else x.shape[axis]
        if x.shape[axis] > MAX_PIECES * max(1, size):
            raise ValueError(
                f"axis {axis} of {x.shape[axis]} elements gives too many pieces; expected at most {MAX_PIECES}"
            )
        if lengths is None:
            return list(x.split(1, axis) if node["keepdims"] else x.unbind(axis))
        given = integers(lengths, "split", MAX_PIECES)
        if lengths.ndim and min(given, default=0) < 0:
            raise ValueError(f"split is {given}; expected lengths of at least 0")
        return list(x.split(given if lengths.ndim else given[0], axis))

    return split


@reads("SequenceConstruct", since=11)
def read_construct(node: Node) -> Callable[..., Sequence]:
    return lambda *parts: list(parts)


@reads("SequenceEmpty", since=11)
def read_empty(node: Node) -> Callable[[], Sequence]:
    return list


@reads("SequenceInsert", since=11, fixed=(2,))
def read_insert(node: Node) -> Callable[..., Sequence]:
    """Insert a Tensor into a sequence before `position`; if no position is given, append it."""

    def insert(parts: Sequence, x: Tensor, position: Tensor | None = None) -> Sequence:
        place = len(parts) if position is None else _place(position, parts, end=True)
        if parts and parts[0].dtype != x.dtype:
            raise ValueError(f"the tensor is {x.dtype}; expected {parts[0].dtype}, the type of the sequence")
        if len(parts) >= MAX_PIECES:
            raise ValueError(f"the sequence has {len(parts)} pieces; expected at most {MAX_PIECES}")
        return [*parts[:place], x, *parts[place:]]

    return insert


@reads("SequenceErase", since=11, fixed=(1,))
def read_erase(node: Node) -> Callable[..., Sequence]:
    """Remove the piece at `position`; if no position is given, remove the last piece."""

    def erase(parts: Sequence, position: Tensor | None = None) -> Sequence:
        place = _place(position if position is not None else Tensor(np.array(-1)), parts)
        return [*parts[:place], *parts[place + 1 :]]

    return erase


@reads("SequenceAt", since=11, fixed=(1,))
def read_at(node: Node) -> Callable[[Sequence, Tensor], Tensor]:
    return lambda parts, position: parts[_place(position, parts)]


@reads("SequenceLength", since=11, fixed=EVERY)
def read_length(node: Node) -> Callable[[Sequence], Tensor]:
    return lambda parts: Tensor(np.array(len(parts), np.int64))


@reads("ConcatFromSequence", since=11)
def read_concat(node: Node) -> Callable[[Sequence], Tensor]:
    join = stack if node["new_axis"] else cat

    def concat(parts: Sequence) -> Tensor:
        if not parts:
            raise ValueError("the sequence is empty; expected at least one Tensor")
        node.fits((sum(x.numel() for x in parts),), parts[0].dtype)
        node.check_work(len(parts), TURN // 4)
        return join(parts, node["axis"])

    return concat


def _place(position: Tensor, parts: Sequence, end: bool = False) -> int:
    """Return a position counted from 0; the position after the last piece is allowed only if `end` is True."""
    place = int(position.item())
    if not -len(parts) <= place < len(parts) + end:
        raise ValueError(f"position is {place}; expected {-len(parts)} to {len(parts) - 1 + end}")
    return place + len(parts) if place < 0 else place
