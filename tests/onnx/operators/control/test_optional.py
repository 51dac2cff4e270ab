"""Optional values and sequences as inputs and outputs of a graph, and SequenceMap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, parser  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SEQUENCE = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 3]))
OPTIONAL = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3]))


def model(nodes: list[Any], kind: Any, outputs: list[str]) -> Any:
    graph = helper.make_graph(
        nodes, "g", [helper.make_value_info("x", kind)], [helper.make_empty_tensor_value_info(n) for n in outputs]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def test_an_optional_input_may_be_none() -> None:
    nodes = [
        helper.make_node("OptionalHasElement", ["x"], ["there"]),
        helper.make_node(
            "If", ["there"], ["y"],
            then_branch=parser.parse_graph("then () => (float[2, 3] t) { t = OptionalGetElement(x) }"),
            else_branch=parser.parse_graph("other () => (float[1] e) { e = Constant <value_floats = [7.0]> () }"),
        ),
    ]  # fmt: skip
    loaded = mo.load(model(nodes, OPTIONAL, ["y", "there"]))
    assert [r.tolist() for r in loaded(None)] == [[7.0], False]
    assert [r.tolist() for r in loaded(mn.Tensor(X))] == [X.tolist(), True]
    with pytest.raises(ValueError, match=r"declares \(2, 3\)"):
        loaded(mn.ones(3, 3))
    with pytest.raises(ValueError, match="the optional value is absent"):
        mo.load(model([helper.make_node("OptionalGetElement", ["x"], ["y"])], OPTIONAL, ["y"]))(None)


def test_a_sequence_goes_in_and_out() -> None:
    loaded = mo.load(model([helper.make_node("SequenceErase", ["x"], ["y"])], SEQUENCE, ["y"]))
    assert "sequence of float32 (n, 3)" in repr(loaded)
    first, second = loaded([mn.Tensor(X), mn.Tensor(X + 1), mn.ones(1, 3)])
    np.testing.assert_array_equal(first.array, X)
    np.testing.assert_array_equal(second.array, X + 1)
    with pytest.raises(TypeError, match="input 'x' is Tensor; expected a list of Tensors"):
        loaded(mn.Tensor(X))
    with pytest.raises(ValueError, match="declares"):
        loaded([mn.ones(1, 4)])


def test_a_graph_for_every_element() -> None:
    """The names in the body are those that the rule would take itself."""
    body = parser.parse_graph("each (float[n, 3] map_in0, float[3] mapping) => (float[n, 3] z, float[n, 3] w) "
                              "{ z = Mul(map_in0, mapping) w = Neg(z) }")  # fmt: skip
    nodes = [
        helper.make_node("Constant", [], ["k"], value_floats=[1.0, 2.0, 3.0]),
        helper.make_node("SequenceMap", ["x", "k"], ["y", "v"], body=body),
    ]
    loaded = mo.load(model(nodes, SEQUENCE, ["y", "v"]))
    parts = [mn.tensor(X, requires_grad=True), mn.Tensor(X[:1] + 1)]
    scaled, negative = loaded(parts)
    for part, y, v in zip(parts, scaled, negative, strict=True):
        np.testing.assert_array_equal(y.array, part.array * [1, 2, 3])
        np.testing.assert_array_equal(v.array, -y.array)
    scaled[0].sum().backward()
    np.testing.assert_array_equal(parts[0].grad.array, [[1, 2, 3]] * 2)
    with pytest.raises(mo.LoadError, match="SequenceMap with no body"):
        mo.load(model([helper.make_node("SequenceMap", ["x"], ["y"], body=body)], SEQUENCE, ["y"]))
