from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.exporting.inputs import disturbed, inputs_of, resized


def test_examples_of_other_sizes_and_values() -> None:
    x = mn.tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert resized(x, {0: 5}).tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert resized(x, {}).tolist() == x.tolist()
    assert np.allclose(disturbed(x).data, x.data[::-1, ::-1] * 0.9)
    assert disturbed(mn.tensor([1, 2])).tolist() == [2, 1]
    assert disturbed(mn.ones(2, dtype=mn.bfloat16)).dtype == mn.bfloat16


def test_the_other_examples_differ_in_one_free_axis_each() -> None:
    x, y = mn.ones(2, 8, 6), mn.ones(2)
    axes = {"x": {0: "n", 1: "h", -1: "w"}, "y": {0: "n"}}
    inputs = inputs_of(lambda x, flag, y: None, (x, True, y), None, None, axes)
    assert inputs.names == ["x", "y"]
    shapes = [[a.shape for a in inputs.resized(i) if isinstance(a, mn.Tensor)] for i in range(3)]
    assert shapes == [[(4, 8, 6), (4,)], [(2, 16, 6), (2,)], [(2, 8, 12), (2,)]]
    assert inputs.resized(0)[1] is True
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
