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


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(proved: Any, rng: np.random.Generator, reduce: str, include_self: bool) -> None:
    x, src = (mn.tensor(rng.normal(size=shape).astype(np.float32)) for shape in ((2, 5), (2, 3)))
    index = mn.tensor([[0, 2, 2], [4, 0, 4]])

    def combined(x: Any, index: Any, src: Any) -> Any:
        return x.scatter_reduce(1, index, src, reduce, include_self=include_self)

    proto = proved(combined, x, index, src, opset=18)
    assert "ScatterElements" in [node.op_type for node in proto.graph.node]
    with pytest.raises(mo.ExportError, match=r"ScatterElements has the reduction .* from opset 1[68] on"):
        mo.export(combined, (x, index, src), None, opset_version=15)


def test_index_put(proved: Any, rng: np.random.Generator) -> None:
    x = mn.tensor(rng.normal(size=(3, 4, 2)).astype(np.float32))
    rows, columns = mn.tensor([2, 0, 2]), mn.tensor([-1, 1, 1])
    fixed: dict[str, Any] = {"batches": (), "dynamic_axes": {}, "opset": 16}
    proto = proved(lambda x, v: x.index_put((rows, columns), v), x, x[:, 0], **fixed)
    assert "ScatterND" in [node.op_type for node in proto.graph.node]
    again = mn.tensor([2, 0, 2])
    proved(lambda x, v: x.index_put((again,), v, accumulate=True), x, x[1], **fixed)
    proved(lambda x, v: x.index_put((None, columns, rows % 2), v), x, x[:, :3, 0], opset=16)
    proved(lambda x, v: x.index_put((rows, None, columns % 2), v), x, x[:, :, 0], **fixed)
    proved(lambda x, i, v: x.index_put((i,), v), x, mn.tensor([1, 0, 2]), x * 2, opset=16, batches=())


def test_masked_scatter(proved: Any, rng: np.random.Generator) -> None:
    x, source = (mn.tensor(rng.normal(size=(2, 5)).astype(np.float32)) for _ in range(2))
    proved(lambda x, source: x.masked_scatter(x > 0, source), x, source, opset=14)
    proved(lambda x, mask: x.masked_scatter(mask, x * 2), x, mn.tensor([[True], [False]]), opset=14)
