from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.graph import kinds, versions  # noqa: E402

FLOATS, INTEGERS, BOOLS = np.ones((2, 3), np.float32), np.ones((2, 3), np.int64), np.ones((2, 3), np.bool_)


def test_every_operator_says_what_its_inputs_may_be() -> None:
    for operator in versions.PUBLISHED:
        assert all(place.kinds for place in kinds.places(operator)), operator
    assert [(p.name, "".join(sorted(p.kinds))) for p in kinds.places("Slice")][:2] == [("data", "bfi"), ("starts", "i")]


@pytest.mark.parametrize(
    ("operator", "inputs", "message"),
    [
        ("Neg", [BOOLS], r"input 0 \(X\) is bools; expected floats or integers"),
        ("Exp", [INTEGERS], r"input 0 \(input\) is integers; expected floats"),
        ("And", [FLOATS, BOOLS], r"input 0 \(A\) is floats; expected bools"),
        ("Where", [INTEGERS, FLOATS, FLOATS], r"input 0 \(condition\) is integers; expected bools"),
        ("ReduceSum", [FLOATS, np.ones(1, np.float32)], r"input 1 \(axes\) is floats; expected integers"),
        ("Add", [FLOATS, INTEGERS], r"input 1 \(B\) is integers, input 0 is floats; expected equal types"),
        ("Concat", [FLOATS, FLOATS, BOOLS], r"input 2 \(inputs\) is bools, input 0 is floats; expected equal types"),
        ("SequenceLength", [FLOATS], r"input 0 \(input_sequence\) is floats; expected a sequence"),
    ],
)
def test_other_kinds_are_errors(operator: str, inputs: list[Any], message: str, one_node: Any) -> None:
    attributes = {"axis": 0} if operator == "Concat" else {}
    model = mo.load(one_node(operator, inputs, 18, **attributes))
    with pytest.raises(ValueError, match=message):
        model(*map(mn.tensor, inputs))


def test_a_sequence_where_a_tensor_is_expected(graph_of: Any) -> None:
    nodes = [
        onnx.helper.make_node("SequenceConstruct", ["x", "x"], ["s"]),
        onnx.helper.make_node("Relu", ["s"], ["y"]),
    ]
    model = mo.load(graph_of(nodes, {"x": (np.float32, [2])}, ["y"]))
    with pytest.raises(ValueError, match=r"input 0 \(X\) is a sequence; expected floats or integers"):
        model(mn.ones(2))


def test_kinds_that_some_version_takes_are_taken_by_all(one_node: Any) -> None:
    assert mo.load(one_node("Relu", [-INTEGERS], 7))(mn.tensor(-INTEGERS)).tolist() == [[0] * 3] * 2
