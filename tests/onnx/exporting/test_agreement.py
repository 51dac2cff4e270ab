"""The values that several runs agree on: plain numbers, Sizes, or why they do not agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import minorm as mn
from minorm.onnx.exporting.agreement import Agreement, same
from minorm.onnx.graph.errors import ExportError, Unstable
from minorm.onnx.graph.model_graph import Graph
from minorm.onnx.graph.sizes import Size, Symbols


def agreement(probe: bool = False, follower: dict[str, int] | None = None) -> Agreement:
    graph = Graph(17, Symbols(("n", "h"), (2, 8), ((4,), (64, 97))), scope="head")
    return Agreement(graph, probe, follower)


def test_lengths_that_differ_are_sizes() -> None:
    runs = agreement()
    assert runs.length([5, 5, 5, 5], "axis 0") == 5
    assert runs.length([2, 4, 2, 2], "axis 0") == Size((2, 4, 2, 2))
    tensors = [mn.ones(2, 3), mn.ones(4, 3), mn.ones(2, 3), mn.ones(2, 3)]
    assert runs.shape(tensors, "of x") == (Size((2, 4, 2, 2)), 3)


def test_what_may_not_follow_a_free_axis_says_which_axis() -> None:
    with pytest.raises(
        Unstable, match="the rank of x in head depends on the length of the free axis 'n': it is 2 at length 2"
    ):
        agreement().shape([mn.ones(2, 3), mn.ones(4), mn.ones(2, 3), mn.ones(2, 3)], "of x")
    with pytest.raises(Unstable, match=r"mode in head depends .* 'h': it is a at length 8, but b at length 97"):
        agreement().equal(["a", "a", "a", "b"], "mode")


def test_nothing_may_follow_the_values() -> None:
    runs = agreement(probe=True)
    with pytest.raises(ExportError, match="axis 0 in head depends on the input's values"):
        runs.length([2, 4, 2, 2, 3], "axis 0")
    with pytest.raises(ExportError, match=r"b of shape \(2,\) is computed from the input's values"):
        runs.constant([np.ones(2)] * 4 + [np.zeros(2)], "b")
    assert np.isnan(runs.equal([np.nan] * 5, "eps"))


@pytest.mark.parametrize(
    ("what", "note"),
    [
        (lambda runs: runs.length([8, 8, 8, 8, 9], "axis 2"), "axis 2 is 8 in the file, 9 in the model"),
        (lambda runs: runs.length([16, 16, 128, 194, 21], "axis 2"), "axis 2 is 20 in the file, 21 in the model"),
        (lambda runs: runs.equal([1.5, 1.5, 1.5, 1.5, 2.5], "scale"), "scale is 1.5 in the file, 2.5 in the model"),
        (
            lambda runs: runs.constant([np.ones(2)] * 4 + [np.zeros(2)], "b"),
            "b of shape (2,) holds different numbers in the file and in the model",
        ),
    ],
)
def test_a_follower_has_no_say_but_its_strays_are_noted(what: Any, note: str) -> None:
    runs = agreement(follower={"n": 3, "h": 10})
    what(runs)
    assert runs.notes == [note]


def test_a_follower_that_keeps_to_the_formula_leaves_no_note() -> None:
    runs = agreement(follower={"n": 3, "h": 10})
    runs.length([16, 16, 128, 194, 20], "axis 2")
    runs.length([4, 4, 32, 49, 5], "axis 2")  # half of h, rounded up: no formula, so that nothing is known
    runs.constant([np.ones(2)] * 5, "b")
    assert not runs.notes
    with pytest.raises(Unstable, match="the operation in head is relu in the file, tanh in the model"):
        runs.agree("the operation", ["relu"] * 4 + ["tanh"])


def test_arrays_are_the_same_with_their_nan_and_their_type() -> None:
    assert same(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    assert not same(np.ones(2, np.float32), np.ones(2))
