"""The lengths that a file declares: numbers must be the lengths, and a name is one length everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402

from minorm.onnx.checking import declared  # noqa: E402
from minorm.onnx.checking.trial_sizes import Size  # noqa: E402

SIZE = Size({"x": (1, [2, 3, 10, 12])}, {"n": 2, "h": 10})


def model(graph_of: Any, lengths: list[Any], result: list[Any]) -> Any:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], name="pool", kernel_shape=[3, 3], strides=[2, 2]),
        helper.make_node("Relu", ["p"], ["y"], name="relu"),
    ]
    proto = graph_of(nodes, {"x": (np.float32, ["n", 3, "h", "w"])}, ["y"])
    proto.graph.value_info.append(helper.make_tensor_value_info("p", 1, lengths))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, result))
    return proto


@pytest.mark.parametrize(
    ("lengths", "result", "wrong"),
    [
        (["n", 3, "a", "b"], ["n", 3, 4, 5], []),
        (["n", 3, None, "b"], None, []),
        (["n", 3, "h", "b"], ["n", 3, "a", "b"], ["p"]),
        (["n", 3, "a", "a"], ["n", 3, "a", "b"], ["p"]),
        (["n", 3, "a", 5], ["n", 3, "b", "a"], ["y"]),
        (["n", 3, 5, 5], ["n", 4, 4, 5], ["p", "y"]),
        (["n", 3, 4], ["n", 3, 4, 5], ["p"]),
    ],
)
def test_a_declaration_that_is_not_true_is_found(graph_of: Any, lengths: Any, result: Any, wrong: list[str]) -> None:
    proto = model(graph_of, lengths, result)
    (shapes,) = declared.shapes_of(proto, [SIZE])
    assert shapes == dict.fromkeys(("p", "y") if result else ("p",), (2, 3, 4, 5))  # whatever is said of them
    found = dict(declared.contradictions(proto, shapes, SIZE.bound))
    assert list(found) == wrong
    if wrong == ["p"] and "h" in lengths:
        assert found["p"] == "has shape (2, 3, 4, 5), but the file declares (n, 3, h, b) with n = 2, h = 10, b = 5"
    assert declared.maker(proto, "p") == "node 'pool' (MaxPool)"


def test_a_sequence_in_between_is_no_obstacle(graph_of: Any) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=1),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=1),
    ]
    proto = graph_of(nodes, {"x": (np.float32, ["n", 3, "h", "w"])}, ["y"])
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None))
    proto.graph.value_info.append(helper.make_value_info("s", kind))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["n", 4, "h", "w"]))
    (shapes,) = declared.shapes_of(proto, [SIZE])
    assert [name for name, _ in declared.contradictions(proto, shapes, SIZE.bound)] == ["y"]


def test_what_cannot_be_run_contradicts_nothing(graph_of: Any) -> None:
    proto = model(graph_of, ["n", 3, "a", "b"], ["n", 3, 4, 5])
    assert declared.shapes_of(proto, [Size({"x": (1, [2, 3])})]) == [{}]
    proto.graph.node[1].op_type = "Mystery"
    assert declared.shapes_of(proto, [SIZE]) == [{}]
    assert declared.maker(proto, "z") == "no node"
