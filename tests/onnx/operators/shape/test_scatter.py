"""Scatter, ScatterElements and ScatterND, written; test_operator_versions.py reads every version."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm.functional import scatter as F

SINCE = {"none": (9, 11), "add": (16, 16), "mul": (16, 16), "min": (18, 18), "max": (18, 18)}  # elements, nd


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_written_as_one_node(proved: Any, rng: np.random.Generator, reduction: str, opset: int) -> None:
    x, src = (mn.tensor(rng.normal(size=shape).astype(np.float32)) for shape in ((2, 5, 3), (2, 2, 3)))
    index = mn.tensor(np.array([[[0, 1, 2], [4, 3, 1]]] * 2))
    rows = mn.tensor(np.array([[[0, 1], [0, 4]], [[1, 0], [1, 2]]]))
    elements, nd = SINCE[reduction]
    for since, operator, function in (
        (elements, "ScatterElements" if opset >= 11 else "Scatter", lambda x, s: F.scatter(x, 1, index, s, reduction)),
        (nd, "ScatterND", lambda x, s: F.scatter_nd(x, rows, s, reduction)),
    ):
        if opset < since:
            with pytest.raises(mo.ExportError, match="opset"):
                mo.export(function, (x, src), None, opset_version=opset)
        elif opset < 11:
            with pytest.warns(UserWarning, match="indices must not be negative"):
                proto = mo.export(function, (x, src), None, opset_version=opset, dynamic_axes={})
            assert [node.op_type for node in proto.graph.node] == [operator]
        else:
            proto = proved(function, x, src, opset=opset, batches=(), dynamic_axes={})
            assert [node.op_type for node in proto.graph.node] == [operator]


def test_the_error_names_the_opset() -> None:
    x, index = mn.ones(3), mn.tensor([0])
    with pytest.raises(mo.ExportError, match="ScatterElements has the reduction 'max' from opset 18 on"):
        mo.export(lambda x: F.scatter(x, 0, index, x[:1], "max"), x, None, opset_version=17, dynamic_axes={})
    with pytest.raises(mo.ExportError, match="it is ScatterND of opset 11 on; the model's opset is 10"):
        mo.export(lambda x: F.scatter_nd(x, index[None], x[:1]), x, None, opset_version=10, dynamic_axes={})


def test_an_unknown_reduction(one_node: Any) -> None:
    x = np.zeros((2, 2), np.float32)
    model = mo.load(one_node("ScatterND", [x, np.array([[0]]), x[:1]], 18, held=(1,), reduction="mean"))
    with pytest.raises(ValueError, match=r"ScatterND .* reduction is 'mean'; expected one of none, add"):
        model(mn.tensor(x), mn.tensor(x[:1]))
