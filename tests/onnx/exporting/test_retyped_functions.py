"""Functions of a retyped model: one body for each kind of calls, and the rest of the model as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import AttributeProto, TensorProto, helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from tests.onnx import retyped  # noqa: E402
from tests.onnx.retyped import TYPES, cast, difference  # noqa: E402

F32 = np.float32
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
W = {"w": np.array([[0.5, 1], [2, -1]], F32)}
X = {"x": (F32, ["n", 2])}
make = helper.make_node


def function(name: str, inputs: str, outputs: str, nodes: list[Any], attributes: str = "", opset: int = 17) -> Any:
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, inputs.split(), outputs.split(), nodes, imports, attributes.split())


def call(name: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return make(name, inputs.split(), outputs.split(), domain="own", **attributes)


def prove(proto: Any, runs: bool = True) -> Any:
    """In each type exactly as the converted module, and close to the file in onnxruntime; the float16 model."""
    x = np.random.default_rng(0).normal(size=(3, 2)).astype(F32)
    made = None
    for name in ("bfloat16", "float64", "float16"):
        dtype = np.dtype(TYPES[name])
        module = mo.load(proto).to(dtype)
        made = retyped.retyped(proto, dtype, module)
        got = retyped.results(mo.load(made), cast(x, dtype))
        assert difference(got, retyped.results(module, cast(x, dtype))) == 0
        if name != "bfloat16" and runs:
            [y] = retyped.run(made, cast(x, dtype))
            [want] = retyped.run(proto, x)
            assert difference([y.astype(F32)], [want]) <= {"float16": 5e-3, "float64": 1e-6}[name]
    return made


def bodies(model: Any) -> list[str]:
    return [entry.name for entry in model.functions]


def test_calls_of_both_kinds_get_two_bodies(graph_of: Any) -> None:
    one = make("Constant", [], ["one"], value_float=1.0)
    root = function("Root", "a", "b", [make("Sqrt", ["a"], ["q"]), one, make("Add", ["q", "one"], ["b"])])
    nodes = [
        make("Shape", ["x"], ["sizes"]), make("Cast", ["sizes"], ["floats"], to=FLOAT),
        make("ReduceSum", ["floats"], ["s"], keepdims=0), call("Root", "s", "r1"), make("MatMul", ["x", "w"], ["h"]),
        make("Abs", ["h"], ["p"]), call("Root", "p", "r2"), call("Root", "r2", "r3"), make("Mul", ["r3", "r1"], ["y"]),
    ]  # fmt: skip
    new = prove(graph_of(nodes, X, ["y"], W, functions=[root], domains=["own"]))
    assert bodies(new) == ["Root", "Root_2"]
    assert [node.op_type for node in new.graph.node if node.domain] == ["Root", "Root_2", "Root_2"]


def test_calls_inside_functions_and_bodies_that_come_out_equal(graph_of: Any) -> None:
    inner = function("Inner", "a s", "b", [make("Mul", ["a", "s"], ["b"])])
    nodes = [
        make("Shape", ["a"], ["sizes"]), make("Cast", ["sizes"], ["floats"], to=FLOAT),
        make("ReduceSum", ["floats"], ["s"], keepdims=0), make("Sqrt", ["s"], ["root"]), call("Inner", "a root", "c"),
        call("Inner", "root root", "d"), make("Div", ["c", "d"], ["b"]),
    ]  # fmt: skip
    outer = function("Outer", "a", "b root", nodes)
    graph = [
        make("MatMul", ["x", "w"], ["h"]),
        call("Outer", "h", "u root"),
        make("Outer", ["u"], ["v", ""], domain="own"),
    ]
    graph.append(make("Add", ["v", "root"], ["y"]))
    new = prove(graph_of(graph, X, ["y"], W, functions=[inner, outer], domains=["own"]))
    assert bodies(new) == ["Inner", "Outer"]


def test_types_that_calls_give_as_attributes(graph_of: Any) -> None:
    asked = make("Cast", ["a"], ["q"])
    asked.attribute.add(name="to", type=AttributeProto.INT, ref_attr_name="t")
    number = make("Constant", [], ["k"])
    number.attribute.add(name="value_float", type=AttributeProto.FLOAT, ref_attr_name="alpha")
    nodes = [asked, number, make("CastLike", ["k", "q"], ["f"]), make("Mul", ["q", "f"], ["b"])]
    scale = function("Scale", "a", "b", nodes, "t alpha")
    graph = [
        make("MatMul", ["x", "w"], ["h"]), call("Scale", "h", "u", t=FLOAT, alpha=0.3),
        make("Greater", ["h", "u"], ["mask"]), call("Scale", "mask", "v", t=FLOAT, alpha=0.7),
        call("Scale", "h", "i", t=INT64, alpha=2.0), make("Cast", ["i"], ["j"], to=FLOAT),
        call("Scale", "h", "e", t=FLOAT, alpha=0.9), make("Sum", ["u", "v", "j", "e"], ["y"]),
    ]  # fmt: skip
    new = prove(graph_of(graph, X, ["y"], W, functions=[scale], domains=["own"]))
    by_name = {f.name: f for f in new.functions}
    assert len(by_name) == len({node.op_type for node in new.graph.node if node.domain})
    kept = by_name[next(node.op_type for node in new.graph.node if node.output[0] == "i")].node[0].attribute[0]
    assert kept.ref_attr_name == "t"


def test_a_function_inside_a_branch_that_depends_on_data(graph_of: Any) -> None:
    root = function("Root", "a", "b", [make("Sqrt", ["a"], ["b"])])

    def branch(nodes: list[Any], output: str) -> Any:
        return helper.make_graph(nodes, output, [], [helper.make_tensor_value_info(output, FLOAT, None)])

    nodes = [make("Shape", ["x"], ["sizes"]), make("Cast", ["sizes"], ["f"], to=FLOAT)]
    nodes += [make("ReduceSum", ["f"], ["s"], keepdims=0), call("Root", "s", "r"), make("Add", ["h", "r"], ["t"])]
    choice = make(
        "If", ["c"], ["y"], then_branch=branch(nodes, "t"), else_branch=branch([make("Abs", ["h"], ["e"])], "e")
    )
    graph = [
        make("MatMul", ["x", "w"], ["h"]),
        make("ReduceMax", ["h"], ["m"], keepdims=0),
        make("Greater", ["m", "z"], ["c"]),
    ]
    prove(graph_of([*graph, choice], X, ["y"], {**W, "z": F32(0)}, functions=[root], domains=["own"]))


def test_a_function_that_nothing_calls_stays_as_it_is(graph_of: Any) -> None:
    unused = function("Unused", "a", "b", [make("Cast", ["a"], ["b"], to=FLOAT)])
    proto = graph_of([make("MatMul", ["x", "w"], ["y"])], X, ["y"], W, functions=[unused], domains=["own"])
    assert retyped.retyped(proto, TYPES["float16"]).functions[0] == unused


def test_a_function_that_calls_itself_is_refused(graph_of: Any) -> None:
    proto = graph_of(
        [call("F", "x", "y")], X, ["y"], functions=[function("F", "a", "b", [call("F", "a", "b")])], domains=["own"]
    )
    with pytest.raises(mo.ExportError, match="function 'F' calls itself"):
        retyped.retyped(proto, TYPES["float16"])


def test_kinds_of_calls_do_not_multiply_without_end(graph_of: Any) -> None:
    """Each function calls the next one with its inputs in all orders of data and lengths: 2 ** 16 bodies."""
    count = 16
    inputs = [f"a{i}" for i in range(count)]
    functions = [function("F0", " ".join(inputs), "b", [make("Sum", inputs, ["b"])])]
    for level in range(1, count):
        swapped = [*inputs[: level - 1], inputs[level], inputs[level - 1], *inputs[level + 1 :]]
        calls = [call(f"F{level - 1}", " ".join(inputs), "b0"), call(f"F{level - 1}", " ".join(swapped), "b1")]
        functions.append(function(f"F{level}", " ".join(inputs), "b", [*calls, make("Add", ["b0", "b1"], ["b"])]))
    for level in range(count, 2 * count):  # forgets more and more
        first = [inputs[0]] * (level - count + 1) + inputs[level - count + 1 :]
        calls = [call(f"F{level - 1}", " ".join(inputs), "b0"), call(f"F{level - 1}", " ".join(first), "b1")]
        functions.append(function(f"F{level}", " ".join(inputs), "b", [*calls, make("Add", ["b0", "b1"], ["b"])]))
    cast_ = [make("Shape", ["x"], ["s"]), make("Cast", ["s"], ["f"], to=FLOAT)]
    top = call(f"F{2 * count - 1}", " ".join("f" if i % 2 else "x" for i in range(count)), "y")
    proto = graph_of([*cast_, top], {"x": (F32, [2])}, ["y"], functions=functions, domains=["own"])
    with pytest.raises(mo.ExportError, match="have more than 10000 nodes"):
        retyped.retyped(proto, TYPES["float16"])
