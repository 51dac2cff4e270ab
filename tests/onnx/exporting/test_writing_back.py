"""`export` of a loaded model: opset, lengths, names, files, other types, and what is refused."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402
from minorm.onnx.checking import verification  # noqa: E402

X = mn.randn(2, 3, 8, 8)
FREE = {"x": {0: "n", 2: "h", 3: "w"}}


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.Conv2d(8, 4, 1))


def loaded(**options: Any) -> Any:
    return mo.load(mo.export(net(), X, dynamic_axes=FREE, **options))


def shape(entry: Any) -> list[Any]:
    return [dim.dim_param or dim.dim_value for dim in entry.type.tensor_type.shape.dim]


def runs_alike(module: Any, proto: Any, name: str = "x") -> None:
    onnx.checker.check_model(proto, full_check=True)
    session = verification.start(proto)
    for size in ((2, 3, 8, 8), (1, 3, 13, 6)):
        x = mn.randn(*size)
        np.testing.assert_allclose(
            verification.run(session, {name: x.numpy()})[0], module(x).numpy(), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("opset", [9, 13, 17, 18, 21, 26])
def test_another_opset(opset: int) -> None:
    module = loaded(opset_version=21)
    module.get_submodule("0")
    for _, parameter in module.named_parameters():
        parameter.array[...] *= np.float32(1.25)
    proto = mo.export(module, None, opset_version=opset)
    assert proto.opset_import[0].version == opset
    runs_alike(module, proto)
    assert shape(proto.graph.input[0]) == ["n", 3, "h", "w"]


def test_other_names() -> None:
    module = loaded()
    proto = mo.export(module, None, input_names=["image"], output_names=["logits"])
    assert [e.name for e in (*proto.graph.input, *proto.graph.output)] == ["image", "logits"]
    runs_alike(module, proto, "image")
    for names, why in (
        (["a", "b"], "input_names has 2 names; the graph has 1 inputs"),
        (["0.weight"], "'0.weight' is taken"),
    ):
        with pytest.raises(ValueError, match=why):
            mo.export(module, None, input_names=names)


def test_free_axes_get_names_or_the_lengths_of_an_example() -> None:
    module = mo.load(mo.export(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), X, dynamic_axes=FREE))
    proto = mo.export(module, X, dynamic_axes={"x": {0: "batch"}})
    assert shape(proto.graph.input[0]) == ["batch", 3, 8, 8]
    assert shape(proto.graph.output[0]) == ["batch", 4, 6, 6]
    onnx.checker.check_model(proto, full_check=True)
    assert shape(mo.export(module, X, dynamic_axes={}).graph.input[0]) == [2, 3, 8, 8]
    with pytest.raises(ValueError, match="does not name axis 2 of 'x', which is free in the file; give an example"):
        mo.export(module, None, dynamic_axes={"x": {0: "batch"}})
    with pytest.raises(ValueError, match="names axis 1 of 'x', which the file fixes at 3"):
        mo.export(module, X, dynamic_axes={"x": {1: "channels"}})
    with pytest.raises(ValueError, match="dynamic_axes names 'y'; the graph has the inputs x"):
        mo.export(module, X, dynamic_axes={"y": {1: "channels"}})


def test_an_example_must_fit() -> None:
    for args, why in (
        (mn.randn(2, 4, 8, 8), r"input 'x' has shape \(2, 4, 8, 8\); the graph declares \(n, 3, h, w\)"),
        ((X, X), "takes 1 inputs"),
        (X.to(mn.float64), "input 'x' is float64"),
    ):
        with pytest.raises((ValueError, TypeError), match=why):
            mo.export(loaded(), args)


def test_weights_that_lay_outside_lie_outside_again(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(64, 64))
    mo.export(model, mn.randn(1, 64), tmp_path / "a.onnx", external_data=True)
    module = mo.load(tmp_path / "a.onnx")
    (tmp_path / "a.onnx.data").unlink()  # it is not needed any more
    mo.export(module, None, tmp_path / "b.onnx")
    assert (tmp_path / "b.onnx.data").stat().st_size >= 64 * 64 * 4
    mo.export(module, None, tmp_path / "c.onnx", external_data=False)
    assert not (tmp_path / "c.onnx.data").exists()
    for name in ("b", "c"):
        np.testing.assert_array_equal(
            mo.load(tmp_path / f"{name}.onnx").state_dict()["0.weight"].numpy(), model[0].weight.numpy()
        )
    whole = mo.export(module, None)
    assert all(tensor.data_location != onnx.TensorProto.EXTERNAL for tensor in whole.graph.initializer)
    file = io.BytesIO()
    mo.export(module, None, file)
    assert mo.load(file.getvalue()).state_dict().keys() == module.state_dict().keys()


def test_a_tensor_of_another_shape() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "head.weight"], ["h"], "/head/MatMul"),
            helper.make_node("Add", ["h", "head.bias"], ["y"], "/head/Add"),
        ],
        "graph",
        [helper.make_tensor_value_info("x", 1, ["n", 3])],
        [helper.make_tensor_value_info("y", 1, ["n", 5])],
        [
            numpy_helper.from_array(np.ones((3, 5), np.float32), "head.weight"),
            numpy_helper.from_array(np.ones(5, np.float32), "head.bias"),
        ],
    )
    module = mo.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    weight, bias = module.parameters()
    weight.set_array(np.ones((3, 7), np.float32))
    with pytest.raises(mo.ExportError, match=r"'head.weight' no longer has the shape of the file.*/head/Add"):
        mo.export(module, None)
    bias.set_array(np.ones(7, np.float32))
    assert shape(mo.export(module, None).graph.output[0]) == ["n", 7]


@pytest.mark.parametrize("given", [False, True], ids=["no example", "example"])
def test_a_shape_that_the_checker_lets_through(given: bool) -> None:
    """It asks neither whether the channels of a Conv fit nor the bias of a Gemm; the model itself does."""
    x = mn.ones(2, 3, 8, 8)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3), nn.Flatten(), nn.Linear(80, 6))

    def module(**changed: tuple[int, ...]) -> Any:
        model = mo.load(mo.export(net, x))
        for name, tensor in model.named_parameters():
            if name in changed:
                tensor.set_array(np.ones(changed[name], np.float32))
        return model

    args = (x,) if given else None
    wrong = [({"0.weight": (4, 2, 3, 3)}, "weight has 2 input channels"), ({"4.bias": (5,)}, "Gemm")]
    wrong.append(({"0.weight": (7, 3, 3, 3), "0.bias": (7,)}, "x has 7 channels"))
    for changed, why in wrong:
        with pytest.raises(mo.ExportError, match=rf"'{next(iter(changed))}'.* no longer ha.*no longer fits.*{why}"):
            mo.export(module(**changed), args)
    assert shape(mo.export(module(**{"4.weight": (9, 80), "4.bias": (9,)}), args).graph.output[0])[1] == 9


def test_what_only_an_example_can_say() -> None:
    outer = nn.Sequential(loaded(), nn.Flatten())
    with pytest.raises(TypeError, match=r"args is None.*Sequential is exported by running it.*part of another module"):
        mo.export(outer, None)
    assert mo.export(outer, X).graph.node


@pytest.mark.parametrize("opset", [None, 13, 22])
@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64], ids=str)
def test_a_converted_graph_is_written_in_its_type(dtype: Any, opset: int | None) -> None:
    module = loaded(opset_version=17).to(dtype)
    dict(module.named_parameters())["0.weight"].array[0] *= 2
    proto = mo.export(module, None, opset_version=opset)
    onnx.checker.check_model(proto, full_check=True)
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    assert {entry.type.tensor_type.elem_type for entry in (*proto.graph.input, *proto.graph.output)} == {elem}
    assert {t.data_type for t in proto.graph.initializer} <= {elem, onnx.TensorProto.INT64}
    again = mo.load(proto)
    x = mn.randn(3, 3, 9, 8).to(dtype)
    if opset != 13 and dtype != mn.bfloat16:  # where every node has the type
        np.testing.assert_array_equal(again(x).numpy(), module(x).numpy())
    assert again(x).dtype == dtype
    tolerance = {mn.float16: 1e-2, mn.bfloat16: 5e-2}.get(dtype, 1e-12)
    np.testing.assert_allclose(again(x).double().numpy(), module(x).double().numpy(), rtol=tolerance, atol=tolerance)
    if dtype == mn.float16:
        got = verification.run(verification.start(proto), {"x": x.array})[0]
        np.testing.assert_allclose(got.astype(np.float64), module(x).double().numpy(), rtol=1e-2, atol=1e-2)


def test_a_converted_graph_inside_another_module_and_cut() -> None:
    file = mo.export(net(), X, dynamic_axes=FREE)
    outer = nn.Sequential(mo.load(file), nn.Conv2d(4, 2, 1)).half()
    x = mn.randn(2, 3, 8, 8).half()
    proto = mo.export(outer, x)
    np.testing.assert_array_equal(mo.load(proto)(x).numpy(), outer(x).numpy())
    cut = mo.load(file, outputs=[file.graph.node[0].output[0]]).half()
    proto = mo.export(cut, None)
    onnx.checker.check_model(proto, full_check=True)
    assert proto.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16


def test_norms_as_one_node() -> None:
    module = loaded(opset_version=13)  # GroupNormalization is not there yet: primitives
    assert "GroupNormalization" not in {node.op_type for node in mo.export(module, None, opset_version=21).graph.node}
    proto = mo.export(module, None, opset_version=21, fuse_norms=True)
    assert [node.op_type for node in proto.graph.node].count("GroupNormalization") == 1
    assert "InstanceNormalization" not in {node.op_type for node in proto.graph.node}
    runs_alike(module, proto)
    with pytest.warns(UserWarning, match=r"1 norm\(s\) were left unchanged:\n.*opset is 13"):
        mo.export(module, None, fuse_norms=True)


def test_a_head_of_another_shape_in_16_bits() -> None:
    module = mo.load(mo.export(nn.Linear(4, 3), mn.ones(1, 4)))
    for _, tensor in module.named_parameters():
        tensor.set_array(tensor.array[:2])
    module.half()
    proto = mo.export(module, None)
    assert shape(proto.graph.output[0]) == ["batch", 2]
    x = mn.randn(3, 4).half()
    found = verification.run(verification.start(proto), {proto.graph.input[0].name: x.numpy()})[0]
    np.testing.assert_allclose(found, module(x).detach().numpy(), atol=2e-3)
