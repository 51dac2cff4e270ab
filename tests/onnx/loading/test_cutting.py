from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.loading import cutting  # noqa: E402

FLOAT = np.float32


def refused(proto: Any) -> mo.LoadError:
    with pytest.raises(mo.LoadError) as caught:
        mo.load(proto)
    return caught.value


MISSING = "minorm does not have the operator StringNormalizer"


def test_the_last_values_in_front_of_what_is_missing_are_proposed(graph_of: Any) -> None:
    nodes = [
        h.make_node("Relu", ["x"], ["a"]),
        h.make_node("Exp", ["a"], ["b"]),
        h.make_node("Neg", ["b"], ["c"]),
        h.make_node("StringNormalizer", ["b"], ["d"]),
        h.make_node("Add", ["c", "d"], ["y"]),  # reads c, which is behind b
        h.make_node("Tanh", ["a"], ["z"]),
    ]
    error = refused(graph_of(nodes, {"x": (FLOAT, [2, 2])}, ["y", "z"]))
    assert error.cuts == ("c", "z")
    assert str(error).splitlines() == [
        "load: minorm does not run 1 of 6 nodes:",
        f"  StringNormalizer (since version 10, opset 17), the node that computes 'd': {MISSING}",
        "load(..., outputs=['c', 'z']) loads the graph before these nodes",
    ]


def test_what_is_proposed_can_be_loaded(graph_of: Any) -> None:
    nodes = [
        h.make_node("Shape", ["x"], ["s"]),
        h.make_node("Mul", ["x", "w"], ["a"]),
        h.make_node("StringNormalizer", ["a"], ["i"]),
        h.make_node("StringNormalizer", ["s"], ["u"]),
        h.make_node("Frobnicate", ["i", "u"], ["y"]),
    ]
    proto = graph_of(nodes, {"x": (FLOAT, [2])}, ["y"], {"w": np.ones(2, FLOAT)})
    error = refused(proto)
    assert error.cuts == ("a",)  # a shape is no place to cut
    assert "ONNX does not have the operator Frobnicate" in str(error)
    assert mo.load(proto, outputs=list(error.cuts))(mn.ones(2)).shape == (2,)


def test_where_there_is_nothing_in_front_nothing_is_proposed(graph_of: Any) -> None:
    proto = graph_of([h.make_node("StringNormalizer", ["x"], ["y"])], {"x": (FLOAT, [2, 2])}, ["y"])
    error = refused(proto)
    assert error.cuts == ()
    assert "outputs=" not in str(error)


def test_what_a_rule_cannot_read_has_cuts_too(graph_of: Any) -> None:
    nodes = [
        h.make_node("Relu", ["x"], ["a"]),
        h.make_node("Resize", ["a", "", "scales"], ["y"], name="up", mode="sinc"),
    ]
    proto = graph_of(nodes, {"x": (FLOAT, [1, 1, 2, 2])}, ["y"], {"scales": np.array([1, 1, 2, 2], FLOAT)})
    assert refused(proto).cuts == ("a",)


def test_a_long_list_is_cut_short() -> None:
    names = [f"v{i}" for i in range(20)]
    assert cutting.advice(names).endswith(
        "'v7']) loads the graph before these nodes; outputs may also name 12 more values"
    )
    assert cutting.advice([]) == ""
