"""A file's own normalizations: the numbers that reach each node, its name and version, and what cannot be judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper

from minorm.conformance import file_cases
from minorm.conformance.formula import due
from minorm.onnx.graph.errors import LoadError

SCALE, BIAS = np.array([2, 3], np.float32), np.array([1, -1], np.float32)


def save(path: Path, nodes: Any, shape: Any = (3, 2), weights: Any = None, opset: int = 17) -> str:
    weights = {"s": SCALE, "b": BIAS} if weights is None else weights
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return str(path)


def norm(x: str, y: str, name: str = "", **attributes: Any) -> Any:
    return helper.make_node("LayerNormalization", [x, "s", "b"], [y], name, **attributes)


def test_each_node_gets_the_numbers_that_reach_it(tmp_path: Path) -> None:
    nodes = [norm("x", "h", "first", epsilon=0.5), helper.make_node("Exp", ["h"], ["e"]), norm("e", "y", "second")]
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = file_cases.read(save(tmp_path / "m.onnx", nodes), values={"x": x.tolist()})
    assert [case.name for case in found.cases] == ["first", "second"]
    assert found.since == [17, 17]
    assert not found.left_out
    first, second = found.cases
    np.testing.assert_array_equal(first.inputs[0], x)
    np.testing.assert_allclose(second.inputs[0], np.exp(due(first)[0][0]), rtol=1e-5)
    for case in found.cases:
        np.testing.assert_array_equal(case.inputs[1], SCALE)
        np.testing.assert_array_equal(case.inputs[2], BIAS)
        assert case.held == (1, 2)
    assert first.attributes["epsilon"] == 0.5


def test_nodes_without_names_and_names_that_come_again(tmp_path: Path) -> None:
    nodes = [norm("x", "h", "n"), norm("h", "i", "n"), norm("i", "j", "n (2)"), norm("j", "y")]
    found = file_cases.read(save(tmp_path / "m.onnx", nodes))
    assert [case.name for case in found.cases] == ["n", "n (2)", "n (2) (2)", "y"]
    refused = [helper.make_node("LayerNormalization", ["x", "", "b"], [y], "n") for y in "ki"]
    found = file_cases.read(save(tmp_path / "m.onnx", [*refused, norm("x", "y", "n")]))
    assert list(found.left_out) == ["n", "n (2)"]
    assert [case.name for case in found.cases] == ["n (3)"]


def test_inputs_are_drawn_the_same_each_time_in_the_shape_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [norm("x", "y")], ("n", 2))
    one, other = (file_cases.read(path, {"n": (5,)}).cases[0].inputs[0] for _ in range(2))
    assert one.shape == (5, 2)
    np.testing.assert_array_equal(one, other)


def test_the_version_is_the_one_that_the_opset_means(tmp_path: Path) -> None:
    weights = {"s": SCALE, "b": BIAS, "m": BIAS, "v": SCALE}
    nodes = [helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])]
    found = file_cases.read(save(tmp_path / "m.onnx", nodes, weights=weights))
    assert (found.cases[0].opset, found.since) == (17, [15])
    assert found.cases[0].outputs == ("y",)


def test_data_that_lie_far_from_0_have_an_offset(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [norm("x", "y")], (1, 2))
    assert file_cases.read(path, values={"x": [[1000.0, 1002.0]]}).cases[0].offset == pytest.approx(1001)
    assert file_cases.read(path, values={"x": [[1.0, 2.0]]}).cases[0].offset == 0


def test_what_stands_in_a_branch_is_named_and_not_judged(tmp_path: Path) -> None:
    then = helper.make_graph([norm("x", "t", "inside")], "t", [], [helper.make_empty_tensor_value_info("t")])
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["o"])], "o", [], [helper.make_empty_tensor_value_info("o")]
    )
    nodes = [
        norm("x", "h", "outside"),
        helper.make_node("ReduceSum", ["h"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    weights = {"s": SCALE, "b": BIAS, "zero": np.zeros((), np.float32)}
    found = file_cases.read(save(tmp_path / "m.onnx", nodes, weights=weights))
    assert [case.name for case in found.cases] == ["outside"]
    assert found.left_out == {"If_3/then_branch/inside": "the node is inside a branch or a loop"}


def test_a_node_that_makes_no_sense_is_named_and_not_judged(tmp_path: Path) -> None:
    nodes = [
        norm("x", "h", "sound"),
        helper.make_node("GroupNormalization", ["x", "s", "b"], ["i"], "no groups", num_groups=0),
        helper.make_node("GroupNormalization", ["x", "s", "b"], ["j"], "five groups", num_groups=5),
        helper.make_node("LayerNormalization", ["x", "", "b"], ["k"], "no scale"),
        helper.make_node("LayerNormalization", ["x", "s"], ["l"], "no such type", stash_type=99),
        helper.make_node("LayerNormalization", ["x", "s", "b"], ["m"], "an array", more=numpy_helper.from_array(SCALE)),
        helper.make_node("LayerNormalization", ["x", "s", "b"], [""], "no output"),
        helper.make_node("GroupNormalization", ["x", "s", "b"], ["n"], "no attribute"),
        helper.make_node("Sum", ["h", "i", "j", "k", "l", "m", "n"], ["y"]),
    ]
    found = file_cases.read(save(tmp_path / "m.onnx", nodes, opset=21))
    assert [case.name for case in found.cases] == ["sound"]
    assert list(found.left_out) == [
        "no scale", "an array", "no output", "no groups", "five groups", "no such type", "no attribute"
    ]  # fmt: skip
    assert found.left_out["no scale"] == "the node lacks a required input"
    assert found.left_out["an array"] == "the node's attribute 'more' is or contains ndarray; expected numbers or texts"
    assert found.left_out["no output"] == "the node has no output"
    assert found.left_out["no attribute"] == "the node lacks the attribute 'num_groups'"
    assert found.left_out["no groups"].startswith("the formula has no result for this node: ")


def test_a_file_without_normalizations(tmp_path: Path) -> None:
    found = file_cases.read(save(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"])]))
    assert found == file_cases.FileCases()


def test_what_is_no_model_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"\xff\x00nonsense")
    with pytest.raises(LoadError, match=r"^conform: .*m\.onnx"):
        file_cases.read(tmp_path / "m.onnx")
    with pytest.raises(FileNotFoundError):
        file_cases.read(tmp_path / "nothing.onnx")
    path = save(tmp_path / "n.onnx", [norm("x", "y")])
    with pytest.raises(ValueError, match="there is no input 'z'; the model has x"):
        file_cases.read(path, values={"z": 1})
    with pytest.raises(LoadError, match="max_bytes"):
        file_cases.read(path, max_bytes=10)
