"""The properties of layers that minorm writes into a file's metadata, because ONNX has no field for them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn

onnx = pytest.importorskip("onnx")

from onnx import helper as h  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402

X = np.random.default_rng(0).normal(1, 2, (4, 3, 5)).astype(np.float32)


def exported(layer: nn.Module, **options: Any) -> Any:
    return mo.export(nn.Sequential(layer), mn.tensor(X), **options)


def said(proto: Any) -> Any:
    return json.loads({entry.key: entry.value for entry in proto.metadata_props}.get("minorm.statistics", "null"))


def test_only_what_onnx_cannot_say_is_written() -> None:
    for layer in (nn.BatchNorm1d(3), nn.InstanceNorm1d(3), nn.GroupNorm(3, 3)):
        assert said(exported(layer)) is None
    layer = nn.InstanceNorm1d(3, momentum=2 / 3, track_running_stats=True)
    wanted = {"0": {"per_sample": True, "momentum": 2 / 3, "unbiased": False}}
    assert said(exported(layer)) == said(exported(layer, training=True)) == wanted
    assert said(mo.export(layer, mn.tensor(X))) == {"": wanted["0"]}


@pytest.mark.parametrize("training", [False, True])
def test_the_layer_comes_back_from_either_form_also_twice(training: bool) -> None:
    layer = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
    layer(mn.tensor(X))
    loaded = mo.load(exported(layer, training=training))
    loaded = mo.load(mo.export(loaded, mn.tensor(X), training=training))
    assert loaded.training == training
    for mode in (True, False):
        layer.train(mode)
        loaded.train(mode)
        for _ in range(2):
            np.testing.assert_array_equal(loaded(mn.tensor(X)).array, layer(mn.tensor(X)).array)
    loaded.train()
    loaded.get_submodule("0").freeze()  # frozen: the running statistics, which stay
    layer.eval()
    np.testing.assert_array_equal(loaded(mn.tensor(X)).array, layer(mn.tensor(X)).array)
    for key, buffer in loaded.named_buffers():
        np.testing.assert_array_equal(buffer.array, layer.state_dict()[key.removeprefix("0.")].array)


def test_a_layer_that_is_called_twice_keeps_one_state() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.InstanceNorm1d(3, track_running_stats=True)

        def forward(self, x: Any) -> Any:
            return self.norm(self.norm(x) + x)

    net = Twice()
    loaded = mo.load(mo.export(net, mn.tensor(X), training=True))
    np.testing.assert_array_equal(loaded(mn.tensor(X)).array, net(mn.tensor(X)).array)
    for key, buffer in loaded.named_buffers():
        np.testing.assert_array_equal(buffer.array, net.state_dict()[key].array)


def test_onnxruntime_computes_the_same_from_the_nodes_that_blend() -> None:
    layer = nn.InstanceNorm1d(3, track_running_stats=True, momentum=None)
    proto = exported(layer, training=True, verify=True)
    assert {entry.name for entry in proto.graph.output} >= {"0.running_mean.updated", "0.num_batches_tracked.updated"}
    y, mean = mo.load(proto, outputs=["output", "0.running_mean.updated"])(mn.tensor(X))  # asked for: by the nodes
    np.testing.assert_allclose(mean.array, X.mean((0, 2)), rtol=1e-5, atol=1e-6)
    assert y.shape == X.shape


def test_files_of_others_are_read_by_their_nodes_alone() -> None:
    proto = exported(nn.InstanceNorm1d(3, track_running_stats=True))
    proto.producer_name = "another"
    assert [type(module).__name__ for module in mo.load(proto).children()] == ["BatchNormalization"]


@pytest.mark.parametrize(
    "bad",
    ["{", "3", "[]", '{"0": 3}', '{"0": {}}', '{"0": {"per_sample": true, "momentum": 2, "unbiased": false}}',
     '{"0": {"per_sample": 1, "momentum": 0.5, "unbiased": false}}', "[" * 100000],
)  # fmt: skip
def test_what_cannot_be_understood_is_refused(bad: str) -> None:
    proto = exported(nn.InstanceNorm1d(3, track_running_stats=True))
    h.set_model_props(proto, {"minorm.statistics": bad})
    with pytest.raises(mo.LoadError, match=r"metadata minorm\.statistics is .*; expected per_sample, momentum and"):
        mo.load(proto)


def test_a_description_that_no_node_fits_changes_nothing() -> None:
    proto = exported(nn.BatchNorm1d(3))
    described = {"per_sample": True, "momentum": 0.5, "unbiased": False}
    h.set_model_props(proto, {"minorm.statistics": json.dumps({"elsewhere": described})})
    assert type(mo.load(proto).get_submodule("0")).__name__ == "BatchNormalization"


@pytest.mark.parametrize("place", [b"a key", b"a value"])
def test_text_that_is_not_utf_8_stays_as_it_is(place: bytes) -> None:
    proto = exported(nn.InstanceNorm1d(3, track_running_stats=True))
    proto.producer_name = "a producer"
    proto.metadata_props.add(key="a key", value="a value")
    broken = place[:-1] + b"\xff"
    data = proto.SerializeToString().replace(place, broken)
    back = mo.export(mo.load(data), None).SerializeToString()
    assert broken in back
    assert b"minorm.statistics" not in back
