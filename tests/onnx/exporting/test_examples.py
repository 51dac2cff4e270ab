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
    assert examples.free_axes(model.inputs, {}) == {"x": {0: "n", 2: "h", 3: "x_axis_3"}}
    assert examples.example(model, {"x": (1, 1, 50, 50)})[0].shape == (1, 1, 50, 50)
    with pytest.raises(ValueError, match="does not run on random inputs of the shapes it declares"):
        examples.example(model, {"x": (1, 1, 5, 5)})
