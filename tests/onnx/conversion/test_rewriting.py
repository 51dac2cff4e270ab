"""The parts of a file that `convert` keeps and refuses: graphs inside nodes, functions, names, free lengths, weights,
bad files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import helper  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking import verification  # noqa: E402
from minorm.onnx.graph.names import refill  # noqa: E402

F32 = np.float32
make = helper.make_node


def kinds(graph: Any) -> list[str]:
    return [node.op_type for node in graph.node]


def run(proto: Any, **feeds: Any) -> list[Any]:
    return verification.run(verification.start(proto), feeds)


def same(old: Any, new: Any, *shapes: tuple[int, ...]) -> None:
    for number, shape in enumerate(shapes):
        x = np.random.default_rng(number).standard_normal(shape).astype(F32)
        for a, b in zip(run(old, x=x), run(new, x=x), strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def zoo(graph_of: Any) -> Any:
    """Operators whose form differs between 13 and 21, and that have one at both."""
    steps = [
        make("ReduceMean", ["x"], ["mean"], name="/net/mean", axes=[2, 3], keepdims=1),
        make("ReduceMax", ["x"], ["top"], name="/net/top", axes=[-1], keepdims=1),
        make("Sub", ["x", "mean"], ["centred"], name="/net/sub"),
        make("Split", ["centred"], ["a", "b"], name="/net/split", axis=1),
        make("AveragePool", ["a"], ["pooled"], name="/net/pool", kernel_shape=[2, 2], strides=[1, 1]),
        make("Pad", ["pooled", "pads"], ["padded"], name="/net/pad", mode="edge"),
        make("Resize", ["b", "", "scales"], ["up"], name="/net/up", mode="linear"),
        make("BatchNormalization", ["padded", "s", "z", "z", "s"], ["n"], name="/net/norm", epsilon=1e-3),
        make("Cast", ["n"], ["c"], name="/net/cast", to=1),
        make("Dropout", ["c"], ["d"], name="/net/drop"),
        make("Clip", ["d", "", "most"], ["y"], name="/net/clip"),
    ]
    held = {
        "pads": np.array([0, 0, 0, 0, 0, 0, 1, 1]), "scales": np.array([1, 1, 2, 2], F32),
        "s": np.ones(2, F32), "z": np.zeros(2, F32), "most": F32(1),
    }  # fmt: skip
    return graph_of(steps, {"x": (F32, ["n", 4, "h", "w"])}, ["y", "up", "top"], held, opset=13)


def test_there_and_back_gives_the_same_nodes(graph_of: Any) -> None:
    old = zoo(graph_of)
    up = mo.convert(old, opset_version=21)
    assert kinds(up.graph).count("Constant") == 2
    assert attributes(up.graph.node[1]) == {"keepdims"}
    same(old, up, (2, 4, 6, 6), (1, 4, 5, 9))
    back = mo.convert(up, opset_version=13)
    assert list(back.graph.node) == list(old.graph.node)
    assert list(back.graph.initializer) == list(old.graph.initializer)
    assert (back.graph.name, back.ir_version) == (old.graph.name, 7)


def attributes(node: Any) -> set[str]:
    return {attribute.name for attribute in node.attribute}


def test_an_input_left_out_at_the_end_stays_so(graph_of: Any) -> None:
    """PyTorch's older exporter writes a Pad of zeros with a third input that has no name."""
    old = graph_of(
        [make("Pad", ["x", "p", ""], ["y"])], {"x": (F32, ["n", 4])}, ["y"], {"p": np.array([0, 1, 0, 1])}, 13
    )
    new = mo.convert(old, opset_version=21)
    assert list(new.graph.node[0].input) == ["x", "p", ""]
    assert mo.convert(new, opset_version=13).graph.node == old.graph.node
    assert list(mo.convert(old, opset_version=9).graph.node[0].input) == ["x"]


def test_what_has_the_same_version_is_the_same_node(graph_of: Any) -> None:
    old = zoo(graph_of)
    new = mo.convert(old, opset_version=14)
    changed = [node.name for node, was in zip(new.graph.node, old.graph.node, strict=True) if node != was]
    assert changed == []  # BatchNormalization 14 says inference as 9 does


def test_free_lengths_stay_and_shape_arithmetic_is_copied(graph_of: Any) -> None:
    """Half of the height by numbers that the graph computes: no example fixes them."""
    steps = [
        make("Shape", ["x"], ["shape"]),
        make("Gather", ["shape", "two"], ["h"], axis=0),
        make("Div", ["h", "by"], ["half"]),
        make("Slice", ["x", "zero", "half", "two"], ["part"]),
        make("Concat", ["zeros", "half", "one"], ["pads"], axis=0),
        make("Pad", ["part", "pads"], ["y"], mode="constant"),
    ]
    held = {"two": np.array([2]), "by": np.array([2]), "zero": np.array([0]), "one": np.array([1]),
            "zeros": np.zeros(6, np.int64)}  # fmt: skip
    old = graph_of(steps, {"x": (F32, ["n", 1, "h", "w"])}, ["y"], held, opset=17)
    for target in (11, 22):
        new = mo.convert(old, opset_version=target, verify=True)
        dims = new.graph.input[0].type.tensor_type.shape.dim
        assert [d.dim_param or d.dim_value for d in dims] == ["n", 1, "h", "w"]
        same(old, new, (1, 1, 4, 4), (2, 1, 7, 3))


def test_graphs_inside_nodes_are_rewritten(graph_of: Any) -> None:
    """Branches read values and constants of the graph around; a Loop holds an If."""
    small = helper.make_tensor_value_info("t", 1, None)
    then = helper.make_graph([make("ReduceMean", ["x", "axes"], ["t"], name="in", keepdims=1)], "then", [], [small])
    other = helper.make_tensor_value_info("e", 1, None)
    gelu = helper.make_graph(
        [make("Gelu", ["x"], ["g"]), make("ReduceMax", ["g", "axes"], ["e"], keepdims=1)], "else", [], [other]
    )
    choose = make("If", ["more"], ["picked"], then_branch=then, else_branch=gelu)
    body = helper.make_graph(
        [make("Greater", ["state", "limit"], ["more"]), choose, make("ReduceSum", ["picked"], ["sum"], keepdims=0),
         make("Add", ["state", "sum"], ["next"]), make("Identity", ["go"], ["on"])],
        "body",
        [helper.make_tensor_value_info("i", 7, []), helper.make_tensor_value_info("go", 9, []),
         helper.make_tensor_value_info("state", 1, [])],
        [helper.make_tensor_value_info("on", 9, []), helper.make_tensor_value_info("next", 1, [])],
    )  # fmt: skip
    loop = make("Loop", ["times", "", "start"], ["y"], body=body)
    held = {"axes": np.array([1]), "times": np.array(3), "start": F32(0), "limit": F32(0.2)}
    old = graph_of([loop], {"x": (F32, ["n", 4])}, ["y"], held, opset=20)
    old.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, []))
    for target in (13, 22):
        new = mo.convert(old, opset_version=target, verify=True)
        inside = new.graph.node[0].attribute[0].g
        assert kinds(inside)[1] == "If"
        branches = {a.name: kinds(a.g) for a in inside.node[1].attribute}
        assert branches["then_branch"][-1] == "ReduceMean"
        assert ("Gelu" in branches["else_branch"]) == (target >= 20)
        assert ("axes" in {t.name for t in new.graph.initializer}) == (target >= 18)
        same(old, new, (2, 4), (5, 4))


def test_functions_keep_their_names_and_get_the_opset(graph_of: Any) -> None:
    """The types in a body are those of its calls."""
    inner = helper.make_function(
        "mine", "norm", ["a", "w"], ["b"], [make("LayerNormalization", ["a", "w"], ["b"], axis=-1)],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    outer = helper.make_function(
        "mine", "block", ["p", "w"], ["q"],
        [make("norm", ["p", "w"], ["r"], domain="mine"), make("HardSwish", ["r"], ["q"])],
        [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)],
    )  # fmt: skip
    old = graph_of(
        [make("block", ["x", "w"], ["y"], domain="mine", name="call")], {"x": (F32, ["n", 3, 4])}, ["y"],
        {"w": np.arange(4, dtype=F32)}, opset=18, functions=[inner, outer], domains=["mine"],
    )  # fmt: skip
    new = mo.convert(old, opset_version=13, verify=True)
    assert [(f.name, kinds(f)[-1]) for f in new.functions] == [("norm", "Identity"), ("block", "Mul")]
    assert {entry.version for f in new.functions for entry in f.opset_import if not entry.domain} == {13}
    assert list(new.graph.node) == list(old.graph.node)
    assert new.ir_version == 8
    same(old, new, (2, 3, 4), (5, 3, 4))


def test_nodes_of_other_domains_are_copied(graph_of: Any) -> None:
    nodes = [make("Mystery", ["x"], ["m"], domain="com.else", level=3), make("Relu", ["m"], ["y"])]
    old = graph_of(nodes, {"x": (F32, ["n"])}, ["y"], domains=["com.else"])
    with pytest.warns(UserWarning, match="the file was not compared with the model: onnxruntime"):
        new = mo.convert(old, opset_version=11, verify=True)
    assert new.graph.node[0] == old.graph.node[0]
    assert {entry.domain: entry.version for entry in new.opset_import} == {"": 11, "com.else": 1}


def test_every_node_without_a_form_is_named(graph_of: Any) -> None:
    nodes = [
        make("GridSample", ["x", "g"], ["a"], name="warp"),
        make("Einsum", ["x"], ["b"], name="sum", equation="nchw->nc"),
        make("Relu", ["x"], ["c"]),
    ]
    old = graph_of(nodes, {"x": (F32, [1, 2, 4, 4]), "g": (F32, [1, 3, 3, 2])}, ["a", "b", "c"])
    with pytest.raises(mo.ExportError, match="2 nodes cannot be written at opset 11") as found:
        mo.convert(old, opset_version=11)
    assert "node 'warp' (GridSample): it exists from opset 16 on" in str(found.value)
    assert "node 'sum' (Einsum): it exists from opset 12 on" in str(found.value)


@pytest.mark.parametrize(("kind", "target"), [("FLOAT16", 9), ("BFLOAT16", 13)])
def test_types_that_a_version_does_not_take_go_through_float32(kind: str, target: int, graph_of: Any) -> None:
    code = getattr(onnx.TensorProto, kind)
    nodes = [make("Relu", ["x"], ["r"]), make("MaxPool", ["r"], ["y"], kernel_shape=[2, 2], name="pool")]
    old = graph_of(nodes, {"x": (F32, [1, 1, 4, 4])}, ["y"], opset=22)
    for entry in (*old.graph.input, *old.graph.output):
        entry.type.tensor_type.elem_type = code
    new = mo.convert(old, opset_version=target)
    assert ("Cast" in kinds(new.graph)) == (kind == "BFLOAT16")
    verification.check(new)


def test_names_of_new_nodes_and_values_are_new(graph_of: Any) -> None:
    nodes = [
        make("Gelu", ["x"], ["y"], name="g"),
        make("Relu", ["y"], ["g_Mul"], name="g_Mul"),
        make("Gelu", ["g_Mul"], ["z"], name="g_Mul_2"),
    ]
    old = graph_of(nodes, {"x": (F32, ["n"])}, ["z"], opset=20)
    new = mo.convert(old, opset_version=13, verify=True)
    names = [node.name for node in new.graph.node]
    values = [name for node in new.graph.node for name in node.output]
    assert len(set(names)) == len(names)
    assert len(set(values)) == len(values)
    assert {"y", "g_Mul", "z"} <= set(values)


def test_external_weights_stay_outside(tmp_path: Path, graph_of: Any) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(F32)
    old = graph_of([make("MatMul", ["x", "w"], ["m"]), make("ReduceMean", ["m"], ["y"], axes=[1])],
                   {"x": (F32, ["n", 64])}, ["y"], {"w": weight})  # fmt: skip
    onnx.save(old, tmp_path / "old.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    new = mo.convert(tmp_path / "old.onnx", tmp_path / "new.onnx", opset_version=20, verify=True)
    assert new.graph.initializer[0].data_location == onnx.TensorProto.EXTERNAL
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.onnx", "new.onnx.data", "old.onnx", "w.bin"]
    held = onnx.numpy_helper.to_array(onnx.load(tmp_path / "new.onnx").graph.initializer[0])
    np.testing.assert_array_equal(held, weight)
    inside = mo.convert(tmp_path / "old.onnx", opset_version=13)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(inside.graph.initializer[0]), weight)
    with pytest.raises(mo.LoadError, match="more than max_bytes"):
        mo.convert(tmp_path / "old.onnx", opset_version=13, max_bytes=2000)


# Damaged files


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (make("ReduceMean", ["x"], ["y"], axis=[1]), "attribute 'axis', which this version lacks"),
        (make("Clip", [], ["y"]), "has 0 inputs; expected 1 to 3"),
        (make("Unsqueeze", ["x", "x"], ["y"]), "cannot be written at opset 9"),
        (make("ReduceMean", ["x"], ["y"], axes=1), "attribute 'axes' is not of type INTS"),
        (make("Transpose", ["x"], ["y"], perm=[0], name="t"), None),
        (make("Softmax", ["x"], ["y"], axis=9), "axis is 9; the value has 2 axes"),
    ],
)
def test_damaged_nodes_are_named(node: Any, why: str | None, graph_of: Any) -> None:
    old = graph_of([node], {"x": (F32, [2, 3])}, ["y"])
    if why is None:
        mo.convert(old, opset_version=9)  # nothing about it changes
        return
    with pytest.raises(ValueError, match=why):
        mo.convert(old, opset_version=9)


def test_a_list_of_nodes_is_filled_anew_from_its_own() -> None:
    graph = onnx.GraphProto(node=[make("Relu", ["a"], ["b"]), make("Abs", ["b"], ["c"])])
    first, last = graph.node
    new = make("Neg", ["c"], ["d"])
    refill(graph.node, (node for node in (last, new, first, first)))
    assert kinds(graph) == ["Abs", "Neg", "Relu", "Relu"]
    assert [list(node.output) for node in graph.node] == [["c"], ["d"], ["b"], ["b"]]
    new.op_type = "Exp"  # the list holds a copy
    assert kinds(graph)[1] == "Neg"
    refill(graph.node, [])
    assert not graph.node
