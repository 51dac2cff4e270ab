"""Einsum, written: one node from opset 12 on, several simpler nodes before."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.functional.einsum import einsum


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "bij,kj->bk", "...j,...j", "bij->bji", "bij,bjk,bkl->bil"])
def test_written(proved: Any, rng: np.random.Generator, equation: str, opset: int) -> None:
    count = equation.count(",") + 1
    shapes = [(2, 4, 3), (5, 3) if "kj" in equation else (2, 4, 3) if "...j," in equation else (2, 3, 5), (2, 5, 6)]
    tensors = [mn.tensor(rng.normal(size=shape).astype(np.float32)) for shape in shapes[:count]]
    fixed = [t for t in tensors if t.shape[0] != 2]
    proto = proved(
        lambda *given: einsum(equation, *given, *fixed), *[t for t in tensors if t.shape[0] == 2], opset=opset
    )
    operators = [node.op_type for node in proto.graph.node if node.op_type != "Constant"]
    assert operators == ["Einsum"] if opset >= 12 else "Einsum" not in operators
