"""GridSample and AffineGrid, written; test_operator_versions.py reads every version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.functional import sampling as F


def operators(proto: Any) -> list[str]:
    return [node.op_type for node in proto.graph.node]


@pytest.mark.parametrize("padding_mode", F.PADDINGS)
@pytest.mark.parametrize("mode", F.MODES)
def test_grid_sample(proved: Any, rng: np.random.Generator, mode: str, padding_mode: str, opset: int) -> None:
    x = mn.tensor(rng.normal(size=(2, 3, 5, 4)).astype(np.float32))
    grid = mn.tensor(rng.normal(size=(2, 2, 3, 2)).astype(np.float32))
    for align_corners in (False, True):

        def read(x: mn.Tensor, grid: mn.Tensor, align_corners: bool = align_corners) -> mn.Tensor:
            return F.grid_sample(x, grid, mode, padding_mode, align_corners)

        if opset < 16:
            with pytest.raises(mo.ExportError, match="it is GridSample of opset 16 on"):
                mo.export(read, (x, grid), None, opset_version=opset)
        else:
            assert operators(proved(read, x, grid, opset=opset)) == ["GridSample"]


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes(proved: Any, rng: np.random.Generator, mode: str, opset: int) -> None:
    x = mn.tensor(rng.normal(size=(2, 3, 3, 5, 4)).astype(np.float32))
    grid = mn.tensor(rng.normal(size=(2, 2, 3, 1, 3)).astype(np.float32))
    if 16 <= opset < 20:
        with pytest.raises(mo.ExportError, match="GridSample takes x of a rank other than 4 from opset 20 on"):
            mo.export(lambda x, g: F.grid_sample(x, g, mode), (x, grid), None, opset_version=opset)
    elif opset >= 20:
        proved(lambda x, g: F.grid_sample(x, g, mode), x, grid, opset=opset)


def test_affine_grid(proved: Any, rng: np.random.Generator, opset: int) -> None:
    """One node from 20 on, before it a product with the positions."""
    theta = mn.tensor(rng.normal(size=(2, 2, 3)).astype(np.float32))
    proto = proved(lambda t: F.affine_grid(t, (t.shape[0], 1, 4, 5)), theta, opset=opset)
    assert ("AffineGrid" in operators(proto)) == (opset >= 20)


@pytest.mark.parametrize("sizes", [(2**40,), (2, 1, 2**31, 2**31)])
def test_a_size_without_end(one_node: Any, sizes: Any) -> None:
    theta = np.zeros((2, 2, 3), np.float32)
    model = mo.load(one_node("AffineGrid", [theta, np.array(sizes)], 20, held=(1,)))
    with pytest.raises(ValueError, match=r"AffineGrid .*(more than max_bytes|expected theta)"):
        model(mn.tensor(theta))


def test_a_grid_that_reads_too_much(one_node: Any) -> None:
    x, grid = np.zeros((1, 20_000, 1, 1), np.float32), np.zeros((1, 300, 300, 2), np.float32)
    model = mo.load(one_node("GridSample", [x, grid], 16, held=(0,)), max_bytes=1 << 20)
    with pytest.raises(ValueError, match="more than max_bytes"):
        model(mn.tensor(grid))
