"""Folds nodes that compute from constants alone, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper

import minorm.onnx as mo
from minorm.onnx.conversion.constant_folding import folded

make = helper.make_node


def model(graph_of: Any) -> Any:
    """A padding that is written backwards and turned round, as an older exporter of PyTorch does."""
    nodes = [
        make("Slice", ["given", "last", "first", "axis", "back"], ["pads"], name="turn"),
        make("Pad", ["x", "pads"], ["padded"], name="pad"),
        make("Shape", ["padded"], ["shape"]),
        make("Add", ["shape", "axis"], ["y"]),
        make("RandomNormal", [], ["noise"], shape=[2]),
        make("Identity", ["noise"], ["same"]),
        make("Add", ["same", "x"], ["z"]),
    ]
    held = {"given": np.array([0, 2, 1, 0]), "last": np.array([-1]), "first": np.array([-9]), "axis": np.array([0]),
            "back": np.array([-1])}  # fmt: skip
    return graph_of(nodes, {"x": (np.float32, ["n", 2])}, ["y", "z"], held)


def test_values_that_depend_on_no_input(graph_of: Any) -> None:
    found = folded(model(graph_of))
    assert list(found) == ["pads"]
    np.testing.assert_array_equal(found["pads"], [0, 1, 2, 0])


def test_the_chain_goes_with_the_attribute_that_it_became(graph_of: Any) -> None:
    new = mo.convert(model(graph_of), opset_version=9)
    pad = next(node for node in new.graph.node if node.op_type == "Pad")
    assert list(pad.input) == ["x"]
    assert next(list(a.ints) for a in pad.attribute if a.name == "pads") == [0, 1, 2, 0]
    assert "turn" not in [node.name for node in new.graph.node]
    assert {tensor.name for tensor in new.graph.initializer} == {"axis"}


def test_weights_that_a_training_batch_norm_standardizes(graph_of: Any) -> None:
    """PyTorch's exporter writes so what a network does to its weights; onnxruntime gives the new statistics as well."""
    nodes = [
        make("BatchNormalization", ["w", "one", "zero", "zero", "one"], ["v", "m", "s"], training_mode=1),
        make("ReduceMean", ["w"], ["middle"], axes=[0, 2], keepdims=0),
        make("Conv", ["x", "v"], ["c"]),
        make("Mul", ["c", "middle"], ["y"]),
    ]
    held = {"w": np.arange(6, dtype=np.float32).reshape(2, 1, 3), "one": np.ones(1, np.float32),
            "zero": np.zeros(1, np.float32)}  # fmt: skip
    old = graph_of(nodes, {"x": (np.float32, ["n", 1, 5])}, ["y"], held, 17)
    assert {name: array.shape for name, array in folded(old).items()} == {"v": (2, 1, 3), "middle": (1,)}
    new = mo.convert(old, opset_version=21, verify=True)
    assert [node.op_type for node in new.graph.node if node.op_type != "Constant"] == [n.op_type for n in nodes]
