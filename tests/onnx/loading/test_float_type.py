"""Which float type a loaded graph computes in: `to` is obeyed whatever the file holds."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm import nn

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

TYPES = pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64], ids=str)
INSIDE = pytest.mark.parametrize("inside", [False, True], ids=["alone", "inside another"])
X = np.array([[1.0, -2.0, 0.5, 3.0]], np.float32)


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


def converted(model: Any, dtype: Any, inside: bool = False) -> Any:
    return nn.Sequential(model).to(dtype) if inside else model.to(dtype)


@TYPES
@INSIDE
def test_a_graph_without_weights_is_converted(dtype: Any, inside: bool, graph_of: Any) -> None:
    graph = mo.load(graph_of([node("Relu", "x", "y")], {"x": (np.float32, [1, 4])}, ["y"], {}))
    y = converted(graph, dtype, inside)(mn.tensor(X.astype(dtype)))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.array.astype(np.float32), np.maximum(X, 0))
    assert graph.converted_to() == dtype
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    assert mo.export(graph, None, None).graph.input[0].type.tensor_type.elem_type == code
    with pytest.raises(TypeError, match=f"input 'x' is float32; the graph was converted to {dtype}"):
        graph(mn.tensor(X))
    graph.to(mn.float32)
    assert graph.converted_to() is None
    assert graph(mn.tensor(X)).dtype == mn.float32


@TYPES
@INSIDE
def test_a_graph_of_constants_is_converted(dtype: Any, inside: bool, graph_of: Any) -> None:
    """No tensor of it is a Parameter, and its input is an index."""
    nodes = [node("Gather", "table i", "rows"), node("Mul", "rows half", "y")]
    proto = graph_of(nodes, {"i": (np.int64, [1])}, ["y"], {"table": X.reshape(4, 1), "half": np.float32(0.5)})
    y = converted(mo.load(proto, trainable=[]), dtype, inside)(mn.tensor(np.array([3])))
    assert (y.dtype, y.tolist()) == (dtype, [[1.5]])


def several(graph_of: Any) -> Any:
    """float32 in front, float16 behind, as tools for mixed precision write it."""
    nodes = [
        node("MatMul", "x w", "h"), node("Cast", "h", "half", to=TensorProto.FLOAT16),
        node("MatMul", "half v", "z"), node("Cast", "z", "y", to=TensorProto.FLOAT),
    ]  # fmt: skip
    held = {"w": np.eye(4, dtype=np.float32) * 2, "v": np.eye(4, dtype=np.float16) / 4}
    return graph_of(nodes, {"x": (np.float32, [1, 4])}, ["y"], held)


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float32, mn.float64], ids=str)
@INSIDE
def test_a_file_of_several_float_types_has_one_then(dtype: Any, inside: bool, graph_of: Any) -> None:
    """float32 is a type that it has already, but not everywhere."""
    graph = mo.load(several(graph_of))
    assert graph(mn.tensor(X)).dtype == mn.float32
    for _ in range(2):  # there, and there again
        y = converted(graph, dtype, inside)(mn.tensor(X.astype(dtype)))
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.array.astype(np.float32), X / 2)
    y.sum().backward()
    assert {p.grad.dtype for p in graph.parameters() if p.grad is not None} == {dtype}
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    proto = mo.export(graph, None, None)
    assert {t.data_type for t in proto.graph.initializer} == {code}
    np.testing.assert_array_equal(mo.load(proto)(mn.tensor(X.astype(dtype))).array, y.array)
    graph.to(mn.bfloat16).to(mn.float32)
    assert graph(mn.tensor(X)).tolist() == (X / 2).tolist()


def test_a_copy_has_the_type_too(graph_of: Any) -> None:
    graph = mo.load(graph_of([node("Relu", "x", "y")], {"x": (np.float32, [1, 4])}, ["y"], {})).to(mn.bfloat16)
    other = copy.deepcopy(graph)
    graph.to(mn.float32)
    assert graph(mn.tensor(X)).dtype == mn.float32
    assert other(mn.tensor(X).to(mn.bfloat16)).dtype == mn.bfloat16
    assert "x bfloat16 (1, 4) -> y" in repr(other)
    assert "x float32 (1, 4) -> y" in repr(graph)


def test_a_type_that_is_refused_changes_nothing(graph_of: Any) -> None:
    graph = mo.load(several(graph_of))
    for wrong, why in ((mn.int32, "Module.to: dtype is int32; expected a float type"), ("odd", "Module.to: 'odd' is")):
        with pytest.raises(TypeError, match=why):
            graph.to(wrong)
    assert graph.converted_to() is None
    assert [p.dtype for p in graph.parameters()] == [mn.float32, mn.float16]


def test_a_layer_that_was_put_in_does_not_hide_the_type(graph_of: Any) -> None:
    """The weight of the file that told the type is gone."""
    nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "y")]
    proto = graph_of(nodes, {"x": (np.float32, [1, 4])}, ["y"], {"w": np.eye(4, dtype=np.float32)})
    graph = mo.load(proto).to(mn.bfloat16)
    graph.replace("w", nn.Linear(4, 4).to(mn.bfloat16))
    assert graph(mn.tensor(X).to(mn.bfloat16)).dtype == mn.bfloat16
    graph.to(mn.float64)
    assert graph(mn.tensor(X).double()).dtype == mn.float64
    graph.to(mn.float32)
    assert graph(mn.tensor(X)).dtype == mn.float32


def test_a_layer_of_another_type_does_not_hide_it(graph_of: Any) -> None:
    """Nothing in the graph is of the converted type any more; `to` still changes it."""
    nodes = [node("Relu", "x", "h"), node("MatMul", "h w", "y")]
    proto = graph_of(nodes, {"x": (np.float32, [1, 4])}, ["y"], {"w": np.eye(4, dtype=np.float32)})
    graph = mo.load(proto).to(mn.bfloat16)
    layer = nn.Linear(4, 4)
    graph.replace("w", layer)
    assert graph.converted_to() == mn.bfloat16
    graph.to(mn.float32)
    assert graph.converted_to() is None
    want = np.maximum(np.float32(X), 0) @ layer.weight.array.T + layer.bias.array
    np.testing.assert_allclose(graph(mn.tensor(X)).array, want, rtol=1e-5)
