"""Graphs with layers in the place of nodes, written: onnxruntime computes what the model computes, the rest stays."""

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
ort = pytest.importorskip("onnxruntime")

from onnx import helper as h  # noqa: E402

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.graph.errors import ExportError  # noqa: E402
from tests.onnx.loading.exchange.nets import FLOAT, classifier, drawn, plain  # noqa: E402

X = mn.tensor(drawn(6, 3, 5, 5))


def run(proto: Any, x: mn.Tensor = X) -> Any:
    return ort.InferenceSession(proto.SerializeToString()).run(None, {"x": x.numpy()})[0]


def trained(*layers: Any) -> Any:
    """Layers whose normalizations have seen something."""
    model = nn.Sequential(*layers)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.fill_(0.25)
            module.running_var.fill_(1.5)
    return model


HEADS = {
    "linear": lambda: nn.Linear(4, 2),
    "deep": lambda: trained(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Dropout(0.2), nn.Linear(3, 2)),
    "groups": lambda: nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.GELU()),  # which opset 17 does not have
}


@pytest.mark.parametrize("head", ["linear", "deep"])
def test_a_new_head_is_written_without_an_example(head: str, graph_of: Any) -> None:
    proto = classifier(graph_of)
    model = mo.load(proto)
    model.replace("fc", HEADS[head]())
    written = mo.export(model, None)
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_allclose(run(written), model(X).detach().numpy(), atol=1e-5)
    np.testing.assert_allclose(run(written, X[:1]), model(X[:1]).detach().numpy(), atol=1e-5)  # the batch stays free
    [output] = written.graph.output
    assert next(dim.dim_param for dim in output.type.tensor_type.shape.dim) == "batch"
    assert list(written.graph.node)[:5] == list(proto.graph.node)[:5]
    again = mo.load(written)
    assert dict(again.named_parameters()).keys() == dict(model.named_parameters()).keys()
    for name, value in again.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), model.state_dict()[name].numpy(), err_msg=name)


def test_lengths_of_outputs_follow(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", nn.Unflatten(1, (2, 2)))
    [output] = mo.export(model, None).graph.output
    assert [dim.dim_param or dim.dim_value for dim in output.type.tensor_type.shape.dim] == ["batch", 2, 2]


def test_free_height_and_width_stay_free(graph_of: Any) -> None:
    nodes = [
        h.make_node("Conv", ["x", "a.weight"], ["t"], name="/a/Conv"),
        h.make_node("Relu", ["t"], ["r"], name="/Relu"),
        h.make_node("Conv", ["r", "b.weight"], ["y"], name="/b/Conv"),
    ]
    held = {"a.weight": drawn(4, 3, 3, 3), "b.weight": drawn(2, 4, 1, 1)}
    model = mo.load(graph_of(nodes, {"x": (FLOAT, ["batch", 3, "height", "width"])}, ["y"], held))
    model.replace("b", nn.Sequential(nn.Conv2d(4, 2, 3, padding=1), nn.BatchNorm2d(2), nn.AvgPool2d(2)))
    written = mo.export(model, None)
    for shape in ((2, 3, 8, 9), (1, 3, 13, 6)):
        x = mn.tensor(drawn(*shape))
        np.testing.assert_allclose(run(written, x), model(x).detach().numpy(), atol=1e-5)


def test_a_layer_that_fixes_lengths_says_so(graph_of: Any) -> None:
    class OddOrEven(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mean((2, 3)) if x.shape[2] % 2 else x.amax((2, 3))

    nodes = [
        h.make_node("Relu", ["x"], ["r"], name="/Relu"),
        h.make_node("Flatten", ["r"], ["y"], name="/head/Flatten"),
    ]
    model = mo.load(graph_of(nodes, {"x": (FLOAT, ["batch", 3, "height", "width"])}, ["y"]))
    model.replace("head", OddOrEven())
    with pytest.warns(
        UserWarning, match=r"the inserted layer 'head' is written for inputs of shape \(2, 3, 8, 8\) only: "
    ):
        written = mo.export(model, mn.ones(2, 3, 8, 8))
    x = mn.tensor(drawn(4, 3, 8, 8))
    np.testing.assert_allclose(run(written, x), model(x).detach().numpy(), atol=1e-6)


def test_training_form(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", HEADS["deep"]())
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.freeze()  # it draws
    written = mo.export(model, None, training=True)
    names = [entry.name for entry in written.graph.output]
    statistics = [f"{norm}.running_{what}.updated" for norm in ("bn", "fc.1") for what in ("mean", "var")]
    assert sorted(names) == sorted(["y", *statistics])
    again = mo.load(written)
    assert again.training
    model.train()
    assert again(X).allclose(model(X), atol=1e-5)
    for name, value in again.named_buffers():
        np.testing.assert_allclose(value.numpy(), dict(model.named_buffers())[name].numpy(), rtol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 21])
def test_another_opset(opset: int, graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", HEADS["groups"]())
    written = mo.export(model, None, opset_version=opset)
    assert written.opset_import[0].version == opset
    np.testing.assert_allclose(run(written), model(X).detach().numpy(), atol=1e-5)


def test_float16(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", HEADS["deep"]())
    model.half()
    written = mo.export(model, None)
    assert {tensor.data_type for tensor in written.graph.initializer} == {onnx.TensorProto.FLOAT16}
    np.testing.assert_allclose(run(written, X.half()), model(X.half()).detach().numpy(), atol=5e-3)


def test_several_layers_and_what_stands_between(graph_of: Any) -> None:
    proto = plain(graph_of)
    model = mo.load(proto)
    model.replace("first", nn.Linear(3, 8))
    model.replace("Add.1", nn.Linear(8, 2))
    written = mo.export(model, None)
    assert [node.op_type for node in written.graph.node] == ["Gemm", "Relu", "Gemm", "Softmax"]
    x = mn.tensor(drawn(5, 3))
    np.testing.assert_allclose(run(written, x), model(x).detach().numpy(), atol=1e-6)
    assert sorted(tensor.name for tensor in written.graph.initializer) == sorted(model.state_dict())


def test_in_another_module(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", nn.Linear(4, 2))
    whole = nn.Sequential(model, nn.Softmax(1))
    written = mo.export(whole, X)
    np.testing.assert_allclose(run_named(written), whole(X).detach().numpy(), atol=1e-6)
    assert {tensor.name for tensor in written.graph.initializer} >= whole.state_dict().keys()


def run_named(proto: Any) -> Any:
    session = ort.InferenceSession(proto.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: X.numpy()})[0]


def test_inside_a_function_of_the_file(graph_of: Any) -> None:
    imports = [h.make_opsetid("", 17)]
    inner = [h.make_node("MatMul", ["a", "w"], ["b"], name="product"), h.make_node("Relu", ["b"], ["c"], name="relu")]
    function = h.make_function("own", "Block", ["a", "w"], ["c"], inner, imports)
    nodes = [h.make_node("Block", ["x", "block.weight"], ["y"], name="call", domain="own")]
    held = {"block.weight": drawn(3, 4)}
    proto = graph_of(nodes, {"x": (FLOAT, ["n", 3])}, ["y"], held, functions=[function], domains=["own"])
    model = mo.load(proto)
    model.replace("block", nn.Linear(3, 2))
    x = mn.tensor(drawn(5, 3))
    with pytest.raises(TypeError, match=r"export: args is None; expected an example"):
        mo.export(model, None)
    np.testing.assert_allclose(run(mo.export(model, x), x), model(x).detach().numpy(), atol=1e-6)


def test_external_weights_and_a_file(tmp_path: Path, graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", nn.Sequential(nn.Flatten(), nn.Linear(4, 300), nn.Linear(300, 2)))
    mo.export(model, None, tmp_path / "new.onnx", external_data=True)
    assert (tmp_path / "new.onnx.data").stat().st_size > 4 * 4 * 300
    assert mo.load(tmp_path / "new.onnx")(X).allclose(model(X), atol=1e-6)


def test_the_model_is_as_it_was(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", HEADS["deep"]())
    model.train()
    before = copy.deepcopy(model.state_dict()), repr(model)
    mo.export(model, None)
    assert repr(model) == before[1]
    assert all((value.numpy() == before[0][name].numpy()).all() for name, value in model.state_dict().items())
    assert model.training
    assert all(not any(vars(module).get("_hooks", {}).values()) for module in model.modules())


def test_what_does_not_fit_is_named(graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.replace("fc", nn.Linear(5, 2))
    with pytest.raises(ExportError, match=r"inserted layers.*'fc', a Linear"):
        mo.export(model, None)


# What the file says of itself

SAYS = {"classes": json.dumps([str(n) for n in range(7)]), "author": "somebody"}


def said(proto: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in proto.metadata_props if not entry.key.startswith("minorm.")}


def test_metadata_goes_through(graph_of: Any) -> None:
    proto = classifier(graph_of)
    h.set_model_props(proto, SAYS)
    model = mo.load(proto)
    assert model.metadata == SAYS
    assert said(mo.export(model, None)) == SAYS
    assert copy.deepcopy(model).metadata == SAYS
    model.metadata["scale"] = {"mean": [0.5], "std": [0.25]}
    del model.metadata["author"]
    assert said(mo.export(model, None)) == {"classes": SAYS["classes"], "scale": '{"mean": [0.5], "std": [0.25]}'}


def test_names_of_other_classes_are_left_out(graph_of: Any) -> None:
    proto = classifier(graph_of)
    h.set_model_props(proto, SAYS)
    model = mo.load(proto)
    model.replace("fc", nn.Linear(4, 2))
    with pytest.warns(
        UserWarning, match=r"names 7 classes and the output has 2.*model.metadata\['classes'\] = \[...\]"
    ):
        assert said(mo.export(model, None)) == {"author": "somebody"}
    model.metadata["classes"] = ["cat", "dog"]
    assert json.loads(said(mo.export(model, None))["classes"]) == ["cat", "dog"]
    cut = nn.Sequential(mo.load(proto, before="fc"), nn.Linear(4, 7))
    assert said(mo.export(cut, X)) == SAYS


@pytest.mark.parametrize(("key", "value"), [("minorm.frozen", "x"), (3, "x"), ("x", {1, 2})])
def test_metadata_that_cannot_be_written(key: Any, value: Any, graph_of: Any) -> None:
    model = mo.load(classifier(graph_of))
    model.metadata[key] = value
    with pytest.raises(ValueError, match=r"export: metadata has"):
        mo.export(model, None)
