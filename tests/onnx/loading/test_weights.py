"""Initial states of recurrences and folded Parameters: the elements that train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

F32 = np.float32
RNG = np.random.default_rng(0)
KIND = "pkg.torch.export.graph_signature.InputSpec.kind"


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(F32)


def shapes(model: Any) -> dict[str, tuple[int, ...]]:
    return {name: p.shape for name, p in model.named_parameters()}


def said(proto: Any, *names: str) -> Any:
    """The model, in which PyTorch says that these are Parameters."""
    for name in names:
        entry = proto.graph.value_info.add(name=name)
        entry.metadata_props.add(key=KIND, value="PARAMETER")
    return proto


ONE = draw(1, 1, 4)


@pytest.mark.parametrize(
    ("begin", "kept"),
    [
        (draw(1, 3, 4), (1, 3, 4)),
        (np.repeat(ONE, 3, 1), (1, 1, 4)),
        (np.zeros((1, 3, 4), F32), None),
        (np.full((1, 3, 4), 0.5, F32), None),
    ],
)
@pytest.mark.parametrize("operator", ["GRU", "RNN", "LSTM"])
def test_a_state_trains_if_somebody_learned_it(operator: str, begin: Any, kept: Any, graph_of: Any) -> None:
    gates = {"GRU": 3, "RNN": 1, "LSTM": 4}[operator]
    held = {
        "val_1": draw(1, 4 * gates, 2),
        "val_2": draw(1, 4 * gates, 4),
        "val_3": begin,
        "val_4": np.array([1, 3, 4]),
    }
    nodes = [
        h.make_node("Reshape", ["val_3", "val_4"], ["h"]),
        h.make_node(operator, ["x", "val_1", "val_2", "", "", "h"], ["y"], hidden_size=4),
    ]
    model = mo.load(graph_of(nodes, {"x": (F32, [5, 3, 2])}, ["y"], held))
    states = {} if kept is None else {"val_3": kept}
    assert shapes(model) == {"val_1": held["val_1"].shape, "val_2": held["val_2"].shape, **states}
    x = mn.Tensor(draw(5, 3, 2))
    y = model(x)
    y.sum().backward()
    if kept == (1, 1, 4):
        whole = mo.load(graph_of(nodes, {"x": (F32, [5, 3, 2])}, ["y"], held), trainable=["val_*"])
        whole(x).sum().backward()
        got, want = (dict(m.named_parameters())["val_3"].grad.array for m in (model, whole))
        np.testing.assert_allclose(got, want.sum(1, keepdims=True), rtol=1e-5)


def loop(begin: Any, graph_of: Any) -> Any:
    inside = h.make_graph(
        [h.make_node("MatMul", ["v", "w"], ["v2"])], "body",
        [h.make_empty_tensor_value_info(name) for name in ("i", "c", "v")],
        [h.make_empty_tensor_value_info(name) for name in ("c", "v2")],
    )  # fmt: skip
    nodes = [h.make_node("Loop", ["n", "", "val_1"], ["z"], body=inside), h.make_node("Add", ["z", "x"], ["y"])]
    return graph_of(nodes, {"x": (F32, [3, 4])}, ["y"], {"n": np.array(2), "w": draw(4, 4), "val_1": begin})


@pytest.mark.parametrize(
    ("begin", "kept"),
    [
        (draw(3, 4), (3, 4)),
        (np.repeat(ONE[0], 3, 0), (1, 4)),
        (np.zeros((3, 4), F32), None),
        (np.arange(12, dtype=F32).reshape(3, 4) // 4 * 0 + np.arange(4, dtype=F32), (1, 4)),
    ],
)
def test_so_does_what_a_loop_begins_with(begin: Any, kept: Any, graph_of: Any) -> None:
    assert shapes(mo.load(loop(begin, graph_of))) == {"w": (4, 4), **({} if kept is None else {"val_1": kept})}


def test_a_weight_of_every_turn_of_a_scan_is_one(graph_of: Any) -> None:
    inside = h.make_graph(
        [h.make_node("MatMul", ["v", "w"], ["v2"])], "body",
        [h.make_empty_tensor_value_info(name) for name in ("v", "w")], [h.make_empty_tensor_value_info("v2")],
    )  # fmt: skip
    node = h.make_node("Scan", ["x", "val_1"], ["y"], body=inside, num_scan_inputs=1)
    weights = draw(5, 4, 4)
    model = mo.load(graph_of([node], {"x": (F32, [3, 4])}, ["y"], {"val_1": weights}))
    assert shapes(model) == {"val_1": (5, 4, 4)}
    x = draw(3, 4)
    np.testing.assert_allclose(model(mn.Tensor(x)).array, x @ np.linalg.multi_dot(weights), rtol=1e-4)


def test_what_folding_spread_over_a_batch_is_the_parameter_that_it_was(graph_of: Any) -> None:
    bias = draw(4)
    held = {"cell.bias": bias, "val_1": np.broadcast_to(bias, (1, 3, 4)), "val_2": draw(1, 1, 4)}
    nodes = [
        h.make_node("Add", ["x", "val_1"], ["a"]),
        h.make_node("Add", ["a", "val_2"], ["b"]),
        h.make_node("Mul", ["b", "cell.bias"], ["y"]),
    ]
    proto = said(graph_of(nodes, {"x": (F32, [1, 3, 4])}, ["y"], held), "cell.bias")
    model = mo.load(proto)
    assert shapes(model) == {"cell.bias": (4,), "val_2": (1, 1, 4)}
    x = draw(1, 3, 4)
    y = model(mn.Tensor(x))
    np.testing.assert_allclose(y.array, (x + bias + held["val_2"]) * bias, rtol=1e-6)
    y.sum().backward()
    found = dict(model.named_parameters())["cell.bias"]
    np.testing.assert_allclose(found.grad.array, (x + 2 * bias + held["val_2"]).sum((0, 1)), rtol=1e-5)
    mn.optim.SGD(model.parameters(), lr=0.5).step()
    again = mo.export(model, None, None)
    written = {t.name: onnx.numpy_helper.to_array(t) for t in again.graph.initializer}
    np.testing.assert_array_equal(written["val_1"], np.broadcast_to(found.array, (1, 3, 4)))
    np.testing.assert_array_equal(mo.load(again)(mn.Tensor(x)).array, model(mn.Tensor(x)).array)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.5])
def test_round_numbers_say_nothing_of_where_they_come_from(value: float, graph_of: Any) -> None:
    held = {"a.bias": np.full(4, value, F32), "val_1": np.full((1, 4), value, F32)}
    nodes = [h.make_node("Add", ["x", "val_1"], ["a"]), h.make_node("Mul", ["a", "a.bias"], ["y"])]
    model = mo.load(said(graph_of(nodes, {"x": (F32, [3, 4])}, ["y"], held), "a.bias"))
    assert shapes(model) == {"a.bias": (4,)}  # nor whether they were learned
    np.testing.assert_array_equal(dict(model.constants)["val_1"].array, held["val_1"])
