from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.loading import flattening  # noqa: E402

OPSETS = [h.make_opsetid("", 17), h.make_opsetid("f", 1)]
X = {"x": (np.float32, [None])}


def function(name: str, inputs: list[str], outputs: list[str], nodes: list[Any], **options: Any) -> Any:
    return h.make_function("f", name, inputs, outputs, nodes, OPSETS, **options)


def call(operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return h.make_node(operator, inputs, outputs, domain="f", **attributes)


def test_calls_are_replaced_by_the_body_and_may_nest(graph_of: Any) -> None:
    twice = function("Twice", ["a"], ["b"], [h.make_node("Add", ["a", "a"], ["b"], name="sum")])
    four = function("Four", ["a"], ["c"], [call("Twice", ["a"], ["t"]), call("Twice", ["t"], ["c"])])
    nodes = [call("Four", ["x"], ["h"], name="first"), call("Four", ["h"], ["y"], name="first")]
    proto = graph_of(nodes, X, ["y"], functions=[twice, four], domains=["f"])
    model = mo.load(proto)
    np.testing.assert_array_equal(model(mn.ones(2)).array, [16, 16])
    assert mo.load(proto, outputs=["first/t"])(mn.ones(2)).array.tolist() == [2, 2]


def test_attributes_are_handed_down_and_have_defaults(graph_of: Any) -> None:
    inner = h.make_node("Concat", ["a", "a"], ["b"])
    inner.attribute.append(onnx.AttributeProto(name="axis", ref_attr_name="along", type=onnx.AttributeProto.INT))
    join = function("Join", ["a"], ["b"], [inner], attributes=[], attribute_protos=[h.make_attribute("along", 0)])
    outer = call("Join", ["a"], ["b"])
    outer.attribute.append(onnx.AttributeProto(name="along", ref_attr_name="which", type=onnx.AttributeProto.INT))
    wrap = function("Wrap", ["a"], ["b"], [outer], attributes=["which"])
    for node, shape in ((call("Wrap", ["x"], ["y"], which=1), (2, 6)), (call("Wrap", ["x"], ["y"]), (4, 3))):
        model = mo.load(graph_of([node], {"x": (np.float32, [2, 3])}, ["y"], functions=[join, wrap], domains=["f"]))
        assert model(mn.ones(2, 3)).shape == shape


def test_absent_inputs_and_outputs(graph_of: Any) -> None:
    body = [
        h.make_node("Conv", ["x", "w", "b"], ["y"]),
        h.make_node("Relu", ["y"], ["z"]),
        h.make_node("Identity", ["x"], ["same"]),
    ]
    conv = function("C", ["x", "w", "b"], ["z", "y", "x"], body)
    inputs = {"i": (np.float32, [1, 1, 2, 2]), "k": (np.float32, [1, 1, 1, 1])}
    model = mo.load(
        graph_of([call("C", ["i", "k"], ["r", "", "p"])], inputs, ["r", "p"], functions=[conv], domains=["f"])
    )
    x = mn.randn(1, 1, 2, 2)
    relu, passed = model(x, mn.ones(1, 1, 1, 1))
    np.testing.assert_array_equal(relu.array, np.maximum(x.array, 0))
    np.testing.assert_array_equal(passed.array, x.array)


def test_gradients_reach_parameters_inside_functions(graph_of: Any) -> None:
    add = function("A", ["x", "w"], ["y"], [h.make_node("Add", ["x", "w"], ["y"])])
    proto = graph_of(
        [call("A", ["x", "w"], ["y"])], X, ["y"], {"w": np.ones(2, np.float32)}, functions=[add], domains=["f"]
    )
    model = mo.load(proto)
    model(mn.ones(2)).sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is not None] == ["w"]


def test_functions_of_another_opset_that_means_the_same(graph_of: Any) -> None:
    old = h.make_function("f", "Old", ["a"], ["b"], [h.make_node("Relu", ["a"], ["b"])], [h.make_opsetid("", 14)])
    model = mo.load(graph_of([call("Old", ["x"], ["y"])], X, ["y"], functions=[old], domains=["f"]))
    assert model(mn.tensor([-1.0, 1.0])).tolist() == [0, 1]


def refused(graph_of: Any, message: str, nodes: list[Any], bodies: list[Any]) -> None:
    with pytest.raises(mo.LoadError, match=message):
        mo.load(graph_of(nodes, X, ["y"], functions=bodies, domains=["f"]))


def test_what_is_wrong_with_functions_is_named(graph_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    main = [call("F", ["x"], ["y"])]
    f = function("F", ["a"], ["b"], [call("G", ["a"], ["b"])])
    g = function("G", ["a"], ["b"], [call("F", ["a"], ["b"])])
    relu = function("F", ["a"], ["b"], [h.make_node("Relu", ["a"], ["b"])])
    refused(graph_of, "function 'F' calls itself", main, [f, g])
    refused(graph_of, "defines function 'F' of 'f' twice", main, [relu, relu])
    refused(
        graph_of,
        "with 2 inputs and 1 outputs; the function has 1 inputs and 1 outputs",
        [call("F", ["x", "x"], ["y"])],
        [relu],
    )
    refused(graph_of, "function 'F' has no attribute 'alpha'", [call("F", ["x"], ["y"], alpha=1)], [relu])
    overwrites = function("F", ["a"], ["b"], [h.make_node("Relu", ["a"], ["a"]), h.make_node("Relu", ["a"], ["b"])])
    refused(graph_of, "computes 'x', which exists already", main, [overwrites])
    reads = function("F", ["a"], ["b"], [h.make_node("Relu", ["elsewhere"], ["b"])])
    refused(graph_of, "reads 'F_0/elsewhere', which nothing computes", main, [reads])
    stray = h.make_node("Relu", ["x"], ["y"])
    stray.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="a", type=onnx.AttributeProto.FLOAT))
    refused(graph_of, "refers to an attribute 'a', but is not in a function", [stray], [])

    chain = [function(f"F{i}", ["a"], ["b"], [call(f"F{i + 1}", ["a"], ["b"])]) for i in range(70)]
    chain.append(function("F70", ["a"], ["b"], [h.make_node("Relu", ["a"], ["b"])]))
    refused(graph_of, "more than 64 deep", [call("F0", ["x"], ["y"])], chain)

    monkeypatch.setattr(flattening, "MAX_NODES", 1000)
    laughs = [
        function(f"F{i}", ["a"], ["b"], [call(f"F{i + 1}", ["a"], ["c"]), call(f"F{i + 1}", ["c"], ["b"])])
        for i in range(40)
    ]
    laughs.append(function("F40", ["a"], ["b"], [h.make_node("Relu", ["a"], ["b"])]))
    refused(graph_of, "become more than 1000 nodes", [call("F0", ["x"], ["y"])], laughs)


# Branches


def branch(name: str, nodes: list[Any], outputs: list[str], **initializers: Any) -> Any:
    return h.make_graph(
        nodes,
        name,
        [],
        [h.make_empty_tensor_value_info(o) for o in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in initializers.items()],
    )


def choice(nodes: tuple[list[Any], list[Any]], results: list[str], condition: str = "k", **options: Any) -> Any:
    taken, other = nodes
    return h.make_node(
        "If",
        [condition],
        results,
        then_branch=branch("then", taken, ["out"], **options),
        else_branch=branch("else", other, ["out"]),
        name="pick",
    )


def test_only_the_branch_that_is_taken_runs(graph_of: Any) -> None:
    squeeze = [h.make_node("Squeeze", ["x", "axis"], ["out"])]  # an error where axis 1 is longer than 1
    keep = [h.make_node("Identity", ["x"], ["out"])]
    nodes = [
        h.make_node("Shape", ["x"], ["shape"]),
        h.make_node("Gather", ["shape", "axis"], ["length"]),
        h.make_node("Equal", ["length", "one"], ["k"]),
        choice((squeeze, keep), ["y"]),
    ]
    constants = {"axis": np.array([1]), "one": np.array([1])}
    model = mo.load(graph_of(nodes, {"x": (np.float32, [None, None])}, ["y"], constants))
    assert model(mn.ones(3, 1)).shape == (3,)
    assert model(mn.ones(3, 2)).shape == (3, 2)
    again = mo.load(mo.export(model, mn.ones(3, 1)))
    assert again(mn.ones(5, 1)).shape == (5,)


def test_branches_have_names_of_their_own_and_see_those_outside(graph_of: Any) -> None:
    double = [h.make_node("Add", ["x", "x"], ["t"]), h.make_node("Add", ["t", "w"], ["out"])]
    shift = [h.make_node("Add", ["x", "b"], ["t"]), h.make_node("Relu", ["t"], ["out"])]
    bias = np.float32(0.5)
    inputs = {"k": (bool, []), "x": (np.float32, [2])}
    w = np.ones(2, np.float32)
    node = choice((shift, double), ["y"], b=bias)
    model = mo.load(graph_of([node, h.make_node("Relu", ["y"], ["z"])], inputs, ["z"], {"w": w}))
    assert list(model.state_dict()) == ["w"]
    assert model(mn.tensor(True), mn.ones(2)).tolist() == [1.5, 1.5]
    z = model(mn.tensor(False), mn.ones(2))
    assert z.tolist() == [3, 3]
    z.sum().backward()
    assert next(model.parameters()).grad.tolist() == [1, 1]
    inner = choice(([h.make_node("Relu", ["x"], ["out"])], [h.make_node("Add", ["x", "x"], ["out"])]), ["out"], "j")
    nested = choice(([inner], [h.make_node("Identity", ["x"], ["out"])]), ["y"])
    model = mo.load(graph_of([nested], {"k": (bool, []), "j": (bool, []), "x": (np.float32, [1])}, ["y"]))
    for k, j, want in ((True, True, 0), (True, False, -4), (False, True, -2)):
        assert model(mn.tensor(k), mn.tensor(j), mn.tensor([-2.0])).item() == want


@pytest.mark.parametrize("value", [True, False])
def test_a_condition_that_the_file_fixes_leaves_one_branch(value: bool, graph_of: Any) -> None:
    nodes = [choice(([h.make_node("Relu", ["x"], ["out"])], [h.make_node("Add", ["x", "x"], ["out"])]), ["y"])]
    model = mo.load(graph_of(nodes, {"x": (np.float32, [1])}, ["y"], {"k": np.array(value)}))
    assert len(model._steps) == 2
    assert model(mn.tensor([-1.0])).item() == (0 if value else -2)


def test_broken_branches_are_refused(graph_of: Any) -> None:
    inputs = {"k": (bool, []), "x": (np.float32, [1])}
    one = branch("b", [h.make_node("Relu", ["x"], ["out"])], ["out"])
    two = branch("b", [h.make_node("Relu", ["x"], ["out"])], ["out", "x"])
    for node, message in (
        (h.make_node("If", ["k"], ["y"], then_branch=one), "has no condition, or lacks a branch"),
        (h.make_node("If", [], ["y"], then_branch=one, else_branch=one), "has no condition"),
        (h.make_node("If", ["k"], ["y"], then_branch=one, else_branch=3), "lacks a branch"),
        (
            h.make_node("If", ["k"], ["y"], then_branch=one, else_branch=two),
            "0 inputs and 2 outputs; expected 0 inputs and 1 outputs",
        ),
    ):
        with pytest.raises(mo.LoadError, match=message):
            mo.load(graph_of([node], inputs, ["y"]))


# Loops


def body(nodes: list[Any], inputs: list[str], outputs: list[str]) -> Any:
    entries = [[h.make_empty_tensor_value_info(name) for name in names] for names in (inputs, outputs)]
    return h.make_graph(nodes, "body", *entries)


def repeat(nodes: list[Any], inputs: list[str], outputs: list[str], given: Any = ("n", "", "x"), **options: Any) -> Any:
    return h.make_node("Loop", list(given), ["y"], body=body(nodes, inputs, outputs), name="loop", **options)


DOUBLE = [h.make_node("Add", ["v", "v"], ["v2"])]
COUNT = {"n": np.array(3)}


def test_a_body_has_names_of_its_own_and_sees_those_outside(graph_of: Any) -> None:
    nodes = [h.make_node("Add", ["x", "x"], ["v2"]), h.make_node("Relu", ["v2"], ["h"])]
    inside = [h.make_node("Add", ["v", "h"], ["t"]), h.make_node("Mul", ["t", "w"], ["v2"])]
    proto = graph_of(
        [*nodes, repeat(inside, ["i", "c", "v"], ["c", "v2"])], X, ["y"], {**COUNT, "w": np.full(2, 0.5, np.float32)}
    )
    assert mo.load(proto)(mn.tensor([1.0, -4.0])).tolist() == [0.125 + 2 * (0.5 + 0.25 + 0.125), -0.5]
    with pytest.raises(mo.LoadError, match="'loop/body/t' is an output of the graph, but is a value inside a loop"):
        mo.load(proto, outputs=["loop/body/t"])
    stray = graph_of(
        [repeat(DOUBLE, ["i", "c", "v"], ["c", "v2"]), h.make_node("Relu", ["loop/body/v2"], ["z"])], X, ["z"], COUNT
    )
    with pytest.raises(mo.LoadError, match="reads 'loop/body/v2', which is a value inside a loop"):
        mo.load(stray)


def test_a_loop_inside_a_function_and_a_function_inside_a_loop(graph_of: Any) -> None:
    twice = function("Twice", ["a"], ["b"], [h.make_node("Add", ["a", "a"], ["b"], name="sum")])
    inside = body([call("Twice", ["v"], ["v2"])], ["i", "c", "v"], ["c", "v2"])
    again = function("Again", ["a", "k"], ["b"], [h.make_node("Loop", ["k", "", "a"], ["b"], body=inside)])
    nodes = [call("Again", ["x", "n"], ["h"]), call("Again", ["h", "n"], ["y"])]
    proto = graph_of(nodes, X, ["y"], COUNT, functions=[twice, again], domains=["f"])
    assert mo.load(proto)(mn.ones(2)).tolist() == [64, 64]


def test_a_loop_in_a_branch_runs_only_where_the_branch_is_taken(graph_of: Any) -> None:
    inside = h.make_node("Loop", ["n", "", "x"], ["out"], body=body(DOUBLE, ["i", "c", "v"], ["c", "v2"]))
    node = choice(([inside], [h.make_node("Neg", ["x"], ["out"])]), ["y"])
    model = mo.load(graph_of([node], {**X, "k": (bool, [])}, ["y"], COUNT))
    assert model(mn.ones(1), mn.tensor(True)).tolist() == [8]
    assert model(mn.ones(1), mn.tensor(False)).tolist() == [-1]
    never = mo.load(graph_of([node], X, ["y"], {**COUNT, "k": np.array(False)}))
    assert never(mn.ones(1)).tolist() == [-1]
    assert len(never._steps) == 2


def test_broken_loops_are_refused(graph_of: Any) -> None:
    def refuse(node: Any, message: str) -> None:
        with pytest.raises(mo.LoadError, match=message):
            mo.load(graph_of([node], X, ["y"], COUNT))

    refuse(h.make_node("Loop", ["n", "", "x"], ["y"], name="loop"), "node 'loop' .Loop. has no body")
    refuse(repeat(DOUBLE, ["i", "c"], ["c", "v2"]), "has 2 inputs and 2 outputs; expected 3 inputs and 2 outputs")
    refuse(repeat(DOUBLE, ["i", "c", "v"], ["v2"]), "has 3 inputs and 1 outputs; expected 3 inputs and 2 outputs")
    refuse(repeat(DOUBLE, ["i", "c", ""], ["c", "v2"]), "expected 3 inputs and 2 outputs, each with a name")
    refuse(repeat(DOUBLE, ["i", "c", "v"], ["c", "v2"], ("n", "", "")), "node 'loop' .Loop. lacks input 2")
    refuse(repeat(DOUBLE, ["i", "v", "v"], ["i", "v2"]), "computes 'loop/body/v', which exists already")
    refuse(repeat([], ["i", "c", "v"], ["c", "gone"]), "reads 'gone', which nothing computes")
    refuse(
        repeat(DOUBLE, ["i", "c", "v"], ["c", "v2"], rounds=1), "has an attribute 'rounds', which this version lacks"
    )
    for count in (0, 3, -1):
        inside = body([h.make_node("Relu", ["a"], ["b"])], ["a"], ["b"])
        node = h.make_node("Scan", ["x", "x"], ["y"], body=inside, num_scan_inputs=count, name="scan")
        refuse(node, f"node 'scan' .Scan. has 2 inputs, 1 outputs and num_scan_inputs={count}, which do not fit")


def test_loops_nest_only_so_deep(graph_of: Any) -> None:
    def nested(depth: int) -> Any:
        if not depth:
            return DOUBLE
        inside = body(nested(depth - 1), ["i", "c", "v"], ["c", "v2"])
        return [h.make_node("Loop", ["one", "", "v"], ["v2"], body=inside)]

    held = {"one": np.array(1)}
    node = h.make_node("Loop", ["one", "", "x"], ["y"], body=body(nested(15), ["i", "c", "v"], ["c", "v2"]))
    assert mo.load(graph_of([node], X, ["y"], held))(mn.ones(1)).tolist() == [2]
    node = h.make_node("Loop", ["one", "", "x"], ["y"], body=body(nested(16), ["i", "c", "v"], ["c", "v2"]))
    with pytest.raises(mo.LoadError, match="loops are nested more than 16 deep"):
        mo.load(graph_of([node], X, ["y"], held))


def test_calls_that_make_no_node_are_counted_too(graph_of: Any) -> None:
    laughs = [function(f"F{i}", ["a"], ["a"], [call(f"F{i + 1}", ["a"], ["c"])]) for i in range(30)]
    for i, made in enumerate(laughs):
        made.node.append(call(f"F{i + 1}", ["a"], ["d"]))
    laughs.append(function("F30", ["a"], ["a"], []))
    refused(graph_of, "become more than 10000 nodes", [call("F0", ["x"], ["y"])], laughs)
