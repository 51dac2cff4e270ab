"""Functions whose calls differ are written out, under the names that their values have in the loaded module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking import verification  # noqa: E402
from minorm.tensor.tensor import Tensor  # noqa: E402

X = np.arange(12, dtype=np.float32).reshape(2, 6) / 5 - 1
WEIGHT = np.linspace(-1, 1, 6, dtype=np.float32)


def constant(name: str, array: Any) -> Any:
    return helper.make_node("Constant", [], [name], name, value=numpy_helper.from_array(np.asarray(array), name))


def branch(name: str, node: Any) -> Any:
    value = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
    return helper.make_graph([node], name, [], [value])


def model(opset: int = 17, passes: bool = False) -> Any:
    """Two calls of Outer, each of which calls Scaled, whose body holds a weight; and what it takes of its calls."""
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    scaled = helper.make_function(
        "mine", "Scaled", ["x", "c"], ["y", "x"] if passes else ["y"],
        [
            constant("weight", WEIGHT),
            helper.make_node("Mul", ["x", "weight"], ["m"], "mul"),
            helper.make_node(
                "If", ["c"], ["y"], "choose",
                then_branch=branch("a", helper.make_node("Relu", ["m"], ["r"], "relu")),
                else_branch=branch("b", helper.make_node("Neg", ["m"], ["n"], "neg")),
            ),
        ],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    leaky = helper.make_node("LeakyRelu", ["s"], ["y"], "leaky")
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    names = ["s", "p"] if passes else ["s"]
    outer = helper.make_function(
        "mine", "Outer", ["x", "c"], ["y"],
        [helper.make_node("Scaled", ["x", "c"], names, "inner", domain="mine"), leaky],
        imports, ["slope"],
    )  # fmt: skip
    graph = helper.make_graph(
        [
            helper.make_node("Outer", ["x", "c"], ["h"], "first", domain="mine", slope=0.5),
            helper.make_node("Outer", ["h", "c"], ["y"], "second", domain="mine", slope=0.25),
        ],
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 6])],
    )
    return helper.make_model(graph, opset_imports=imports, functions=[scaled, outer], ir_version=10)


def agree(module: Any, proto: Any, runs: bool = True) -> None:
    session = verification.start(proto) if runs else None
    again = mo.load(proto)
    for choice in (False, True):
        given = [X, np.asarray(choice)]
        want = module(*map(Tensor, given)).numpy()
        if runs:
            got = verification.run(session, dict(zip("xc", given, strict=True)))[0]
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)
        np.testing.assert_array_equal(again(*map(Tensor, given)).numpy(), want)


@pytest.mark.parametrize("passes", [False, True])
def test_unchanged_functions_stay(passes: bool) -> None:
    file = model(passes=passes)
    assert mo.export(mo.load(file), None) == file


def test_equal_changes_go_into_the_function() -> None:
    module = mo.load(model())
    names = [name for name, _ in module.named_parameters()]
    assert names == ["first/inner/weight", "second/inner/weight"]
    for _, parameter in module.named_parameters():
        parameter.array[...] = 3 * WEIGHT
    proto = mo.export(module, None)
    assert [function.name for function in proto.functions] == ["Scaled", "Outer"]
    assert [node.op_type for node in proto.graph.node] == ["Outer", "Outer"]
    agree(module, proto)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("passes", [False, True])
def test_calls_that_differ_are_written_out(which: int, passes: bool) -> None:
    module = mo.load(model(passes=passes))
    list(module.parameters())[which].array[...] = np.float32([5, 4, 3, -2, 1, 0])
    proto = mo.export(module, None)
    kept = [node.name for node in proto.graph.node if node.op_type == "Outer"]
    assert kept == [["second"], ["first"]][which]
    agree(module, proto, runs=not passes)  # onnxruntime takes no function that hands an input on
    assert mo.export(mo.load(proto), None) == proto


def test_a_value_inside_a_call_becomes_an_output() -> None:
    module = mo.load(model(), outputs=["second/inner/m", "h"])
    proto = mo.export(module, None)
    assert [entry.name for entry in proto.graph.output] == ["second/inner/m", "h"]
    onnx.checker.check_model(proto, full_check=True)
    given = [Tensor(X), Tensor(np.asarray(True))]
    for got, want in zip(mo.load(proto)(*given), module(*given), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_a_function_of_another_opset_cannot_be_written_out() -> None:
    module = mo.load(model(opset=21))
    next(iter(module.parameters())).array[...] = 2
    with pytest.raises(
        mo.ExportError, match=r"'Scaled' have become different.* opset 17, the graph has opset 21; convert"
    ):
        mo.export(module, None)


def test_minorm_goes_on_with_what_it_wrote() -> None:
    module = mo.load(model())
    optimizer = mn.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (module(Tensor(X), Tensor(np.asarray(True))) ** 2).mean().backward()
        optimizer.step()
        proto = mo.export(module, None)
        agree(module, proto)
