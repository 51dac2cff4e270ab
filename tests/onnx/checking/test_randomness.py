"""Which values are drawn: those behind a random node, inside branches and functions too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402

from minorm.onnx.checking.randomness import drawn  # noqa: E402

make = helper.make_node
X = {"x": (np.float32, ["n"])}


def test_what_lies_behind_a_random_node_is_drawn(graph_of: Any) -> None:
    nodes = [
        make("Relu", ["x"], ["a"]),
        make("RandomNormalLike", ["a"], ["r"]),
        make("Add", ["r", "a"], ["b"]),
        make("Neg", ["a"], ["c"]),
    ]
    assert drawn(graph_of(nodes, X, ["b", "c"])) == {"r", "b"}


@pytest.mark.parametrize(("mode", "random"), [(True, True), (False, False), (None, True)])
def test_a_dropout_draws_unless_its_mode_is_known_to_be_false(graph_of: Any, mode: Any, random: bool) -> None:
    node = make("Dropout", ["x", "", "t"], ["y"])
    held = {} if mode is None else {"t": np.array(mode)}
    inputs = {**X, **({"t": (np.bool_, [])} if mode is None else {})}
    assert drawn(graph_of([node], inputs, ["y"], held)) == ({"y"} if random else set())
    if mode is not None:
        constant = make("Constant", [], ["t"], value=numpy_helper.from_array(np.array(mode), "t"))
        assert drawn(graph_of([constant, node], X, ["y"])) == ({"y"} if random else set())
    silent = graph_of([make("Dropout", ["x"], ["y"])], X, ["y"])
    assert drawn(silent) == drawn(silent, training=True) == set()
    old = graph_of([make("Dropout", ["x"], ["y"])], X, ["y"], opset=11)
    assert (drawn(old), drawn(old, training=True)) == (set(), {"y"})


def test_inside_a_branch_and_a_function(graph_of: Any) -> None:
    inner = helper.make_graph([make("RandomNormalLike", ["x"], ["z"])], "then", [], [onnx.ValueInfoProto(name="z")])
    plain = helper.make_graph([make("Neg", ["r"], ["z"])], "else", [], [onnx.ValueInfoProto(name="z")])
    inputs = {**X, "c": (np.bool_, [])}
    assert drawn(graph_of([make("If", ["c"], ["y"], then_branch=inner, else_branch=plain)], inputs, ["y"])) == {"y"}
    nodes = [make("RandomNormalLike", ["x"], ["r"]), make("If", ["c"], ["y"], then_branch=plain, else_branch=plain)]
    assert drawn(graph_of(nodes, inputs, ["y"])) == {"r", "y"}
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Noise", ["a"], ["b"], [make("RandomNormalLike", ["a"], ["b"])], opsets)
    call = [make("Noise", ["x"], ["y"], domain="own"), make("Relu", ["x"], ["z"])]
    assert drawn(graph_of(call, X, ["y", "z"], functions=[function], domains=["own"])) == {"y"}
