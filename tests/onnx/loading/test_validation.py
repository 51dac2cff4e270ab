from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

X = {"x": (np.float32, [1, 2, 4, 4])}
W = {"w": np.ones((2, 2, 3, 3), np.float32)}


def refused(proto: Any, message: str, flags: int = 0) -> None:
    with pytest.raises(mo.LoadError, match=re.compile(message, flags)):
        mo.load(proto)


@pytest.fixture
def sound(graph_of: Any) -> Any:
    return graph_of([h.make_node("Relu", ["x"], ["y"])], X, ["y"])


def test_headers(sound: Any) -> None:
    mo.load(sound)

    def changed(**fields: Any) -> Any:
        proto = onnx.ModelProto()
        proto.CopyFrom(sound)
        for name, value in fields.items():
            if value is None:
                proto.ClearField(name)
            else:
                setattr(proto, name, value)
        return proto

    refused(changed(ir_version=1000), "ir_version is 1000; expected 1 to")
    refused(changed(ir_version=-1), "ir_version is -1")
    refused(changed(graph=None), "the model has no graph")
    refused(changed(opset_import=None), "does not say which opset it is of")
    for opset in (0, -1, 1000, 2**62):
        proto = changed()
        proto.opset_import[0].version = opset
        refused(proto, f"of opset {opset}; minorm knows opsets 1 to 28")
    proto = changed()
    proto.opset_import.append(h.make_opsetid("ai.onnx", 12))
    refused(proto, "imports two opsets of domain ''")
    proto = changed()
    proto.opset_import[0].domain = "ai.onnx"
    mo.load(proto)
    proto = changed()
    proto.graph.ClearField("output")
    refused(proto, "the graph has no outputs")
    proto = changed()
    proto.graph.sparse_initializer.add()
    refused(proto, "the values of sparse initializer .* is UNDEFINED")
    mo.load(changed(ir_version=1, opset_import=None))


def test_order_and_names(graph_of: Any) -> None:
    def node(reads: str, writes: str) -> Any:
        return h.make_node("Relu", [reads], [writes])

    refused(graph_of([node("b", "a"), node("a", "b")], X, ["b"]), "reads 'b', which is computed later: .* a cycle")
    refused(graph_of([node("y", "y")], X, ["y"]), "reads 'y', which is computed later")
    refused(graph_of([node("z", "y")], X, ["y"]), "reads 'z', which nothing computes")
    refused(graph_of([node("x", "y"), node("x", "y")], X, ["y"]), "computes 'y', which exists already")
    refused(graph_of([node("x", "x")], X, ["x"]), "computes 'x', which exists already")
    refused(graph_of([node("x", "y")], X, ["z"]), "'z' is an output of the graph, but nothing computes it")
    twice = graph_of([node("x", "y")], X, ["y"], W)
    twice.graph.initializer.append(twice.graph.initializer[0])
    refused(twice, "two initializers are called 'w'")
    twice = graph_of([node("x", "y")], X, ["y"])
    twice.graph.input.append(twice.graph.input[0])
    refused(twice, "two inputs of the graph are called 'x'")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"strides": [0, 1]}, r"strides is \[0, 1\]; expected at least 1"),
        ({"strides": [1, -1]}, "strides is"),
        ({"strides": [2**40, 1]}, "at most 2147483647"),
        ({"dilations": [0, 0]}, "dilations is"),
        ({"kernel_shape": [0, 3]}, "kernel_shape is"),
        ({"group": 0}, "group is 0; expected at least 1"),
        ({"group": -2}, "group is -2"),
        ({"pads": [0, 0, -1, 0]}, "pads is"),
        ({"pads": [0, 0, 2**62, 0]}, "pads is"),
        ({"strides": 1.5}, "attribute 'strides' is 1.5; expected list"),
        ({"strides": [1.5, 1.5]}, "attribute 'strides' is"),
        ({"group": "1"}, "attribute 'group' is '1'; expected int"),
        ({"auto_pad": 3}, "attribute 'auto_pad' is 3; expected str"),
        ({"speed": 3}, "has an attribute 'speed', which this version lacks; it has: auto_pad, dilations, group"),
    ],
)
def test_attributes(attributes: dict[str, Any], message: str, graph_of: Any) -> None:
    refused(graph_of([h.make_node("Conv", ["x", "w"], ["y"], name="n", **attributes)], X, ["y"], W), message)


def test_attributes_that_are_broken_in_themselves(graph_of: Any) -> None:
    proto = graph_of([h.make_node("Conv", ["x", "w"], ["y"], name="n", auto_pad="VALID")], X, ["y"], W)
    proto.graph.node[0].attribute[0].s = b"\xff\xfe"
    refused(proto, "attribute 'auto_pad' of node 'n' .*is no UTF-8 text")
    proto.graph.node[0].attribute.append(proto.graph.node[0].attribute[0])
    refused(proto, "node 'n' has two attributes 'auto_pad'")


def test_numbers_of_inputs_and_outputs(graph_of: Any) -> None:
    refused(graph_of([h.make_node("Conv", ["x"], ["y"])], X, ["y"]), "has 1 inputs; expected 2 to 3")
    refused(graph_of([h.make_node("Conv", ["x", ""], ["y"])], X, ["y"]), "lacks input 1, W")
    refused(graph_of([h.make_node("Relu", ["x", "x"], ["y"])], X, ["y"]), "has 2 inputs; expected 1 to 1")
    refused(graph_of([h.make_node("Relu", ["x"], ["y", "z"])], X, ["y"]), "has 2 outputs; expected 1 to 1")
    refused(graph_of([h.make_node("Relu", [], ["y"])], X, ["y"]), "has 0 inputs")


def test_types_and_shapes_that_nobody_needs_may_be_left_out(graph_of: Any) -> None:
    proto = graph_of([h.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, None)}, ["y"])
    proto.graph.output[0].ClearField("type")
    assert mo.load(proto).inputs[0].shape is None


def test_the_checker_of_onnx_which_is_cpp_never_sees_a_foreign_file(
    graph_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("C++ of the onnx package was handed the model")

    for owner, names in (
        (onnx.checker, ("check_model", "check_graph", "check_node")),
        (onnx.shape_inference, ("infer_shapes",)),
        (onnx.version_converter, ("convert_version",)),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, refuse)
    mo.load(graph_of([h.make_node("Conv", ["x", "w"], ["y"])], X, ["y"], W))
    refused(graph_of([h.make_node("Conv", ["x", "w"], ["y"], axis=1)], X, ["y"], W), "has an attribute 'axis'")


@pytest.mark.parametrize(
    ("operator", "version", "extra"),
    [("GroupNormalization", 18, {"num_groups": 1}), ("MeanVarianceNormalization", 13, {})],
)
def test_what_the_checker_refuses_wrongly_is_loaded(
    operator: str, version: int, extra: dict[str, Any], one_node: Any
) -> None:
    x = np.ones((2, 2, 3, 3), np.float32)
    one = np.ones(1, np.float32)
    inputs = [x, one, one] if version == 18 else [x]
    assert mo.load(one_node(operator, inputs, version, **extra)) is not None


def test_names_that_are_no_text_are_refused(graph_of: Any) -> None:
    proto = graph_of([h.make_node("Relu", ["x"], ["y_xxxx"], name="node_xxxx")], X, ["y_xxxx"], {"w_xxxx": W["w"]})
    sound = proto.SerializeToString()
    mo.load(sound)
    for name in (b"y_xxxx", b"node_xxxx", b"w_xxxx", b"Relu"):
        with pytest.raises(mo.LoadError, match=r"UTF-8|utf-8"):
            mo.load(sound.replace(name, name[:-1] + b"\xff"))


@pytest.mark.parametrize("epsilon", [-1e-5, float("nan"), float("inf")])
@pytest.mark.parametrize("operator", ["BatchNormalization", "InstanceNormalization", "LayerNormalization"])
def test_an_epsilon_that_makes_no_sense_is_named(operator: str, epsilon: float, one_node: Any) -> None:
    held = {"BatchNormalization": 4, "InstanceNormalization": 2, "LayerNormalization": 2}[operator]
    length = 3 if operator == "LayerNormalization" else 2
    inputs = [np.ones((2, 2, 3, 3), np.float32), *[np.ones(length, np.float32)] * held]
    proto = one_node(operator, inputs, 17, held=range(1, held + 1), epsilon=epsilon)
    refused(proto, f"load: {operator} .*, node 'node': epsilon is .*; expected a finite number of at least 0")
    mo.load(one_node(operator, inputs, 17, held=range(1, held + 1), epsilon=0.0))
