"""A loaded model written back: its own nodes, with tensors, modes and outputs as they are now."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking import verification  # noqa: E402
from minorm.tensor.tensor import Tensor  # noqa: E402

X = mn.randn(2, 3, 8, 8)


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.LeakyReLU(),
        nn.Dropout(0.3),
        nn.Conv2d(8, 4, 1, bias=False),
    )


def foreign(model: Any) -> Any:
    """Change the file so that it looks written by another program."""
    model.producer_name = "somebody"
    del model.metadata_props[:]
    model.metadata_props.add(key="theirs", value="kept")
    model.doc_string = "a text"
    return model


def nodes(model: Any) -> list[Any]:
    return [(n.op_type, n.name, list(n.input), list(n.output)) for n in model.graph.node]


def moved(module: Any, x: Tensor = X) -> Any:
    """Train the module for a step, which changes all its tensors."""
    module.train()
    optimizer = mn.optim.SGD(module.parameters(), lr=0.1)
    (module(x) ** 2).mean().backward()
    optimizer.step()
    return module


def runs_alike(module: Any, proto: Any, *sizes: tuple[int, ...]) -> None:
    onnx.checker.check_model(proto, full_check=True)
    session = verification.start(proto)
    module = copy.deepcopy(module).eval()
    for shape in sizes:
        x = mn.randn(*shape)
        want = module(x).numpy()
        got = verification.run(session, {module.input_names[0]: x.numpy()})[0]
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [7, 8, 9, 11, 12, 13, 15, 18, 21, 26])
def test_an_untouched_file_comes_out_as_it_came_in(opset: int) -> None:
    for training in (False, True):
        file = mo.export(net(), X, opset_version=opset, training=training)
        assert mo.export(mo.load(file), None, training=training) == file
        assert mo.export(mo.load(foreign(file)), None, training=training if "theirs" not in str(file) else None) == file


@pytest.mark.parametrize("opset", [7, 9, 12, 13, 15, 26])
@pytest.mark.filterwarnings("ignore:.*before opset 12 a Dropout")
def test_every_mode_at_every_version(opset: int) -> None:
    file = foreign(mo.export(net(), X, opset_version=opset, dynamic_axes={"x": {0: "n", 2: "h", 3: "w"}}))
    module = moved(mo.load(file))
    for training in (False, True, None):
        proto = mo.export(module, None, training=training)
        onnx.checker.check_model(proto, full_check=True)
        assert [(name, op) for op, name, _, _ in nodes(proto)] == [(name, op) for op, name, _, _ in nodes(file)]
        updated = [entry.name for entry in proto.graph.output][1:]
        assert updated == (["1.running_mean.updated", "1.running_var.updated"] if training else [])
        again = mo.load(proto)
        assert again.training == (training is not False)
        assert again.state_dict().keys() == module.state_dict().keys()
        first, second = copy.deepcopy(module).train(training is not False), again.train(training is not False)
        results = []
        for model in (first, second):
            mn.manual_seed(3)
            results.append(model(X).numpy())
        np.testing.assert_array_equal(*results)
        for name, tensor in first.state_dict().items():
            np.testing.assert_array_equal(second.state_dict()[name].numpy(), tensor.numpy(), err_msg=name)
    runs_alike(module, mo.export(module, None), (1, 3, 8, 8), (3, 3, 13, 6))


def test_freezing_is_written() -> None:
    module = moved(mo.load(foreign(mo.export(net(), X))))
    module.get_submodule("1").freeze()
    proto = mo.export(module, None, training=True)
    assert [entry.name for entry in proto.graph.output] == ["output"]
    assert {entry.key: entry.value for entry in proto.metadata_props}["theirs"] == "kept"
    assert (proto.producer_name, proto.doc_string) == ("somebody", "a text")
    again = mo.load(proto)
    assert again.get_submodule("1").frozen
    assert not again.frozen
    assert [n for n, p in again.named_parameters() if not p.requires_grad] == ["1.weight", "1.bias"]
    proto.producer_name = "a third program"  # which may have changed the nodes: what minorm said counts no more
    assert not mo.load(proto).get_submodule("1").frozen


def test_a_shared_layer_hands_its_statistics_on() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, x: Any) -> Any:
            return self.norm(self.norm(x) * 2)

    module = mo.load(mo.export(Twice(), X))
    proto = mo.export(module, None, training=True)
    first, second = (node for node in proto.graph.node if node.op_type == "BatchNormalization")
    assert list(second.input[3:]) == list(first.output[1:])
    assert list(second.output[1:]) == ["norm.running_mean.updated", "norm.running_var.updated"]
    onnx.checker.check_model(proto, full_check=True)


def test_a_buffer_whose_new_value_is_read_elsewhere() -> None:
    names = ["scale", "bias", "mean", "var"]
    graph = helper.make_graph(
        [
            helper.make_node("BatchNormalization", ["x", *names], ["h", "m", "v"], "norm", training_mode=1),
            helper.make_node("Add", ["h", "s"], ["y"], "add"),
            helper.make_node("ReduceSum", ["m"], ["s"], "sum"),
        ][::1],
        "graph",
        [helper.make_tensor_value_info("x", 1, ["n", 3])],
        [helper.make_tensor_value_info("y", 1, ["n", 3])],
        [numpy_helper.from_array(np.float32([1, 2, 3]) + i, name) for i, name in enumerate(names)],
    )
    graph.node.insert(1, graph.node[2])
    del graph.node[3]
    module = mo.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    trained = mo.export(module, None, training=True)
    assert [entry.name for entry in trained.graph.output] == ["y", "mean.updated", "var.updated"]
    onnx.checker.check_model(trained, full_check=True)
    fixed = mo.export(module, None)
    assert ("Identity", "norm_Identity", ["mean"], ["m"]) in nodes(fixed)
    x = mn.randn(4, 3)
    np.testing.assert_allclose(
        verification.run(verification.start(fixed), {"x": x.numpy()})[0], module.eval()(x).numpy(), rtol=1e-5
    )


def test_statistics_that_a_tool_merged_get_initializers_of_their_own() -> None:
    names = [["s1", "b1"], ["s2", "b2"]]
    graph = helper.make_graph(
        [
            helper.make_node("BatchNormalization", ["x", *names[0], "zeros", "ones"], ["h"], "first"),
            helper.make_node("BatchNormalization", ["h", *names[1], "zeros", "ones"], ["y"], "second"),
        ],
        "graph",
        [helper.make_tensor_value_info("x", 1, ["n", 3])],
        [helper.make_tensor_value_info("y", 1, ["n", 3])],
        [numpy_helper.from_array(np.float32([1, 2, 3]) + i, name) for i, name in enumerate([*names[0], *names[1]])]
        + [
            numpy_helper.from_array(np.zeros(3, np.float32), "zeros"),
            numpy_helper.from_array(np.ones(3, np.float32), "ones"),
        ],
    )
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = mo.load(file)
    assert mo.export(module, None) == file
    moved(module, mn.randn(5, 3))
    proto = mo.export(module, None)
    assert [list(node.input[3:]) for node in proto.graph.node] == [["zeros", "ones"], ["zeros_1", "ones_1"]]
    runs_alike(module, proto, (2, 3), (7, 3))


def test_a_cut_graph_is_written_up_to_the_cut(tmp_path: Path) -> None:
    file = foreign(mo.export(net(), X, dynamic_axes={"x": {0: "n", 2: "h", 3: "w"}}))
    inner = next(node for node in file.graph.node if node.op_type == "LeakyRelu").output[0]
    module = mo.load(file, outputs=[inner])
    proto = mo.export(moved(module), None, tmp_path / "cut.onnx")
    assert nodes(proto) == nodes(file)[:3]
    assert [tensor.name for tensor in proto.graph.initializer if tensor.name.startswith("4")] == []
    assert [d.dim_param or d.dim_value for d in proto.graph.output[0].type.tensor_type.shape.dim] == ["n", 8, "h", "w"]
    runs_alike(module, onnx.load(tmp_path / "cut.onnx"), (2, 3, 5, 5), (1, 3, 9, 4))


def test_a_branch_keeps_what_it_holds() -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Mul", ["x", f"{name}.weight"], [f"{name}_y"])],
            name, [], [helper.make_tensor_value_info(f"{name}_y", 1, None)],
            [numpy_helper.from_array(np.full(3, value, np.float32), f"{name}.weight")],
        )
        for name, value in (("then", 2.0), ("else", 3.0))
    }  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], "choose", **branches)],
        "graph",
        [helper.make_tensor_value_info("x", 1, ["n", 3]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", 1, ["n", 3])],
    )
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = mo.load(file, trainable="*weight")
    assert mo.export(module, None) == file
    for _, parameter in module.named_parameters():
        parameter.array[...] = parameter.array + np.float32([0.5, 0, 1])
    session = verification.start(mo.export(module, None))
    for choice, want in ((True, [2.5, 2, 3]), (False, [3.5, 3, 4])):
        given = {"x": np.ones((1, 3), np.float32), "c": np.asarray(choice)}
        np.testing.assert_array_equal(verification.run(session, given)[0], [want])


@pytest.mark.parametrize(
    "layer", [nn.InstanceNorm2d(3, affine=True, track_running_stats=True), nn.BatchNorm2d(3, momentum=None)]
)
def test_layers_that_metadata_describe(layer: Any) -> None:
    model = nn.Sequential(layer)
    trained = mo.load(mo.export(model, X, training=True))
    fixed = mo.export(trained, None)
    assert [node.op_type for node in fixed.graph.node] == ["BatchNormalization"]
    assert [entry.name for entry in fixed.graph.output] == ["output"]
    runs_alike(trained, fixed, (2, 3, 8, 8))
    assert mo.export(trained, None, training=True) == mo.export(model, X, training=True)
    evaluated = mo.load(fixed)
    if isinstance(layer, nn.BatchNorm2d):
        return  # in inference it is a BatchNormalization like any other
    with pytest.raises(
        mo.ExportError, match="the training form needs nodes that the file does not have; give an example"
    ):
        mo.export(evaluated, None, training=True)
    again = mo.load(mo.export(evaluated, X, training=True))  # traced
    np.testing.assert_array_equal(again.train()(X).numpy(), evaluated.train()(X).numpy())


def test_copies_share_the_file_and_differ_in_their_tensors() -> None:
    module = mo.load(mo.export(net(), X))
    twin = copy.deepcopy(module)
    assert twin.original is module.original
    moved(twin)
    assert mo.export(module, None) != mo.export(twin, None)
    runs_alike(module, mo.export(module, None), (2, 3, 8, 8))
    runs_alike(twin, mo.export(twin, None), (2, 3, 8, 8))


def test_large_tensors_are_not_kept_twice() -> None:
    model = nn.Sequential(nn.Linear(1000, 1000))
    module = mo.load(mo.export(model, mn.randn(1, 1000)))
    assert module.original.model.ByteSize() < 10_000
    np.testing.assert_array_equal(
        numpy_helper.to_array(next(t for t in mo.export(module, None).graph.initializer if t.name == "0.weight")),
        model[0].weight.numpy(),
    )


def test_weights_in_constants_and_expanded_ones_go_back_to_where_they_were() -> None:
    table = np.broadcast_to(np.random.default_rng(0).standard_normal((1, 4, 3)), (2, 4, 3)).astype(np.float32)
    eye = numpy_helper.from_array(np.eye(3, dtype=np.float32), "t")
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["kernel"], "kernel", value=eye),
            helper.make_node("MatMul", ["x", "kernel"], ["h"], "product"),
            helper.make_node("Add", ["h", "onnx::Add_7"], ["y"], "add"),
        ],
        "graph",
        [helper.make_tensor_value_info("x", 1, [2, 4, 3])],
        [helper.make_tensor_value_info("y", 1, [2, 4, 3])],
        [numpy_helper.from_array(table, "onnx::Add_7")],
    )  # fmt: skip
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="p2o")
    module = mo.load(file)
    assert mo.export(module, None) == file
    moved(module, mn.randn(2, 4, 3))
    proto = mo.export(module, None)
    assert nodes(proto) == nodes(file)
    assert json.dumps([list(t.dims) for t in proto.graph.initializer]) == "[[2, 4, 3]]"
    runs_alike(module, proto, (2, 4, 3))


def test_a_layer_that_has_no_modes_stands_in_a_function() -> None:
    body = [helper.make_node("RandomUniformLike", ["a"], ["r"], seed=3.0), helper.make_node("Add", ["a", "r"], ["b"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    noisy = helper.make_function("f", "Noisy", ["a"], ["b"], body, opsets)
    entries = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Noisy", ["x"], ["y"], domain="f")], "g", entries[:1], entries[1:])
    model = mo.load(helper.make_model(graph, functions=[noisy], opset_imports=opsets, ir_version=8))
    written = mo.export(model, None, None)
    assert [node.op_type for node in written.graph.node] == ["Noisy"]
    assert written.functions[0].node[0].op_type == "RandomUniformLike"
