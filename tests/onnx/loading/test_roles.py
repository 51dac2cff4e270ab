from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

F32 = np.float32
ONE = np.ones((), F32)


def parameters(graph_of: Any, nodes: list[Any], outputs: list[str], **initializers: Any) -> list[str]:
    inputs = {"x": (F32, [2, 3, 4, 4])}
    model = mo.load(graph_of(nodes, inputs, outputs, initializers))
    return [name for name, _ in model.named_parameters()]


@pytest.mark.parametrize(
    ("between", "trained"),
    [
        ([h.make_node("Reshape", ["w", "shape"], ["v"])], True),
        ([h.make_node("Unsqueeze", ["w", "axes"], ["v"])], True),
        ([h.make_node("Transpose", ["w"], ["v"])], True),
        ([h.make_node("Mul", ["w", "w"], ["v"])], True),
        ([h.make_node("Cast", ["w"], ["d"], to=11), h.make_node("Cast", ["d"], ["v"], to=1)], True),
        ([h.make_node("Cast", ["w"], ["i"], to=7), h.make_node("Cast", ["i"], ["v"], to=1)], False),
        ([h.make_node("Shape", ["w"], ["i"]), h.make_node("ReduceSum", ["i"], ["n"]),
          h.make_node("Cast", ["n"], ["v"], to=1)], False),
        ([h.make_node("Greater", ["w", "w"], ["b"]), h.make_node("Cast", ["b"], ["v"], to=1)], False),
        ([h.make_node("ArgMax", ["w"], ["i"]), h.make_node("Cast", ["i"], ["v"], to=1)], False),
        ([h.make_node("Where", ["yes", "w", "zero"], ["v"])], True),
    ],
)  # fmt: skip
def test_gradient_decides(between: list[Any], trained: bool, graph_of: Any) -> None:
    found = parameters(
        graph_of,
        [*between, h.make_node("Add", ["x", "v"], ["y"])],
        ["y"],
        w=np.ones((1, 1), F32),
        shape=np.array([1, 1, 1]),
        axes=np.array([0]),
        yes=np.array(True),
        zero=np.zeros((), F32),
    )
    assert ("w" in found) == trained


def test_operands_without_a_gradient_are_constants(graph_of: Any) -> None:
    nodes = [
        h.make_node("Clip", ["x", "low", "high"], ["a"]),
        h.make_node("Pad", ["a", "pads", "fill"], ["b"]),
        h.make_node("Resize", ["b", "", "scales"], ["c"]),
        h.make_node("Dropout", ["c", "ratio"], ["d"]),
        h.make_node("Mul", ["d", "w"], ["y"]),
    ]
    scales, pads = np.ones(4, F32), np.zeros(8, np.int64)
    values = {"low": -ONE, "high": ONE, "pads": pads, "fill": ONE, "scales": scales, "ratio": ONE / 2, "w": ONE}
    assert parameters(graph_of, nodes, ["y"], **values) == ["w"]


def test_what_no_output_needs_is_left_out(graph_of: Any) -> None:
    nodes = [h.make_node("Mul", ["x", "w"], ["y"]), h.make_node("Mul", ["y", "v"], ["z"])]
    assert parameters(graph_of, nodes, ["y"], w=ONE, v=ONE) == ["w"]
    assert parameters(graph_of, nodes, ["z"], w=ONE, v=ONE, u=ONE) == ["w", "v"]


def batch_norm(name: str, reads: str, writes: str, parts: list[str], **options: Any) -> Any:
    return h.make_node("BatchNormalization", [reads, *parts], [writes], name, **options)


def test_one_layer_called_twice_has_one_set_of_statistics(graph_of: Any) -> None:
    parts = ["bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
    nodes = [batch_norm("a", "x", "h", parts), batch_norm("b", "h", "y", parts)]
    values = {name: np.full(3, i + 0.5, F32) for i, name in enumerate(parts)}
    model = mo.load(graph_of(nodes, {"x": (F32, [None, 3])}, ["y"], values))
    assert list(model.state_dict()) == parts
    assert [path for path, m in model.named_modules() if path] == ["bn", "bn_1"]
    model.train()(mn.randn(5, 3))
    model.get_submodule("bn").freeze()
    assert not any(p.requires_grad for p in model.parameters())


def test_statistics_handed_on_by_identity_belong_to_the_layer_that_reads_them(graph_of: Any) -> None:
    """PyTorch's exporter writes equal initializers once, and hands them on to the other layers by Identity."""
    parts = ["1.weight", "1.bias", "1.running_mean", "1.running_var"]
    others = ["2.weight", "2.bias", "2.running_mean", "2.running_var"]
    nodes = [
        *[h.make_node("Identity", [a], [b]) for a, b in zip(parts, others, strict=True)],
        batch_norm("a", "x", "h", parts, epsilon=1.0),
        batch_norm("b", "h", "y", others),
    ]
    values = {name: np.full(3, i + 0.5, F32) for i, name in enumerate(parts)}
    model = mo.load(graph_of(nodes, {"x": (F32, [None, 3])}, ["y"], values))
    assert [name for name, _ in model.named_parameters()] == parts[:2]
    assert [name for name, _ in model.named_buffers()] == [*parts[2:], *others[2:]]
    model.train()(mn.randn(5, 3))
    buffers = dict(model.named_buffers())
    assert (buffers["1.running_var"].data != buffers["2.running_var"].data).all()


def test_statistics_in_constant_nodes_are_the_layers_own(graph_of: Any) -> None:
    nodes = [
        h.make_node("Constant", [], ["m"], value_floats=[0.0, 1.0, 2.0]),
        h.make_node("Constant", [], ["v"], value_floats=[1.0, 2.0, 3.0]),
        batch_norm("n", "x", "y", ["s", "b", "m", "v"]),
    ]
    values = {"s": np.ones(3, F32), "b": np.zeros(3, F32)}
    model = mo.load(graph_of(nodes, {"x": (F32, [None, 3])}, ["y"], values))
    assert list(model.state_dict()) == ["s", "b", "m", "v"]
    model.train()(mn.randn(5, 3))
    assert model.state_dict()["m"].tolist() != [0, 1, 2]


def test_no_gradient_passes_integers_so_an_exponent_of_them_is_a_constant(graph_of: Any) -> None:
    nodes = [
        h.make_node("Pow", ["n", "p"], ["m"]),
        h.make_node("Add", ["m", "m"], ["twice"]),
        h.make_node("Cast", ["twice"], ["f"], to=1),
        h.make_node("Mul", ["f", "w"], ["y"]),
    ]
    half = {"p": np.array(0.5, F32), "w": np.ones(2, F32)}
    first = mo.load(graph_of(nodes, {"n": (np.int64, [None])}, ["y"], half))
    x = mn.tensor(np.array([4, 9]))
    assert first(x).tolist() == [4, 6]
    second = mo.load(mo.export(first, x, dynamic_axes={}))
    for model in (first, second):
        assert [name for name, _ in model.named_parameters()] == ["w"]
    moving = mo.load(graph_of([h.make_node("Pow", ["x", "p"], ["y"])], {"x": (F32, [2])}, ["y"], {"p": half["p"]}))
    assert [name for name, _ in moving.named_parameters()] == ["p"]  # of floats it can be trained


def test_statistics_that_many_layers_share_get_names_in_linear_time(graph_of: Any) -> None:
    n = 1500
    names = ["x", *(f"v{i}" for i in range(n - 1)), "y"]
    scales = {f"s{i}": np.full(3, i, F32) for i in range(n)}
    nodes = [
        h.make_node("BatchNormalization", [names[i], f"s{i}", "one", "one", "one"], [names[i + 1]]) for i in range(n)
    ]
    model = mo.load(graph_of(nodes, {"x": (F32, [2, 3, 4, 4])}, ["y"], {**scales, "one": np.ones(3, F32)}))
    buffers = [name for name, _ in model.named_buffers()]
    assert buffers[:3] == ["one_1", "one_2", "one_3"]
    assert len(set(buffers)) == len(buffers) == 2 * n
