from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from minorm.onnx.graph.reading import Node, attribute_defaults
from minorm.onnx.graph.tensors import Budget


def node(operator: str = "Elu", since: int = 6, **changes: Any) -> Node:
    fields: dict[str, Any] = {"domain": "", "name": "n", "opset": 17, "inputs": ("a", "", "c"), "outputs": ("y", "z")}
    return Node(operator, **{**fields, "attributes": {}, "since": since, **changes})


def test_attributes_are_the_files_else_the_versions_defaults() -> None:
    assert node(attributes={"alpha": 0.5})["alpha"] == 0.5
    assert node()["alpha"] == 1.0
    assert node("Conv", 11)["strides"] is None
    assert node("Conv", 11)["auto_pad"] == "NOTSET"
    with pytest.raises(KeyError, match="Elu 6 has no attribute beta"):
        node()["beta"]
    assert node("Concat", 1)["axis"] is None
    assert set(attribute_defaults("BatchNormalization", 1)) == {
        "consumed_inputs", "epsilon", "is_test", "momentum", "spatial",
    }  # fmt: skip


def test_inputs_and_outputs() -> None:
    found = node(constants={"a": np.array(3)}, used=frozenset("z"))
    assert [found.has(i) for i in range(4)] == [True, False, True, False]
    assert [found.constant(i) for i in range(4)] == [3, None, None, None]
    assert [found.wants(i) for i in range(3)] == [False, True, False]


def test_results_are_weighed() -> None:
    small = node(budget=Budget(100))
    small.fits((25,), np.float32)
    with pytest.raises(ValueError, match="more than max_bytes=100"):
        small.fits((2**40, 2**40), np.float32)


def test_how_a_node_is_called_in_messages() -> None:
    assert str(node()) == "Elu (since version 6, opset 17), node 'n'"
    assert str(node(name="")) == "Elu (since version 6, opset 17), the node that computes 'y'"
    assert str(node(domain="ai.x", since=0)) == "ai.x.Elu (opset 17), node 'n'"
