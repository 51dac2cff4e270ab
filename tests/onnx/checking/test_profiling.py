"""Multiplications against counting by hand: every product that the formula of the operator makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking import profiling  # noqa: E402

FLOAT = np.float32


def ran(proto: Any, *shapes: tuple[int, ...]) -> Any:
    model = mo.load(proto)
    with profiling.watched() as seen:
        model(*(mn.ones(*shape) for shape in shapes))
    return seen


@pytest.mark.parametrize(
    ("operator", "x", "weight", "attributes", "shape", "count"),
    [
        ("Conv", (2, 4, 9, 9), (6, 4, 3, 3), {}, (2, 6, 7, 7), 2 * 6 * 7 * 7 * 4 * 9),
        ("Conv", (1, 4, 9, 9), (4, 1, 3, 3), {"group": 4, "strides": [2, 2]}, (1, 4, 4, 4), 4 * 16 * 9),
        ("Conv", (1, 4, 9, 9), (4, 2, 3, 3), {"group": 2, "dilations": [3, 3]}, (1, 4, 3, 3), 4 * 9 * 2 * 9),
        ("ConvTranspose", (1, 4, 3, 3), (4, 5, 2, 2), {"strides": [2, 2]}, (1, 5, 6, 6), 4 * 9 * 5 * 4),
        ("MatMul", (2, 5, 3), (3, 7), {}, (2, 5, 7), 2 * 5 * 7 * 3),
        ("MatMul", (5, 3), (3,), {}, (5,), 5 * 3),
        ("Gemm", (5, 3), (7, 3), {"transB": 1}, (5, 7), 5 * 7 * 3),
        ("Gemm", (3, 5), (3, 7), {"transA": 1}, (5, 7), 5 * 7 * 3),
        ("Einsum", (2, 5, 3), (3, 7), {"equation": "bik,kj->bij"}, (2, 5, 7), 2 * 5 * 7 * 3),
        ("Mul", (2, 5, 3), (3,), {}, (2, 5, 3), 0),
    ],
)
def test_products_are_counted(
    operator: str, x: Any, weight: Any, attributes: Any, shape: Any, count: int, graph_of: Any
) -> None:
    node = h.make_node(operator, ["x", "w"], ["y"], **attributes)
    seen = ran(graph_of([node], {"x": (FLOAT, list(x))}, ["y"], {"w": np.ones(weight, FLOAT)}), x)
    assert seen == {"y": profiling.Ran(shape, count)}


def test_a_recurrent_layer_multiplies_its_weights_at_every_step(graph_of: Any) -> None:
    held = {"w": np.ones((2, 12, 4), FLOAT), "r": np.ones((2, 12, 3), FLOAT)}
    node = h.make_node("LSTM", ["x", "w", "r"], ["y", "", "c"], hidden_size=3, direction="bidirectional")
    seen = ran(graph_of([node], {"x": (FLOAT, [5, 6, 4])}, ["y", "c"], held), (5, 6, 4))
    assert seen == {
        "y": profiling.Ran((5, 2, 6, 3), 5 * 6 * 2 * 12 * (4 + 3)),
        "c": profiling.Ran((2, 6, 3), 0),
    }


def test_nobody_watches_afterwards_nor_the_runs_of_another(graph_of: Any) -> None:
    model = mo.load(graph_of([h.make_node("Relu", ["x"], ["y"])], {"x": (FLOAT, [2])}, ["y"]))
    with pytest.raises(KeyError), profiling.watched() as seen:
        raise KeyError
    model(mn.ones(2))
    assert seen == {}
