"""The values that conversion rules read from a file: numbers of the wrong type are an error that says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import minorm.onnx as mo
from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.operators.composing import numbers


def model(node: Any, opset: int, inputs: dict[str, Any], weights: dict[str, Any]) -> Any:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(
        [node],
        "g",
        values,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_integers_alone_are_read_as_integers() -> None:
    assert numbers(np.array([[1, -2]], np.int32)) == [1, -2]
    for wrong in (np.array([True]), np.array([1.5], np.float32)):
        with pytest.raises(RuleNotApplicable, match=f"pads has type {wrong.dtype}; expected int64 or int32"):
            numbers(wrong, "pads")


@pytest.mark.parametrize("kind", [np.bool_, np.float32])
def test_pads_of_another_type_are_an_error(kind: Any) -> None:
    node = helper.make_node("Pad", ["x", "pads"], ["y"])
    broken = model(node, 13, {"x": [2, 3]}, {"pads": np.zeros(4, kind)})
    with pytest.raises(mo.ExportError, match=f"pads has type {np.dtype(kind)}; expected int64 or int32"):
        mo.convert(broken, opset_version=7)


@pytest.mark.parametrize("stash", [0, 64, -1])
def test_a_stash_type_that_is_no_type_is_an_error(stash: int) -> None:
    node = helper.make_node("RMSNormalization", ["x", "s"], ["y"], stash_type=stash)
    broken = model(node, 23, {"x": [2, 3], "s": [3]}, {})
    with pytest.raises(mo.ExportError, match=r"'y' \(RMSNormalization\): .*(element type|tensor\(\?\))"):
        mo.convert(broken, opset_version=17)
