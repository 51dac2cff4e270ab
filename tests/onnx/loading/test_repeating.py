"""Loops in a loaded model: layers in its body, other types, deep copies, and what export makes of it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.graph import trace

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

F32 = np.float32
RNG = np.random.default_rng(0)


def body(nodes: list[Any], inputs: list[str], outputs: list[str], **held: Any) -> Any:
    entries = [[h.make_empty_tensor_value_info(name) for name in names] for names in (inputs, outputs)]
    return h.make_graph(
        nodes, "body", *entries, [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in held.items()]
    )


def network(graph_of: Any, count: str = "n") -> Any:
    """v = batch_norm(v @ w) + 0.5 x, as often as `count` says, and the number of the turn beside it."""
    inside = body(
        [
            h.make_node("MatMul", ["v", "w"], ["p"]),
            h.make_node("BatchNormalization", ["p", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["q", "m", "s"],
                        training_mode=1, name="bn"),
            h.make_node("Mul", ["x", "half"], ["r"]),
            h.make_node("Add", ["q", "r"], ["v2"]),
        ],
        ["i", "c", "v"], ["c", "v2", "i"], half=F32(0.5),
    )  # fmt: skip
    nodes = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Gather", ["shape", "zero"], ["rows"]),
        h.make_node("Loop", [count, "", "x"], ["y", "turns"], body=inside, name="loop"),
    ]
    held = {"w": RNG.standard_normal((3, 3)).astype(F32), "n": np.array(3), "zero": np.array(0)}
    held |= {f"bn.{name}": np.ones(3, F32) * k for k, name in enumerate(("bias", "weight", "mean", "var"))}
    return graph_of(nodes, {"x": (F32, [4, 3])}, ["y", "turns"], held)


def test_a_layer_in_a_loop_has_state_and_a_mode(graph_of: Any) -> None:
    model = mo.load(network(graph_of))
    assert {name for name, _ in model.named_buffers()} == {"bn.mean", "bn.var"}
    layer = model.get_submodule("bn")
    assert layer.training
    x = mn.Tensor(RNG.standard_normal((4, 3)).astype(F32))
    v, mean, w = x.array, np.full(3, 2.0, F32), dict(model.named_parameters())["w"].array
    _, turns = model(x)
    for _ in range(3):
        p = v @ w
        mean = 0.9 * mean + 0.1 * p.mean(0)
        v = (p - p.mean(0)) / np.sqrt(p.var(0) + 1e-5) + 0.5 * x.array
    assert turns.tolist() == [0, 1, 2]
    np.testing.assert_allclose(dict(model.named_buffers())["bn.mean"].array, mean, rtol=1e-4)
    model.eval()
    assert not layer.training
    first = model(x)[0].array
    np.testing.assert_array_equal(model(x)[0].array, first)
    np.testing.assert_allclose(dict(model.named_buffers())["bn.mean"].array, mean, rtol=1e-4)


@pytest.mark.parametrize("dtype", [mn.float64, mn.float16])
def test_a_loop_is_converted_with_its_model(dtype: Any, graph_of: Any) -> None:
    model = mo.load(network(graph_of)).eval()
    x = mn.Tensor(RNG.standard_normal((4, 3)).astype(F32))
    want = model(x)[0].array
    y, turns = model.to(dtype)(x.to(dtype))
    assert (y.dtype, turns.dtype) == (dtype, np.int64)
    np.testing.assert_allclose(y.array.astype(F32), want, rtol=2e-2 if dtype == mn.float16 else 1e-5, atol=1e-2)


def test_copies_are_models_of_their_own(graph_of: Any) -> None:
    model = mo.load(network(graph_of)).eval()
    other = copy.deepcopy(model)
    x = mn.ones(4, 3)
    want = model(x)[0].array
    dict(other.named_parameters())["w"].array[...] = 0
    assert not np.array_equal(other(x)[0].array, want)
    np.testing.assert_array_equal(model(x)[0].array, want)


class Around(mn.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> Any:
        return self.inner(*args) * 2


def test_a_trace_shows_turn_by_turn_what_shapes_count(graph_of: Any) -> None:
    x = mn.Tensor(RNG.standard_normal((4, 3)).astype(F32))
    model = mo.load(network(graph_of, "rows")).eval()
    assert model(x)[1].tolist() == [0, 1, 2, 3]
    counted = network(graph_of, "times")
    counted.graph.input.append(h.make_tensor_value_info("times", onnx.TensorProto.INT64, []))
    again = mo.load(counted).eval()
    assert again(x, mn.tensor(2))[1].tolist() == [0, 1]
    with trace.record() as calls:
        model(x)
        again(x, mn.tensor(2))
    names, waiting = [], list(calls)
    while waiting:
        call = waiting.pop(0)
        names.append(getattr(call.target, "__name__", ""))
        waiting += call.children
    assert names.count("MatMul") == 4
    assert names.count("Loop") == 1


def test_a_loop_inside_another_module_is_written_as_its_file_has_it(graph_of: Any) -> None:
    proto = network(graph_of, "times")
    proto.graph.input.append(h.make_tensor_value_info("times", onnx.TensorProto.INT64, []))
    outer = Around(mo.load(proto, outputs=["y"]).eval())
    x = mn.Tensor(RNG.standard_normal((4, 3)).astype(F32))
    written = mo.export(outer, (x, mn.tensor(2)), None)
    assert "Loop" in {node.op_type for node in written.graph.node}
    again = mo.load(written)
    for n in (1, 5):
        np.testing.assert_allclose(again(x, mn.tensor(n)).array, outer(x, mn.tensor(n)).array, rtol=1e-6)


def test_it_is_written_back_as_it_came(graph_of: Any) -> None:
    proto = network(graph_of)
    model = mo.load(proto).eval()
    back = mo.export(model, None, None)
    assert [node.op_type for node in back.graph.node] == [
        node.op_type for node in mo.load(proto).original.model.graph.node
    ]
    x = mn.ones(4, 3)
    np.testing.assert_array_equal(mo.load(back)(x)[0].array, model(x)[0].array)
