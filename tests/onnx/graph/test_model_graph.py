from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.onnx.graph.errors import RuleNotApplicable
from minorm.onnx.graph.model_graph import Graph, Value
from minorm.onnx.graph.sizes import Symbols

FLOAT = np.dtype(np.float32)


def graph(opset: int) -> tuple[Graph, Value]:
    symbols = Symbols(("batch",), (4,), ((6,),))
    g = Graph(opset, symbols)
    x = Value((symbols.size(0), 3), FLOAT, "x")
    g.inputs.append(x)
    return g, x


def test_a_node_has_the_broadcast_shape_and_the_type_of_its_inputs() -> None:
    g, x = graph(15)
    y = g.add("Add", x, g.constant(np.ones((2, 1, 1), np.float32)))
    assert y.shape == (2, x.shape[0], 3)
    assert y.dtype == FLOAT
    assert g.add("Less", x, x).dtype == np.bool_
    assert [node.operator for node in g.nodes] == ["Add", "Less"]


def test_what_the_opset_does_not_allow_is_declined() -> None:
    g, x = graph(9)
    for message, operator, inputs, attributes in (
        ("Gelu exists from opset 20 on", "Gelu", (x,), {}),
        ("Relu 6 has no attribute slope", "Relu", (x,), {"slope": 1.0}),
        ("Relu 6 does not take 2 inputs", "Relu", (x, x), {}),
        ("Neg 6 does not take uint8", "Neg", (g.constant([1], np.uint8),), {}),
        ("Where 9 does not take float32", "Where", (x, x, x), {}),
        ("bfloat16 exists in ONNX from opset 13 on", "Relu", (g.constant([1], ml_dtypes.bfloat16),), {}),
    ):
        with pytest.raises(RuleNotApplicable, match=message):
            g.add(operator, *inputs, **attributes)
    with pytest.raises(RuleNotApplicable, match="Relu 6 does not have 2 outputs"):
        g.add("Relu", x, outputs=2, shape=((), ()))
    assert not g.nodes


def test_a_withdrawn_operator_is_not_written() -> None:
    g, x = graph(18)
    with pytest.raises(RuleNotApplicable, match="GroupNormalization 18 is deprecated"):
        g.add("GroupNormalization", x, x, x, num_groups=1)


def test_bfloat16_goes_through_float32_where_an_operator_does_not_take_it() -> None:
    g, _ = graph(15)
    x = Value((2,), np.dtype(ml_dtypes.bfloat16))
    y = g.add("Softplus", x)
    assert [node.operator for node in g.nodes] == ["Cast", "Softplus", "Cast"]
    assert (y.dtype, y.shape) == (np.dtype(ml_dtypes.bfloat16), (2,))


def test_equal_small_constants_are_one() -> None:
    g, x = graph(15)
    assert g.scalar(0.5, x) is g.scalar(0.5, x)
    assert g.scalar(0.5, x) is not g.constant(0.5, np.float64)
    assert g.constant([1, 2]) is not g.constant([[1], [2]])


def test_a_vector_of_lengths_is_measured_at_run_time_where_one_is_free() -> None:
    g, x = graph(15)
    assert g.vector((2, 3)).array.tolist() == [2, 3]
    assert not g.nodes
    g.vector((x.shape[0], 3))
    assert [node.operator for node in g.nodes] == ["Shape", "Gather", "Concat"]
    g.vector((x.shape[0] * 5,))  # no tensor has that length: 5 * batch
    assert [node.operator for node in g.nodes][3:] == ["Mul"]


def test_going_back_forgets_what_a_declining_rule_added() -> None:
    g, x = graph(15)
    mark = g.mark()
    g.add("Relu", x)
    g.length(x.shape[0])
    g.warn("something")
    g.reset(mark)
    assert not g.nodes
    assert not g.warnings
    g.length(x.shape[0])
    assert [node.operator for node in g.nodes] == ["Shape", "Gather"]
