"""`fuse_norms`: one node in place of a written norm, and onnxruntime computes the same before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.exporting.norm_fusion import fuse_norms  # noqa: E402
from tests.onnx.loading import norms  # noqa: E402

OPERATORS = {"GroupNorm": "GroupNormalization", "LayerNorm": "LayerNormalization", "RMSNorm": "RMSNormalization"}


def operators(proto: Any) -> list[str]:
    return [node.op_type for node in proto.graph.node if node.op_type != "Constant"]


def computed(proto: Any, x: Any) -> Any:
    return ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def with_lengths(proto: Any, *lengths: int | str) -> Any:
    """The model at opset 23, its input of these lengths; what has unknown lengths cannot be fused for certain."""
    [own] = proto.opset_import
    if own.version >= 18:  # these operators have not changed since
        new = onnx.ModelProto()
        new.CopyFrom(proto)
        new.opset_import[0].version, new.ir_version = 23, 11
    else:
        new = mo.convert(proto, opset_version=23)
    shape = new.graph.input[0].type.tensor_type.shape
    del shape.dim[:]
    for length in lengths:
        entry = shape.dim.add()
        if isinstance(length, int):
            entry.dim_value = length
        else:
            entry.dim_param = length
    for entry in new.graph.output[0].type.tensor_type.shape.dim:
        entry.Clear()
    return new


def lengths_of(name: str) -> tuple[Any, ...]:
    if name.startswith("group"):
        batch = 2 if name.startswith(("group, fixed lengths", "group, the formula of five axes")) else "n"
        return (batch, 6, 4, 5) if "fixed" in name or "five" in name else ("n", 6, "h", "w")
    return ("n", 3, 5)


WAYS = [name for name in norms.WAYS if "unknown" not in name and "one weight a group" not in name]


@pytest.mark.parametrize("name", WAYS)
def test_one_node_computes_what_the_nodes_did(name: str, rng: Any) -> None:
    kind, proto, _, shapes = norms.WAYS[name]()
    if not proto.graph.input[0].type.tensor_type.HasField("shape"):
        proto.graph.input[0].type.tensor_type.shape.SetInParent()
    model = with_lengths(proto, *lengths_of(name))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    before = [computed(model, x) for x in arrays]
    names = {tensor.name for tensor in model.graph.initializer}
    found = fuse_norms(model)
    assert operators(model) == [OPERATORS[kind]], found
    assert len(found.made) == 1
    assert not found.left
    assert {t.name for t in model.graph.initializer} == names & norms.weights(proto)
    onnx.checker.check_model(model, full_check=True)
    for x, y in zip(arrays, before, strict=True):
        np.testing.assert_allclose(computed(model, x), y, rtol=1e-5, atol=1e-5)
    loaded = mo.load(model)
    assert set(dict(loaded.named_parameters())) == norms.weights(proto)


@pytest.mark.parametrize("name", norms.OTHERS)
def test_what_is_no_norm_stays(name: str) -> None:
    model = norms.OTHERS[name]()
    before = model.SerializeToString()
    found = fuse_norms(model)
    assert (found.made, found.left) == ([], {})
    assert model.SerializeToString() == before


@pytest.mark.parametrize(
    ("name", "opset", "why"),
    [
        ("group, instances", 20, r"exists from opset 21 on; the model's opset is 20"),
        ("layer, Div, Pow", 16, r"exists from opset 17 on; the model's opset is 16"),
        ("rms, Reciprocal", 22, r"exists from opset 23 on; the model's opset is 22"),
    ],
)
def test_an_operator_that_the_opset_lacks_is_left_with_the_reason(name: str, opset: int, why: str) -> None:
    model = mo.convert(norms.WAYS[name]()[1], opset_version=opset)
    before = model.SerializeToString()
    found = fuse_norms(model)
    assert not found.made
    assert [reason.endswith(why) for reason in found.left.values()] == [True]
    assert model.SerializeToString() == before


def test_what_is_not_known_of_the_data_is_a_reason_too() -> None:
    model = with_lengths(norms.WAYS["group, instances"]()[1], "n", "c", "h", "w")
    assert "may not split its channels" in next(iter(fuse_norms(model).left.values()))
    model = with_lengths(norms.WAYS["layer, Div, Pow"]()[1], "n", "m", "k")
    assert "lengths of the last axes" in next(iter(fuse_norms(model).left.values()))
    model = with_lengths(norms.WAYS["layer, Div, Pow"]()[1], "n", 3, 1)  # 5 numbers beside an axis of length 1
    assert "does not have the shape (1,)" in next(iter(fuse_norms(model).left.values()))


def test_weights_of_groups_are_weights_of_channels_where_a_group_is_one(rng: Any) -> None:
    proto = norms.WAYS["group, one weight a group"]()[1]
    model = with_lengths(proto, "n", 6, "h", "w")
    assert "one number for each of 2 groups" in next(iter(fuse_norms(model).left.values()))
    model = with_lengths(proto, "n", 2, "h", "w")
    x = rng.standard_normal((3, 2, 4, 5)).astype(np.float32)
    before = computed(model, x)
    assert fuse_norms(model).made
    assert operators(model) == ["GroupNormalization"]
    np.testing.assert_allclose(computed(model, x), before, rtol=1e-5, atol=1e-5)


def test_a_weight_that_others_read_keeps_its_shape(rng: Any) -> None:
    _, proto, _, [shape, *_] = norms.WAYS["group, folded weights"]()
    proto.graph.node.append(onnx.helper.make_node("Mul", ["y", "norm.weight"], ["z"]))
    proto.graph.output[0].name = "z"
    model = with_lengths(proto, "n", 6, "h", "w")
    x = rng.standard_normal(shape).astype(np.float32)
    before = computed(model, x)
    assert fuse_norms(model).made
    assert operators(model) == ["Reshape", "GroupNormalization", "Mul"]
    assert {t.name: list(t.dims) for t in model.graph.initializer} == {"norm.weight": [6, 1, 1], "norm.bias": [6]}
    np.testing.assert_allclose(computed(model, x), before, rtol=1e-5, atol=1e-5)


def test_weights_without_contents_are_no_numbers() -> None:
    """A weight whose elements lie elsewhere is neither 1 nor 0, and no eps."""
    _, proto, _, _ = norms.WAYS["group, instances"]()
    [ones] = [n.input[1] for n in proto.graph.node if n.op_type == "InstanceNormalization"]
    proto.graph.node.remove(next(n for n in proto.graph.node if ones in n.output))
    proto.graph.initializer.append(onnx.TensorProto(name=ones, data_type=1, dims=[2]))
    found = fuse_norms(proto)
    assert (found.made, found.left) == ([], {})


@pytest.mark.parametrize("opset", [16, 20, 23])
def test_what_minorm_exports_at_an_older_opset(opset: int, rng: Any) -> None:
    layers = mn.nn.Sequential(mn.nn.GroupNorm(2, 4), mn.nn.Conv2d(4, 4, 1), mn.nn.GroupNorm(4, 4), mn.nn.LayerNorm(5))
    x = mn.Tensor(rng.standard_normal((2, 4, 3, 5)).astype(np.float32))
    model = mo.convert(mo.export(layers, x, None, opset_version=opset, input_names=["x"]), opset_version=23)
    before = computed(model, x.array)
    found = fuse_norms(model)
    kinds = ["GroupNormalization", "Conv", "GroupNormalization", "LayerNormalization"]
    assert operators(model) == kinds
    assert len(found.made) == (0 if opset == 23 else 3 if opset == 16 else 2)
    np.testing.assert_allclose(computed(model, x.array), before, rtol=1e-5, atol=1e-5)
    assert set(mo.load(model).state_dict()) == set(layers.state_dict())
