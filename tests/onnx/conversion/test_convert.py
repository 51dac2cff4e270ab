"""`convert`: every version of every normalization to every other, against formulas in float64 and onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm import nn

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402

from minorm.onnx.checking import verification  # noqa: E402

EPS, MOMENTUM = float(np.float32(1e-5)), float(np.float32(0.9))
VERSIONS = [1, 6, 7, 9, 14, 15]
TARGETS = [7, 9, 13, 14, 15, 26]
OUTPUTS = ("y", "mean", "var", "saved_mean", "saved_var")
SHAPE = (4, 3, 2, 5)


def nodes(proto: Any, operator: str = "BatchNormalization") -> list[Any]:
    return [node for node in proto.graph.node if node.op_type == operator]


def attributes(node: Any) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def names(proto: Any) -> tuple[list[str], list[str], set[str]]:
    return (
        [entry.name for entry in proto.graph.input],
        [entry.name for entry in proto.graph.output],
        {tensor.name for tensor in proto.graph.initializer},
    )


def batch_norm(version: int, trains: bool, outputs: int, shape: Any = SHAPE, spatial: int = 1) -> tuple[Any, Any]:
    """A BatchNormalization with parameters in the file, as this version writes it; and what each output is."""
    rng = np.random.default_rng(1)
    one = shape[1:2] if spatial else shape[1:]
    x, s, b, m = rng.normal(2, 3, shape), rng.normal(size=one), rng.normal(size=one), rng.normal(size=one)
    v = rng.uniform(0.5, 2, one)
    axes = (0, *range(2, len(shape))) if spatial else (0,)
    own = x.astype(np.float32).astype(np.float64)
    batch = own.mean(axes), own.var(axes)
    mean, var = batch if trains else (m, v)
    stretch = (1, -1, *(1,) * (len(shape) - 2)) if spatial else (1, *one)
    y = (own - mean.reshape(stretch)) / np.sqrt(var + EPS).reshape(stretch) * s.reshape(stretch) + b.reshape(stretch)
    blended = [old * MOMENTUM + new * (1 - MOMENTUM) for old, new in zip((m, v), batch, strict=True)]
    form: dict[str, Any] = {"consumed_inputs": [0, 0, 0, 1, 1]} if version == 1 else {}
    if version < 7:
        form["is_test"] = int(not trains)
    if version < 9 and not spatial:
        form["spatial"] = 0
    if version >= 14 and trains:
        form["training_mode"] = 1
    held = {"s": s, "b": b, "m": m, "v": v}
    everything = [*OUTPUTS[: (3 if version >= 14 else 5) if trains else 1]]
    node = helper.make_node("BatchNormalization", ["x", *held], everything, name="bn", **form)
    floats = {name: array.astype(np.float32) for name, array in held.items()}
    ranks = {name: len(shape) if name == "y" else len(one) for name in everything[:outputs]}
    proto = _graph([node], {"x": ["batch", *shape[1:]]}, ranks, floats, version)
    return proto, (x.astype(np.float32), dict(zip(OUTPUTS, [y, *blended, *batch], strict=True)))


def _graph(body: Any, inputs: dict[str, Any], outputs: Any, held: dict[str, Any], opset: int, **model: Any) -> Any:
    graph = helper.make_graph(
        body,
        "named",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, 1, [None] * rank) for name, rank in outputs.items()],
        [onnx.numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=max(4, 8 if opset < 18 else 10), **model
    )


def run(proto: Any, x: Any, close: Any, want: dict[str, Any]) -> None:
    """minorm computes `want` from it, and so does onnxruntime, if it runs it."""
    got = mo.load(proto)(mn.Tensor(x))
    got = got if isinstance(got, tuple) else (got,)
    for entry, y in zip(proto.graph.output, got, strict=True):
        close(y, want[entry.name], 4)
    pytest.importorskip("onnxruntime")
    if verification.how_to_check(proto):
        verification.check(proto)
    spatial = all(attributes(node).get("spatial", 1) for node in nodes(proto))
    session = verification.start(proto) if spatial else "onnxruntime trains no statistics of every position"
    if not isinstance(session, str):
        wrong = verification.wrong_in_onnxruntime(proto)
        for entry, y in zip(proto.graph.output, verification.run(session, {"x": x.copy()}), strict=True):
            if entry.name in wrong:
                continue
            close(mn.Tensor(y), want[entry.name], 4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("trains", "outputs"), [(False, 1), (True, 1), (True, 3), (True, 5)])
@pytest.mark.parametrize("version", VERSIONS)
def test_batch_normalization_from_every_version_to_every_other(
    version: int, trains: bool, outputs: int, target: int, close: Any
) -> None:
    if version >= 14 and outputs == 5:
        return
    old, (x, want) = batch_norm(version, trains, outputs)
    new = mo.convert(old, opset_version=target)
    assert names(new)[:2] == names(old)[:2]
    assert {"s", "b"} | ({"m", "v"} if not trains or outputs > 1 else set()) <= names(new)[2]
    (node,) = nodes(new)
    assert len([name for name in node.output if name]) == ((3 if target >= 14 else 5) if trains else 1)
    assert attributes(node).get("training_mode", 0) == int(trains and target >= 14)
    assert np.float32(attributes(node).get("momentum", 0.9)) == np.float32(0.9)
    assert list(node.input[1:]) == ["s", "b", "m", "v"]
    if outputs > 1 or not trains:
        run(new, x, close, want)
    else:  # no output takes the statistics; onnxruntime would spoil y by changing them in place
        close(mo.load(new)(mn.Tensor(x)), want["y"], 4)
    assert mo.load(new).training == mo.load(old).training == trains
    assert [d.dim_param or d.dim_value for d in new.graph.input[0].type.tensor_type.shape.dim] == ["batch", 3, 2, 5]


@pytest.mark.parametrize("target", [7, 9, 14, 26])
@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("version", [6, 7])
def test_statistics_for_every_position_become_those_of_so_many_channels(
    version: int, trains: bool, target: int, close: Any
) -> None:
    old, (x, want) = batch_norm(version, trains, 3 if trains else 1, spatial=0)
    new = mo.convert(old, opset_version=target)
    assert names(new)[:2] == names(old)[:2]
    assert {"s", "b", "m", "v"} <= names(new)[2]
    assert len(nodes(new)) == 1
    assert {tensor.name: list(tensor.dims) for tensor in new.graph.initializer}["s"] == [3, 2, 5]
    run(new, x, close, want)
    again = mo.convert(new, opset_version=15)
    run(again, x, close, want)


@pytest.mark.parametrize("version", [9, 15])
def test_one_value_a_channel_still_changes_the_running_statistics(version: int, close: Any) -> None:
    """y is the bias, and the variance of the batch is 0."""
    old, (x, want) = batch_norm(version, True, 3, (1, 3))
    del old.graph.input[0].type.tensor_type.shape.dim[:]
    old.graph.input[0].type.tensor_type.shape.dim.extend([onnx.TensorShapeProto.Dimension(dim_value=n) for n in (1, 3)])
    new = mo.convert(old, opset_version=22 if version == 9 else 7)
    assert len(nodes(new)) == 1
    model = mo.load(new)
    for got, name in zip(model(mn.Tensor(x)), OUTPUTS, strict=False):
        close(got, want[name], 4)
    close(dict(model.named_buffers())["v"], want["var"], 4)


@pytest.mark.parametrize("target", [9, 15])
def test_statistics_that_the_graph_computes_stay_with_their_node(target: int, close: Any) -> None:
    old, (x, want) = batch_norm(15 if target == 9 else 9, True, 3)
    tensors = {t.name: t for t in old.graph.initializer}
    old.graph.initializer.remove(tensors["m"])
    old.graph.node.insert(0, helper.make_node("Add", ["half", "half"], ["m"]))
    half = onnx.numpy_helper.to_array(tensors["m"]) / 2
    old.graph.initializer.append(onnx.numpy_helper.from_array(half, "half"))
    new = mo.convert(old, opset_version=target)
    (node,) = nodes(new)
    assert len(node.output) == (3 if target == 15 else 5)
    assert "half" in names(new)[2]
    run(new, x, close, want)


@pytest.mark.parametrize("chain", [(7, 26), (13, 14), (15, 9), (26, 13, 22)])
@pytest.mark.parametrize(
    "options",
    [{}, {"momentum": None}, {"unbiased_running_var": True}, {"momentum": None, "unbiased_running_var": True}],
    ids=str,
)
def test_running_statistics_over_several_steps(options: dict[str, Any], chain: tuple[int, ...], lived_in: Any) -> None:
    """Whatever blends them: the node stays, and onnxruntime computes what minorm's own layer does."""
    pytest.importorskip("onnxruntime")
    net = nn.Sequential(nn.Conv2d(2, 3, 1), lived_in(nn.BatchNorm2d(3, **options)), nn.ReLU())
    proto = mo.export(net, mn.randn(4, 2, 3, 3), opset_version=chain[0], training=True)
    before = names(proto)
    for opset in chain[1:]:
        proto = mo.convert(proto, opset_version=opset)
        assert names(proto)[:2] == before[:2]
        assert set(net.state_dict()) - {"1.num_batches_tracked"} <= names(proto)[2]
    (node,) = nodes(proto)
    assert len(node.output) == (3 if chain[-1] >= 14 else 5)
    assert [n.op_type for n in proto.graph.node].count("ReduceMean") == 0
    loaded = mo.load(proto)
    session = verification.start(proto)
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    net.train()
    for step in range(3):
        x = mn.randn(4 + step, 2, 3, 3)
        for tensor in proto.graph.initializer:
            tensor.CopyFrom(onnx.numpy_helper.from_array(held[tensor.name], tensor.name))
        session = verification.start(proto)
        want = net(x)
        y, *updates = verification.run(session, {"x": x.array})
        np.testing.assert_allclose(y, want.array, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(loaded(x).array, want.array, rtol=1e-4, atol=1e-5)
        for name, value in zip(before[1][1:], updates, strict=True):
            key = name.removesuffix(".updated")
            held[key] = value
            np.testing.assert_allclose(value, net.state_dict()[key].array, rtol=1e-5, atol=1e-6, err_msg=key)
            np.testing.assert_allclose(loaded.state_dict()[key].array, value, rtol=1e-5, atol=1e-6)


def group_norm(version: int, g: int = 2, **attributes: Any) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(2)
    count = g if version == 18 else 4
    x, s, b = (rng.normal(1, 2, shape).astype(np.float32) for shape in ((3, 4, 5), (count,), (count,)))
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=g, **attributes)
    flat = x.astype(np.float64).reshape(3, g, -1)
    y = ((flat - flat.mean(-1, keepdims=True)) / np.sqrt(flat.var(-1, keepdims=True) + EPS)).reshape(3, 4, 5)
    per = [np.repeat(p, 4 // count).reshape(1, 4, 1) for p in (s, b)]
    return _graph([node], {"x": ["n", 4, 5]}, {"y": 3}, {"s": s, "b": b}, version), x, y * per[0] + per[1]


@pytest.mark.parametrize("target", [7, 18, 20, 21, 26])
@pytest.mark.parametrize("version", [18, 21])
def test_group_normalization_both_ways(version: int, target: int, close: Any) -> None:
    old, x, want = group_norm(version)
    new = mo.convert(old, opset_version=target)
    assert names(new)[:2] == names(old)[:2]
    assert {"s", "b"} <= names(new)[2]
    assert len(nodes(new, "GroupNormalization")) == (target >= 21 or version == 18 <= target)
    run(new, x, close, {"y": want})
    assert [name for name, _ in mo.load(new).named_parameters()] == ["s", "b"]


def standardized(x: Any, axis: int) -> Any:
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + EPS)


@pytest.mark.parametrize(
    ("operator", "since", "targets", "held", "attributes", "formula"),
    [
        (
            "InstanceNormalization",
            6,
            (7, 22, 26),
            {"s": (4,), "b": (4,)},
            {},
            lambda x, s, b: standardized(x, 2) * s[:, None] + b[:, None],
        ),
        (
            "MeanVarianceNormalization",
            13,
            (7, 9, 26),
            {},
            {"axes": [0, 2]},
            lambda x: (x - x.mean((0, 2), keepdims=True)) / (x.std((0, 2), keepdims=True) + 1e-9),
        ),
        (
            "LayerNormalization",
            17,
            (7, 16, 26),
            {"s": (5,), "b": (5,)},
            {},
            lambda x, s, b: standardized(x, -1) * s + b,
        ),
        (
            "RMSNormalization",
            23,
            (7, 22, 26),
            {"s": (5,)},
            {},
            lambda x, s: x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * s,
        ),
        (
            "LpNormalization",
            1,
            (7, 22, 26),
            {},
            {"axis": 1, "p": 1},
            lambda x: x / abs(x).sum(1, keepdims=True),
        ),
    ],
)
def test_the_other_normalizations(
    operator: str, since: int, targets: Any, held: Any, attributes: Any, formula: Any, close: Any
) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(1, 2, (3, 4, 5)).astype(np.float32)
    parameters = {name: rng.normal(size=shape).astype(np.float32) for name, shape in held.items()}
    node = helper.make_node(operator, ["x", *parameters], ["y"], **attributes)
    old = _graph([node], {"x": ["n", 4, 5]}, {"y": 3}, parameters, since)
    want = formula(x.astype(np.float64), *parameters.values())
    for target in targets:
        new = mo.convert(old, opset_version=target)
        assert names(new)[:2] == names(old)[:2]
        assert set(parameters) <= names(new)[2]
        run(new, x, close, {"y": want})


def test_frozen_layers_and_what_the_file_says_of_itself_are_carried_over() -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.BatchNorm2d(3))
    net[1].freeze()
    net[2].freeze()
    proto = mo.export(net, mn.randn(2, 2, 3, 3), opset_version=22, training=True)
    proto.graph.name, proto.doc_string, proto.model_version = "mine", "a net", 7
    helper.set_model_props(proto, {p.key: p.value for p in proto.metadata_props} | {"license": "MIT"})
    for opset in (13, 26):
        proto = mo.convert(proto, opset_version=opset)
        assert (proto.graph.name, proto.doc_string, proto.model_version) == ("mine", "a net", 7)
        said = {entry.key: entry.value for entry in proto.metadata_props}
        assert said["license"] == "MIT"
        assert json.loads(said["minorm.training"]) is True
        assert [n.output[0] for n in nodes(proto) if len(n.output) == 1] == [nodes(proto)[0].output[0]]
        model = mo.load(proto)
        assert model.get_submodule("1").frozen
        assert not model.get_submodule("3").frozen
        assert model.get_submodule("3").training
        assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["1.weight", "1.bias"]


def test_each_layer_keeps_its_own_mode() -> None:
    """A file in which one layer trains and one does not, though nothing says that it is frozen."""
    rng = np.random.default_rng(0)
    held = {n: rng.uniform(0.5, 1, 3).astype(np.float32) for n in ("s", "b", "m", "v", "s2", "b2", "m2", "v2")}
    graph = _graph(
        [
            helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["h", "nm", "nv"], training_mode=1),
            helper.make_node("BatchNormalization", ["h", "s2", "b2", "m2", "v2"], ["y"]),
        ],
        {"x": [4, 3]},
        {"y": 2, "nm": 1},
        held,
        15,
    )
    new = mo.convert(graph, opset_version=9)
    assert [len(node.output) for node in nodes(new)] == [5, 1]
    assert [entry.name for entry in new.graph.output] == ["y", "nm"]
    assert [len(node.output) for node in nodes(mo.convert(new, opset_version=14))] == [3, 1]


def test_several_inputs_with_free_axes_stay_free() -> None:
    def model(image: mn.Tensor, ids: mn.Tensor) -> mn.Tensor:
        return image.mean((2, 3)) + ids.to(mn.float32)

    file = mo.export(
        model,
        (mn.randn(2, 3, 8, 8), mn.tensor(np.zeros((2, 3), np.int64))),
        dynamic_axes={"image": {0: "batch", 2: "height", 3: "width"}, "ids": {0: "batch"}},
    )
    new = mo.convert(file, opset_version=11)
    shapes = [
        [d.dim_param or d.dim_value for d in entry.type.tensor_type.shape.dim]
        for entry in (*new.graph.input, *new.graph.output)
    ]
    assert shapes == [["batch", 3, "height", "width"], ["batch", 3], ["batch", 3]]
    fixed = mo.convert(file, opset_version=11, shapes={"image": (5, 3, 4, 4), "ids": (5, 3)})
    assert [d.dim_value for d in fixed.graph.input[0].type.tensor_type.shape.dim] == [5, 3, 4, 4]


def test_what_cannot_be_is_a_clear_error(graph_of: Any) -> None:
    old, _ = batch_norm(9, False, 1)
    with pytest.raises(ValueError, match=r"convert: opset_version is 6; expected an int from 7"):
        mo.convert(old, opset_version=6)
    unknown = graph_of([helper.make_node("StringNormalizer", ["x"], ["y"])], {"x": (np.float32, [3, 3])}, ["y"])
    with pytest.raises(mo.LoadError, match="minorm does not run 1 of 1 nodes"):
        mo.load(unknown)
    assert mo.convert(unknown, opset_version=13).graph.node[0] == unknown.graph.node[0]  # which does not need `load`
    with pytest.raises(ValueError, match=r"convert: there is no input and no free axis 'z'; the model has x"):
        mo.convert(old, opset_version=13, shapes={"z": (1,)})
    never = graph_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, None)}, ["y"])
    with pytest.raises(ValueError, match=r"convert: input 'x' has no shape in the file; give one, such as x=1,3,8,8"):
        mo.convert(never, opset_version=13, verify=True)


def test_from_path_to_path_verified_with_weights_outside(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    net = nn.Sequential(nn.Conv2d(3, 40, 3), nn.BatchNorm2d(40))
    mo.export(net, mn.ones(1, 3, 8, 8), tmp_path / "a.onnx", opset_version=13, external_data=True)
    new = mo.convert(tmp_path / "a.onnx", tmp_path / "b.onnx", opset_version=20, external_data=True, verify=True)
    assert new.opset_import[0].version == 20
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "a.onnx.data", "b.onnx", "b.onnx.data"]
    x = mn.randn(2, 3, 8, 8)
    np.testing.assert_array_equal(mo.load(tmp_path / "b.onnx")(x).array, mo.load(tmp_path / "a.onnx")(x).array)
    contents = (tmp_path / "a.onnx").read_bytes()
    with pytest.raises(mo.LoadError, match="lies in another file"):
        mo.convert(contents, opset_version=20)
