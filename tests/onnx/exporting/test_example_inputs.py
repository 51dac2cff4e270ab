from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.exporting.example_inputs import disturbed, inputs_of, resized


def test_examples_of_other_sizes_and_values() -> None:
    x = mn.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert resized(x, {0: 5}).tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert resized(x, {}).tolist() == x.tolist()
    assert resized(mn.tensor(2.5), {}).shape == ()
    assert np.allclose(disturbed(x).array, x.array[::-1, ::-1] * 0.9)
    assert disturbed(mn.tensor([1, 2])).tolist() == [2, 1]
    assert disturbed(mn.ones(2, dtype=mn.bfloat16)).dtype == mn.bfloat16


def test_other_examples_have_other_lengths_of_free_axes() -> None:
    x, y = mn.ones(2, 8, 6), mn.ones(2)
    axes = {"x": {0: "n", 1: "h", -1: "w"}, "y": {0: "n"}}
    inputs = inputs_of(lambda x, flag, y: None, (x, True, y), None, None, axes)
    assert inputs.names == ["x", "y"]
    assert (inputs.symbols.names, inputs.symbols.base, inputs.leading) == (("n", "h", "w"), (2, 8, 6), {0})
    found = [[a.shape for a in inputs.resized(own) if isinstance(a, mn.Tensor)] for own in ({0: 4}, {1: 16, 2: 5})]
    assert found == [[(4, 8, 6), (4,)], [(2, 16, 5), (2,)]]
    assert inputs.resized({0: 4})[1] is True
    assert [a.shape for a in inputs.fixed().tensors] == [(2, 8, 6), (2,)]


@pytest.mark.parametrize(
    ("function", "count", "names"),
    [
        (lambda x: x, 1, ["x"]),
        (lambda *x: x, 1, ["input"]),
        (lambda a, *x: a, 3, ["a", "input_1", "input_2"]),
        (nn.ReLU(), 1, ["x"]),
    ],
)
def test_inputs_are_named_after_forwards_parameters(function: Any, count: int, names: list[str]) -> None:
    assert inputs_of(function, (mn.ones(2),) * count, None, None, None).names == names


def test_what_cannot_be_an_example_is_refused() -> None:
    for args in ([mn.ones(2)], (mn.ones(2), {"mask": mn.ones(2)}), np.ones(2), (mn.ones(2), [np.ones(2)])):
        with pytest.raises(TypeError, match=r"export: argument \d is (list|dict|ndarray); expected a Tensor"):
            inputs_of(lambda *x: x, args, None, None, None)
    with pytest.raises(TypeError, match="args holds no Tensor"):
        inputs_of(lambda *x: x, (1.0, "relu"), None, None, None)


def test_one_tensor_may_be_passed_twice_or_be_a_parameter() -> None:
    layer = nn.Linear(3, 3)
    x = layer.weight.detach()
    proto = mo.export(lambda a, b: F.linear(a, layer.weight) + b, (x, x), None)
    assert [i.name for i in proto.graph.input] == ["a", "b"]
    assert [list(node.input) for node in proto.graph.node][-1][1] == "b"
    assert len(proto.graph.initializer) == 1


def test_a_scalar_input_beside_free_axes(proved: Any, graph_of: Any) -> None:
    """A loaded graph declares that it has no axes, and so it must come with none at the other sizes too."""
    nodes = [helper.make_node("Mul", ["x", "t"], ["u"]), helper.make_node("Relu", ["u"], ["y"])]
    model = mo.load(graph_of(nodes, {"x": (np.float32, ["n", 3, "h"]), "t": (np.float32, [])}, ["y"]))
    free = {"x": {0: "n", 2: "h"}}
    model.original = None  # so it is traced
    proto = proved(model, mn.randn(2, 3, 8), mn.tensor(np.float32(0.5)), dynamic_axes=free)
    assert [len(entry.type.tensor_type.shape.dim) for entry in proto.graph.input] == [3, 0]
    again = mo.load(mo.convert(proto, None, opset_version=13))
    x, t = mn.randn(3, 3, 5), mn.tensor(np.float32(-2))
    np.testing.assert_array_equal(again(x, t).array, model(x, t).array)
