"""Values that are read in one type, in two, and as outputs: who makes them, and under which names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.exporting.retyped_values import Scope  # noqa: E402

FLOAT, DOUBLE, HALF, BRAIN = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16
make = helper.make_node


def scope_of(nodes: list[Any], held: dict[str, Any] | None = None, opset: int = 17, around: Any = None) -> Scope:
    tensors = [numpy_helper.from_array(array, name) for name, array in (held or {}).items()]
    outputs = [helper.make_tensor_value_info("y", FLOAT, [1])]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info("x", FLOAT, [1])], outputs, tensors)
    scope = Scope(graph, "", opset, around)
    scope.make("x", HALF)
    for tensor in graph.initializer:
        scope.make(tensor.name, tensor.data_type, silent=True, free=tensor)
    return scope


def read(scope: Scope, place: int, index: int, elem: int = 0) -> None:
    names = scope.holder.node[place].input
    value = scope.find(names[index])
    assert value is not None
    scope.read(names, index, value, elem)


def lines(scope: Scope) -> list[str]:
    return [f"{n.op_type} {' '.join(n.input)} -> {' '.join(n.output)}" for n in scope.holder.node]


def tensors(scope: Scope) -> dict[str, int]:
    return {tensor.name: tensor.data_type for tensor in scope.holder.initializer}


THIRD = {"k": np.array([1 / 3], np.float32)}


@pytest.mark.parametrize(
    ("wanted", "held"),
    [
        ((HALF, HALF), {"k": HALF}),
        ((FLOAT, FLOAT), {"k": FLOAT}),
        ((FLOAT, HALF), {"k": FLOAT, "k_float16": HALF}),
        ((DOUBLE, HALF), {"k": DOUBLE, "k_float16": HALF}),
        ((0, HALF), {"k": HALF}),
        ((0, 0), {"k": FLOAT}),
    ],
)
def test_a_tensor_is_made_in_the_types_in_which_it_is_read(wanted: Any, held: dict[str, int]) -> None:
    scope = scope_of([make("Relu", ["k"], ["a"]), make("Relu", ["k"], ["y"])], THIRD)
    for place, elem in enumerate(wanted):
        read(scope, place, 0, elem)
    scope.finish({"k", "x"})
    assert tensors(scope) == held
    if len(held) == 2:
        assert [n.input[0] for n in scope.holder.node] == ["k", "k_float16"]
    arrays = {t.name: numpy_helper.to_array(t) for t in scope.holder.initializer}
    for name, elem in held.items():
        np.testing.assert_array_equal(arrays[name], THIRD["k"].astype(helper.tensor_dtype_to_np_dtype(elem)))


def test_a_value_of_a_node_gets_a_cast_behind_the_node() -> None:
    scope = scope_of([make("Relu", ["x"], ["h"]), make("Relu", ["h"], ["a"]), make("Relu", ["h"], ["y"])])
    scope.make("h", HALF, place=0)
    read(scope, 1, 0, FLOAT)
    read(scope, 2, 0, HALF)
    scope.finish({"h", "x", "h_float32"})
    assert lines(scope) == ["Relu x -> h", "Cast h -> h_float32_2", "Relu h_float32_2 -> a", "Relu h -> y"]


def test_an_input_gets_its_cast_in_front_and_is_described_anew() -> None:
    scope = scope_of([make("Relu", ["x"], ["y"])])
    read(scope, 0, 0, FLOAT)
    scope.finish({"x"})
    assert lines(scope) == ["Cast x -> x_float32", "Relu x_float32 -> y"]
    assert scope.holder.input[0].type.tensor_type.elem_type == HALF


def test_before_opset_6_casts_name_types_in_words() -> None:
    scope = scope_of([make("Relu", ["x"], ["y"])], opset=5)
    read(scope, 0, 0, FLOAT)
    scope.finish({"x"})
    assert scope.holder.node[0].attribute[0].s == b"FLOAT"


def test_an_output_keeps_its_name_in_its_type() -> None:
    scope = scope_of([make("Sqrt", ["k"], ["y"]), make("Relu", ["y"], ["z"])], THIRD)
    value = scope.make("y", FLOAT, silent=True, place=0)
    value.end = HALF
    read(scope, 1, 0, FLOAT)
    scope.read(scope.holder.output, 0, value, HALF)
    scope.finish({"y", "k"})
    assert lines(scope) == ["Sqrt k -> y_float32", "Cast y_float32 -> y", "Relu y_float32 -> z"]
    assert scope.holder.output[0].name == "y"


@pytest.mark.parametrize(("used", "expected"), [(True, ["Relu x -> h_float32", "Cast h_float32 -> h", "Abs h -> y"]),
                                               (False, ["Relu x -> h", "Abs x -> y"])])  # fmt: skip
def test_what_a_node_makes_wider_is_rounded_where_somebody_reads_it(used: bool, expected: list[str]) -> None:
    scope = scope_of([make("Relu", ["x"], ["h"]), make("Abs", ["h" if used else "x"], ["y"])])
    scope.holder.value_info.append(helper.make_tensor_value_info("h", FLOAT, [1]))
    scope.make("h", BRAIN, place=0, rounded=FLOAT)
    if used:
        read(scope, 1, 0, BRAIN)
    scope.finish({"h", "x"})
    assert lines(scope) == expected
    assert scope.holder.value_info[0].type.tensor_type.elem_type == (BRAIN if used else FLOAT)


def test_a_node_that_names_its_type_is_there_twice_with_the_inputs_that_it_has_in_the_end() -> None:
    nodes = [make("Relu", ["k"], ["n"]), make("Cast", ["n"], ["c"], to=FLOAT), make("Add", ["c", "c"], ["y"])]
    scope = scope_of(nodes, THIRD)
    value = scope.make("n", FLOAT, silent=True, place=0)
    value.end = HALF  # so that the Cast reads another name
    scope.make("c", FLOAT, silent=True, place=1, free=scope.holder.node[1])
    read(scope, 1, 0, FLOAT)
    scope.read(scope.holder.output, 0, value, HALF)
    read(scope, 2, 0, FLOAT)
    read(scope, 2, 1, HALF)
    scope.finish({"n", "c", "y"})
    assert [line for line in lines(scope) if "-> c" in line] == ["Cast n_float32 -> c", "Cast n_float32 -> c_float16"]
    assert [n.attribute[0].i for n in scope.holder.node if n.output[0] in ("c", "c_float16")] == [FLOAT, HALF]


def test_a_type_that_the_node_cannot_name_comes_from_a_cast() -> None:
    scope = scope_of([make("ConstantOfShape", ["s"], ["c"]), make("Relu", ["c"], ["y"])])
    scope.make("c", FLOAT, silent=True, place=0, free=scope.holder.node[0], may=frozenset((FLOAT, HALF)))
    read(scope, 1, 0, BRAIN)
    scope.finish({"c"})
    assert lines(scope) == ["ConstantOfShape s -> c", "Cast c -> c_bfloat16", "Relu c_bfloat16 -> y"]


def test_a_constant_in_any_form_becomes_a_tensor() -> None:
    scope = scope_of([make("Constant", [], ["c"], value_float=0.5), make("Relu", ["c"], ["y"])])
    scope.make("c", FLOAT, silent=True, place=0, free=scope.holder.node[0])
    read(scope, 1, 0, HALF)
    scope.finish({"c"})
    [given] = scope.holder.node[0].attribute
    assert (given.name, given.t.data_type, numpy_helper.to_array(given.t)) == ("value", HALF, 0.5)


def test_graphs_inside_nodes_read_values_of_those_around() -> None:
    inner_graph = helper.make_graph(
        [make("Relu", ["h"], ["z"])], "inner", [], [helper.make_tensor_value_info("z", FLOAT, [1])]
    )
    choice = make("If", ["c"], ["y"], then_branch=inner_graph, else_branch=inner_graph)
    scope = scope_of([make("Relu", ["x"], ["h"]), choice])
    scope.make("h", HALF, place=0)
    for attribute in scope.holder.node[1].attribute:
        inner = Scope(attribute.g, f"/1.{attribute.name}", 17, scope)
        read(inner, 0, 0, FLOAT)
        value = inner.make("z", FLOAT, place=0)
        inner.read(attribute.g.output, 0, value, HALF)
    scope.finish({"h", "x", "z", "y"})
    assert lines(scope)[:2] == ["Relu x -> h", "Cast h -> h_float32"]
    bodies = [attribute.g for attribute in scope.holder.node[2].attribute]
    assert [[n.input[0] for n in body.node] for body in bodies] == [["h_float32", "z"]] * 2
    assert [body.output[0].name for body in bodies] == ["z_float16", "z_float16_2"]


def test_descriptions_of_values_that_are_gone_are_gone() -> None:
    scope = scope_of([make("Relu", ["x"], ["y"])])
    scope.holder.value_info.append(helper.make_tensor_value_info("old", FLOAT, [1]))
    scope.finish({"x"})
    assert not scope.holder.value_info


def test_a_sequence_cannot_be_cast() -> None:
    scope = scope_of([make("SequenceConstruct", ["x"], ["s"]), make("SequenceAt", ["s", "i"], ["y"])])
    scope.make("s", FLOAT, place=0, sequence=True)
    read(scope, 1, 0, HALF)
    with pytest.raises(mo.ExportError, match="the sequence 's' is computed in float32, but read in float16"):
        scope.finish({"s"})
