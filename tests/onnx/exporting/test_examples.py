from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper

import minorm.onnx as mo
from minorm.onnx.exporting import examples


def test_examples_find_lengths_that_the_model_takes(graph_of: Any) -> None:
    pool = graph_of(
        [helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[40, 40])],
        {"x": (np.float32, ["n", 1, "h", None])},
        ["y"],
    )
    model = mo.load(pool)
    (x,) = examples.example(model)
    assert x.shape == (2, 1, 64, 64)
    assert examples.free_axes(model.inputs) == {"x": {0: "n", 2: "h", 3: "x_axis_3"}}
    assert examples.example(model, {"x": (1, 1, 50, 50)})[0].shape == (1, 1, 50, 50)
    assert examples.example(model, {"h": 41})[0].shape == (2, 1, 41, 64)
    with pytest.raises(ValueError, match="does not run on random inputs of the shapes it declares"):
        examples.example(model, {"x": (1, 1, 5, 5)})
    with pytest.raises(ValueError, match=r"there is no input and no free axis 'w'; the model has x \(n, 1, h, \?\)"):
        examples.example(model, {"w": 41})


def test_inputs_that_are_too_large_are_not_made(graph_of: Any) -> None:
    relu = graph_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, ["n", 1 << 40])}, ["y"])
    model = mo.load(relu)
    with pytest.raises(ValueError, match=f"an input would have {1 << 40} elements; expected at most {examples.MOST}"):
        examples.example(model, {"n": 1})
    assert examples.exact(model.inputs, examples.Guess({"n": 1})) is None
    assert examples.exact(model.inputs, examples.Guess({})) is None
