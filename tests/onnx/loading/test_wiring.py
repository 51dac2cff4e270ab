"""Facts about the values of a flat list of nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from minorm.onnx.graph.reading import Node  # noqa: E402  after importorskip
from minorm.onnx.loading.wiring import SMALL, Held, Wiring  # noqa: E402


def node(operator: str, inputs: str, output: str, since: int = 13, **attributes: Any) -> Any:
    return Node(operator, "", output, 18, tuple(inputs.split()), (output,), attributes, since)


def wired(*nodes: Any, arrays: Any = None, ends: Any = (), learned: Any = (), types: Any = None) -> Any:
    return Wiring(nodes, ends, arrays or {}, lambda name: name in learned, {}, types or {})


def constant(value: Any, name: str, dtype: Any = np.float32) -> Any:
    return node("Constant", "", name, value=np.array(value, dtype))


def test_numbers_are_followed_through_what_moves_them() -> None:
    axes = constant([0, 1], "axes", np.int64)
    w = wired(
        constant([[2.5]], "a"), node("Identity", "a", "b"), node("Squeeze", "b", "c", axes=[0, 1]), axes,
        node("Unsqueeze", "c axes", "d"), node("Reshape", "d", "e", shape=[1]),
        node("Expand", "e lengths", "ones"), constant([4], "lengths", np.int64),
        node("ConstantOfShape", "lengths", "zeros"), constant(2, "whole", np.int64), node("Cast", "whole", "two", to=1),
        constant(0.1, "tenth"), constant(0.1, "double", np.float64), node("Constant", "", "given", value_float=3.0),
    )  # fmt: skip
    assert [w.number(name) for name in "abcde"] == [2.5] * 5
    np.testing.assert_array_equal(w.array("ones"), [2.5] * 4)
    np.testing.assert_array_equal(w.array("zeros"), [0.0] * 4)
    assert (w.number("two"), w.number("tenth"), w.number("double"), w.number("given")) == (2.0, 0.1, 0.1, 3.0)
    assert (w.number("ones"), w.number("whole"), w.number("nobody")) == (None, None, None)
    assert w.integers("axes") == [0, 1]


def test_shapes_that_are_put_together() -> None:
    w = wired(
        constant([0], "a", np.int64), constant(4, "b", np.int64), constant(1, "one", np.int64),
        node("Reshape", "b", "c", shape=[-1]), node("Concat", "a c", "d", axis=0),
        node("Sub", "b one", "e"), node("Range", "one e one", "f"),
    )  # fmt: skip
    assert w.integers("d") == [0, 4]
    assert w.integers("f") == [1, 2]


def test_a_large_or_damaged_constant_is_not_looked_into() -> None:
    huge = 1 << 40
    w = wired(
        constant(1.0, "a"), constant([huge], "many", np.int64), node("Expand", "a many", "b"),
        node("ConstantOfShape", "many", "c"), constant(huge, "end", np.int64), constant(0, "begin", np.int64),
        constant(1, "step", np.int64), constant(0, "none", np.int64), node("Range", "begin end step", "d"),
        node("Range", "begin end none", "e"), node("Reshape", "a", "f", shape=[3]), node("Unsqueeze", "a", "g"),
        node("Unsqueeze", "a", "h", axes=[2**62]), node("Constant", "", "i", value_string="x"),
        node("Constant", "", "j"),
        arrays={"large": np.zeros(SMALL + 1, np.float32)},
    )  # fmt: skip
    assert [w.array(name) for name in ("b", "c", "d", "e", "f", "g", "h", "i", "j", "large")] == [None] * 10
    assert w.held("large") == Held("large", (SMALL + 1,))


def test_a_circle_of_nodes_ends() -> None:
    w = wired(node("Identity", "b", "a"), node("Identity", "a", "b"))
    assert w.array("a") is None
    assert w.held("a") is None


def test_a_weight_is_held_under_its_own_name_and_is_no_number() -> None:
    weight = np.ones(1, np.float32)
    types = {"p": np.dtype(np.float32), "x": np.dtype(np.float32)}
    w = wired(
        node("Unsqueeze", "p", "a", axes=[1, 2]), node("CastLike", "a x", "b"), node("Identity", "p", "other.p"),
        node("Cast", "p", "c", to=11), arrays={"p": weight, "n": weight}, learned=["p"],
        types=types | {"a": types["p"]},
    )  # fmt: skip
    assert w.held("b") == Held("p", (1, 1, 1))
    assert w.held("other.p") == Held("other.p", (1,))  # a tool found it equal to p
    assert w.held("c") is None  # another type
    assert (w.number("p"), w.number("a"), w.number("n")) == (None, None, 1.0)


def test_who_reads_what() -> None:
    a, b, c = node("Sub", "x y", "a"), node("Mul", "a a", "b"), node("Add", "b x", "c")
    w = wired(a, b, c, ends=["c"])
    assert w.reader("b", "Add") is c
    assert w.reader("b", "Mul") is None
    assert w.reader("a", "Mul") is None  # twice
    assert w.reader("c", "Add") is None
    assert w.is_private([a, b], "b")
    assert not w.is_private([a], "c")
    assert not w.is_private([a, b, c], "b")
    b.conditions = (("x", True),)
    assert not wired(a, b, c).is_private([a, b], "b")


def test_one_value_computed_twice() -> None:
    first, second = node("Sub", "x m", "a"), node("Sub", "x n", "b")
    means = [node("ReduceMean", "x", name, axes=[-1]) for name in "mn"]
    assert wired(*means, first, second).same("a", "b")
    means[1].attributes["axes"] = [-2]
    assert not wired(*means, first, second).same("a", "b")
    assert not wired(first, node("Add", "x m", "c")).same("a", "c")
    assert not wired(node("RandomNormalLike", "x", "a"), node("RandomNormalLike", "x", "b")).same("a", "b")
