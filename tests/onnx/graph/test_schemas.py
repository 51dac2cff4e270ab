"""A node against the schema of its operator."""

from __future__ import annotations

from typing import Any

import pytest

onnx = pytest.importorskip("onnx")

from minorm.onnx.graph.schemas import misfit  # noqa: E402


@pytest.mark.parametrize(
    ("operator", "inputs", "outputs", "attributes", "why"),
    [
        ("Conv", ["x", "w"], ["y"], ["pads"], ""),
        ("Conv", ["x", "w", ""], ["y"], [], ""),
        ("Conv", ["x", ""], ["y"], [], "lacks input 1, W"),
        ("Conv", ["x"], ["y"], [], "has 1 inputs; expected 2 to 3"),
        ("Relu", ["x"], ["y", "z"], [], "has 2 outputs; expected 1 to 1"),
        ("Dropout", ["x"], ["y", ""], [], ""),
        ("Concat", ["a", "b", "c"], ["y"], [], "lacks the attribute 'axis'"),
        ("Concat", ["a", ""], ["y"], ["axis"], "lacks input 1, inputs"),
        ("Elu", ["x"], ["y"], ["beta"], "has an attribute 'beta', which this version lacks; it has: alpha"),
        ("Relu", ["x"], ["y"], ["a"], "has an attribute 'a', which this version lacks; it has: none"),
        ("Clip", ["x", "", "high"], ["y"], [], ""),
    ],
)
def test_why_a_node_is_none_of_its_operator(
    operator: str, inputs: Any, outputs: Any, attributes: Any, why: str
) -> None:
    assert misfit(onnx.defs.get_schema(operator, 17, ""), inputs, outputs, attributes) == why
