"""Read and convert DepthToSpace and SpaceToDepth, which turn channels into blocks of pixels and back.

In mode DCR, the order of the channels is (block row, block column, channel). In mode CRD, the order is (channel, block
row, block column).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from minorm.onnx.graph.node_rewriter import Kind, NodeRewriter
from minorm.onnx.graph.reading import Node
from minorm.onnx.graph.registry import converts, reads
from minorm.onnx.operators.composing import checked_count, part, shape_of
from minorm.tensor.tensor import Tensor


def _by_channel(node: Node, since: int) -> bool:
    mode = node["mode"] if node.since >= since else "DCR"
    if mode not in ("DCR", "CRD"):
        raise ValueError(f"mode is {mode!r}; expected DCR or CRD")
    return bool(mode == "CRD")


@reads("DepthToSpace", since=1)  # 11: mode
def read_depth_to_space(node: Node) -> Callable[[Tensor], Tensor]:
    b, by_channel = node["blocksize"], _by_channel(node, 11)

    def spread(x: Tensor) -> Tensor:
        n, c, h, w = _image(x)
        if c % (b * b):
            raise ValueError(f"x has {c} channels; expected a multiple of blocksize^2 = {b * b}")
        if by_channel:
            blocks = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
        else:
            blocks = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
        return blocks.reshape(n, c // (b * b), h * b, w * b)

    return spread


@reads("SpaceToDepth", since=1)  # 28: mode
def read_space_to_depth(node: Node) -> Callable[[Tensor], Tensor]:
    b, by_channel = node["blocksize"], _by_channel(node, 28)

    def gather(x: Tensor) -> Tensor:
        n, c, h, w = _image(x)
        if h % b or w % b:
            raise ValueError(f"x is {h} by {w}; expected multiples of blocksize={b}")
        blocks = x.reshape(n, c, h // b, b, w // b, b).permute(
            *((0, 1, 3, 5, 2, 4) if by_channel else (0, 3, 5, 1, 2, 4))
        )
        return blocks.reshape(n, c * b * b, h // b, w // b)

    return gather


def _image(x: Tensor) -> tuple[int, ...]:
    if x.ndim != 4:
        raise ValueError(f"x has shape {x.shape}; expected (N, C, H, W)")
    return x.shape


# To other versions: mode CRD, which has the channels in another order, was added in versions 11 and 28


@converts("DepthToSpace", 11, 1)
def depth_to_space_1(d: NodeRewriter) -> None:
    """Reorder the channels from the order of CRD to the order of DCR, for any number of channels."""
    if d.take("mode", "DCR") != "CRD":
        return
    x, block = d.input(0), d.get("blocksize")
    kind, area = Kind(d.elem(x), (None,) * 5), block * block
    image = part(d, shape_of(d, x), 2, 4)
    split = d.emit("Concat", d.integers([0, -1, area], "split"), image, axis=0, kind=Kind(TensorProto.INT64, (5,)))
    turned = d.emit("Transpose", d.emit("Reshape", x, split, kind=kind), perm=[0, 2, 1, 3, 4], kind=kind)
    joined = d.emit("Concat", d.integers([0, -1], "joined"), image, axis=0, kind=Kind(TensorProto.INT64, (4,)))
    d.feed(0, d.emit("Reshape", turned, joined, kind=d.kind(x)))


@converts("SpaceToDepth", 28, 13)
def space_to_depth_13(d: NodeRewriter) -> None:
    if d.take("mode", "DCR") == "CRD":
        name, block = d.output(0), d.get("blocksize")
        depth = checked_count(d.length(d.input(0), 1) * block**2, "the number of channels")
        inner = d.divert(0)
        d.after("Gather", inner, d.integers(_order(depth, block), "order"), to=name, axis=1)


def _order(depth: int, block: int) -> list[int]:
    """Return the index in DCR order (i, j, c) of each channel in CRD order (c, i, j)."""
    return [int(n) for n in np.arange(depth).reshape(block**2, -1).T.reshape(-1)]
