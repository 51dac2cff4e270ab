"""Read and write GridSample and AffineGrid.

Version 20 of GridSample adds volumes, and renames "bilinear" and "bicubic" to "linear" and "cubic".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minorm.functional import sampling as F
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.reading import Node, integers
from minorm.onnx.graph.registry import reads, writes
from minorm.onnx.graph.sizes import Length
from minorm.tensor.tensor import Tensor

SHORT = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
LONG = {short: long for long, short in SHORT.items()}
TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}


@reads("GridSample", since=16)
def read_grid_sample(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    mode = LONG.get(node["mode"], node["mode"])
    padding_mode, align_corners = node["padding_mode"], bool(node["align_corners"])

    def sample(x: Tensor, grid: Tensor) -> Tensor:
        if grid.ndim == x.ndim > 2:
            result = (*x.shape[:2], *grid.shape[1:-1])
            taps = TAPS.get(mode, 1) ** (x.ndim - 2)
            node.fits((2, *result), x.dtype)
            node.fits((4 * TAPS.get(mode, 1), *grid.shape), x.dtype)
            node.check_work(*result, taps, 8)
        return F.grid_sample(x, grid, mode, padding_mode, align_corners)

    return sample


@writes(F.grid_sample, "GridSample", since=16)
def write_grid_sample_16(
    g: Graph, input: Value, grid: Value, mode: str, padding_mode: str, align_corners: bool
) -> Value:
    if input.ndim != 4:
        raise RuleNotApplicable("GridSample takes x of a rank other than 4 from opset 20 on")
    return _write(g, input, grid, mode, padding_mode, align_corners)


@writes(F.grid_sample, "GridSample", since=20)
def write_grid_sample_20(
    g: Graph, input: Value, grid: Value, mode: str, padding_mode: str, align_corners: bool
) -> Value:
    return _write(g, input, grid, SHORT[mode], padding_mode, align_corners)


def _write(g: Graph, x: Value, grid: Value, mode: str, padding_mode: str, align_corners: bool) -> Value:
    shape = (*x.known_shape[:2], *grid.known_shape[1:-1])
    return g.add(
        "GridSample", x, grid, shape=shape, mode=mode, padding_mode=padding_mode, align_corners=int(align_corners)
    )


@reads("AffineGrid", since=20, fixed=(1,))
def read_affine_grid(node: Node) -> Callable[[Tensor, Tensor], Tensor]:
    align_corners = bool(node["align_corners"])

    def grid(theta: Tensor, size: Tensor) -> Tensor:
        lengths = integers(size, "size")
        if any(n < 0 for n in lengths):
            raise ValueError(f"size is {lengths}; expected lengths of at least 0")
        node.fits((len(lengths), *lengths[:1], *lengths[2:]), np.float64)
        return F.affine_grid(theta, lengths, align_corners)

    return grid


@writes(F.affine_grid, "AffineGrid", since=20)
def write_affine_grid(g: Graph, theta: Value, size: Sequence[Length], align_corners: bool) -> Value:
    return g.add("AffineGrid", theta, g.vector(tuple(size)), shape=g.result.shape, align_corners=int(align_corners))
