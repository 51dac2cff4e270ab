from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

X = {"x": (np.float32, [4, 6])}


@pytest.mark.parametrize(
    ("lengths", "options", "position", "want"),
    [
        (4, {"axis": 1}, 0, np.s_[:, :4]),
        (4, {"axis": 1}, -1, np.s_[:, 4:]),
        ([1, 3, 2], {"axis": -1}, 1, np.s_[:, 1:4]),
        (None, {}, 2, np.s_[2:3]),
        (None, {"keepdims": 0}, 2, np.s_[2]),
        (None, {"keepdims": 0, "axis": 1}, 5, np.s_[:, 5]),
    ],
)
def test_split_and_pick(lengths: Any, options: dict[str, Any], position: int, want: Any, graph_of: Any) -> None:
    inputs = ["x"] if lengths is None else ["x", "lengths"]
    nodes = [h.make_node("SplitToSequence", inputs, ["s"], **options), h.make_node("SequenceAt", ["s", "p"], ["y"])]
    constants = {"lengths": np.array(0 if lengths is None else lengths), "p": np.array(position)}
    model = mo.load(graph_of(nodes, X, ["y"], constants))
    x = mn.tensor(np.random.default_rng(0).normal(size=(4, 6)), dtype=mn.float32, requires_grad=True)
    y = model(x)
    np.testing.assert_array_equal(y.array, x.array[want])
    y.sum().backward()
    assert x.grad.array.sum() == y.numel()
    again = mo.load(mo.export(model, mn.Tensor(x.array), dynamic_axes={}))
    np.testing.assert_array_equal(again(x).array, y.array)


@pytest.mark.parametrize("new_axis", [0, 1])
def test_construct_count_and_join(new_axis: int, graph_of: Any) -> None:
    nodes = [
        h.make_node("SequenceConstruct", ["x", "w", "x"], ["s"]),
        h.make_node("SequenceLength", ["s"], ["n"]),
        h.make_node("ConcatFromSequence", ["s"], ["y"], axis=1, new_axis=new_axis),
    ]
    model = mo.load(graph_of(nodes, X, ["y", "n"], {"w": np.ones((4, 6), np.float32)}))
    assert list(model.state_dict()) == ["w"]
    y, n = model(mn.zeros(4, 6))
    assert n.item() == 3
    assert y.shape == ((4, 3, 6) if new_axis else (4, 18))
    y.sum().backward()
    assert next(model.parameters()).grad.array.sum() == 24


def test_constants_may_be_sequences_too(graph_of: Any) -> None:
    nodes = [
        h.make_node("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0]),
        h.make_node("SplitToSequence", ["c"], ["s"]),
        h.make_node("SequenceAt", ["s", "p"], ["part"]),
        h.make_node("Add", ["x", "part"], ["y"]),
    ]
    model = mo.load(graph_of(nodes, X, ["y"], {"p": np.array(1)}))
    assert model(mn.zeros(4, 6)).array[0, 0] == 2


def test_lengths_of_0_and_places_beyond_the_end_are_errors(graph_of: Any) -> None:
    for lengths, position, message in (
        (0, 0, "size=0; expected at least 1"),
        (2, 9, "position is 9; expected -2 to 1"),
    ):
        nodes = [h.make_node("SplitToSequence", ["x", "n"], ["s"]), h.make_node("SequenceAt", ["s", "p"], ["y"])]
        model = mo.load(graph_of(nodes, X, ["y"], {"n": np.array(lengths), "p": np.array(position)}))
        with pytest.raises(ValueError, match=message):
            model(mn.ones(4, 6))


@pytest.mark.parametrize(
    ("position", "want"), [(None, [1, 2, 3, 9]), (0, [9, 1, 2, 3]), (3, [1, 2, 3, 9]), (-1, [1, 2, 9, 3])]
)
def test_insert(position: int | None, want: list[int], graph_of: Any) -> None:
    inputs = ["s", "nine"] if position is None else ["s", "nine", "p"]
    nodes = [
        h.make_node("SplitToSequence", ["x"], ["s"], keepdims=0),
        h.make_node("SequenceInsert", inputs, ["t"]),
        h.make_node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1),
    ]
    constants = {"nine": np.array(9.0, np.float32), "p": np.array(position or 0)}
    model = mo.load(graph_of(nodes, {"x": (np.float32, [3])}, ["y"], constants))
    x = mn.tensor([1.0, 2, 3], requires_grad=True)
    y = model(x)
    assert y.tolist() == want
    (y * y).sum().backward()
    assert x.grad.tolist() == [2, 4, 6]


@pytest.mark.parametrize(("position", "want"), [(None, [1, 2]), (0, [2, 3]), (-2, [1, 3])])
def test_erase(position: int | None, want: list[int], graph_of: Any) -> None:
    nodes = [
        h.make_node("SplitToSequence", ["x"], ["s"], keepdims=0),
        h.make_node("SequenceErase", ["s"] if position is None else ["s", "p"], ["t"]),
        h.make_node("ConcatFromSequence", ["t"], ["y"], axis=0, new_axis=1),
    ]
    model = mo.load(graph_of(nodes, {"x": (np.float32, [3])}, ["y"], {"p": np.array(position or 0)}))
    assert model(mn.tensor([1.0, 2, 3])).tolist() == want


def test_places_and_types_that_are_none(graph_of: Any) -> None:
    empty = h.make_node("SequenceEmpty", [], ["s"])
    for nodes, held, message in (
        ([h.make_node("SequenceErase", ["s"], ["t"])], {}, "position is -1; expected 0 to -1"),
        ([h.make_node("SequenceInsert", ["s", "x", "p"], ["t"])], {"p": np.array(1)}, "position is 1; expected 0 to 0"),
        ([h.make_node("SequenceInsert", ["s", "x"], ["u"]), h.make_node("SequenceInsert", ["u", "p"], ["t"])],
         {"p": np.array(1)}, "the tensor is int64; expected float32, the type of the sequence"),
    ):  # fmt: skip
        proto = graph_of(
            [empty, *nodes, h.make_node("SequenceAt", ["t", "zero"], ["y"])], X, ["y"], {**held, "zero": np.array(0)}
        )
        with pytest.raises(ValueError, match=message):
            mo.load(proto)(mn.ones(4, 6))
