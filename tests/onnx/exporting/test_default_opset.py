"""The opset that export chooses by itself, against the opsets that brought each operator, in ONNX's own change log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import models, nn

onnx = pytest.importorskip("onnx")

import minorm.onnx as mo  # noqa: E402  after importorskip
from minorm.onnx.exporting import default_opset, translating  # noqa: E402

IR = {17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 12, 25: 13, 26: 13}  # of onnx 1.12, 1.13, ... 1.21


def image(dtype: Any = mn.float32) -> mn.Tensor:
    return mn.Tensor(np.random.default_rng(0).standard_normal((2, 8, 6, 6)).astype(np.float32)).to(dtype)


class Masked(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: mn.Tensor, mask: mn.Tensor) -> mn.Tensor:
        return self.norm(x, mask)


# name -> the model, the opset, and the operator that the normalization is, once; "" where it is a formula
LAYERS: dict[str, tuple[Any, int, str]] = {
    "no normalization": (lambda: nn.Sequential(nn.Conv2d(8, 4, 3), nn.ReLU()), 17, ""),
    "batch": (lambda: nn.BatchNorm2d(8), 17, "BatchNormalization"),
    "batch frozen": (lambda: nn.FrozenBatchNorm2d(8), 17, "BatchNormalization"),
    "sync batch": (lambda: nn.SyncBatchNorm(8), 17, "BatchNormalization"),
    "ghost batch": (lambda: nn.GhostBatchNorm(8, 2), 17, "BatchNormalization"),
    "instance": (lambda: nn.InstanceNorm2d(8, affine=True), 17, "InstanceNormalization"),
    "instance with statistics": (lambda: nn.InstanceNorm2d(8, track_running_stats=True), 17, "BatchNormalization"),
    "layer": (lambda: nn.LayerNorm(6), 17, "LayerNormalization"),
    "layer of two axes": (lambda: nn.LayerNorm((6, 6)), 17, "LayerNormalization"),
    "response": (lambda: nn.LocalResponseNorm(3), 17, "LRN"),
    "filter response": (lambda: nn.FilterResponseNorm2d(8), 17, ""),
    "mean and variance": (lambda: lambda x: F.mean_variance_norm(x, (0, 2, 3)), 17, "MeanVarianceNormalization"),
    "unit length": (lambda: F.normalize, 17, "LpNormalization"),
    "trailing axes": (lambda: lambda x: F.normalization(x, axes=(2, 3)), 17, "InstanceNormalization"),
    "group": (lambda: nn.GroupNorm(4, 8), 21, "GroupNormalization"),
    "group without weights": (lambda: nn.GroupNorm(4, 8, affine=False), 21, "GroupNormalization"),
    "a weight a group": (lambda: lambda x: F.group_norm(x, 4, mn.ones(4), mn.ones(4)), 21, "GroupNormalization"),
    "rms": (lambda: nn.RMSNorm(6), 23, "RMSNormalization"),
    "rms and group": (lambda: nn.Sequential(nn.GroupNorm(4, 8), nn.RMSNorm(6)), 23, "GroupNormalization"),
    "an operation of 26": (lambda: lambda x: x.cumprod(1), 26, ""),
    "gelu, which is split": (lambda: nn.Sequential(nn.GELU(), nn.LayerNorm(6)), 17, "LayerNormalization"),
}


@pytest.mark.parametrize("name", LAYERS)
def test_the_lowest_opset_that_splits_no_normalization(name: str) -> None:
    make, opset, operator = LAYERS[name]
    written = mo.export(make(), image())
    assert written.opset_import[0].version == opset
    assert written.ir_version == IR[opset]
    found = [node.op_type for node in written.graph.node]
    assert not operator or found.count(operator) == 1
    newest = mo.export(make(), image(), opset_version=26)
    norms = [kind for kind in found if kind.endswith(("Normalization", "LRN"))]
    assert norms == [n.op_type for n in newest.graph.node if n.op_type.endswith(("Normalization", "LRN"))]


@pytest.mark.parametrize(
    ("dtype", "opsets"),
    {  # of batch, instance, layer, group and rms norm
        mn.float16: (17, 17, 17, 21, 23),
        mn.bfloat16: (17, 22, 17, 21, 23),  # InstanceNormalization takes bfloat16 from 22 on
        mn.float64: (17, 17, 17, 17, 17),  # all but BatchNorm are the formula at every opset
    }.items(),
)
def test_types_count(dtype: Any, opsets: tuple[int, ...]) -> None:
    layers = (nn.BatchNorm2d(8), nn.InstanceNorm2d(8), nn.LayerNorm(6), nn.GroupNorm(4, 8), nn.RMSNorm(6))
    for layer, opset in zip(layers, opsets, strict=True):
        written = mo.export(layer.to(dtype), image(dtype))
        assert (written.opset_import[0].version, written.ir_version) == (opset, IR[opset]), type(layer).__name__


@pytest.mark.parametrize(
    "make", [lambda: nn.BatchNorm2d(8), lambda: nn.LayerNorm(6), lambda: nn.GroupNorm(4, 8), lambda: nn.RMSNorm(6)]
)
def test_a_normalization_with_a_mask_is_a_formula_at_every_opset(make: Any) -> None:
    layer = make()
    mask = mn.Tensor(np.ones((2, 1, 6, 6) if isinstance(layer, (nn.BatchNorm2d, nn.GroupNorm)) else (2, 8, 6, 6), bool))
    assert mo.export(Masked(layer), (image(), mask)).opset_import[0].version == 17


@pytest.mark.parametrize(("norm", "opset"), [("batch", 17), ("group", 21)])
def test_the_training_form(norm: str, opset: int) -> None:
    layer = nn.BatchNorm2d(8) if norm == "batch" else nn.GroupNorm(4, 8)
    assert mo.export(nn.Sequential(layer), image(), training=True).opset_import[0].version == opset


def test_a_transformer_runs_at_the_opset_and_agrees() -> None:
    x = mn.Tensor(np.random.default_rng(1).standard_normal((2, 5, 8)).astype(np.float32))
    written = mo.export(nn.TransformerEncoderLayer(8, 2, 16), x, verify=True)
    assert written.opset_import[0].version == 17
    assert [node.op_type for node in written.graph.node].count("LayerNormalization") == 2


def test_a_loaded_graph_inside_keeps_its_normalizations_whole() -> None:
    for layer, opset in ((nn.GroupNorm(4, 8), 21), (nn.BatchNorm2d(8), 17)):
        inner = mo.load(mo.export(nn.Sequential(nn.Conv2d(8, 8, 1), layer), image(), opset_version=22))
        written = mo.export(nn.Sequential(inner, nn.ReLU()), image())
        assert written.opset_import[0].version == opset
        assert len(written.graph.node) == 3
        assert mo.export(inner, None).opset_import[0].version == 22  # its file's own


def test_the_model_runs_as_often_as_with_an_opset_that_is_asked_for() -> None:
    calls = []

    class Counted(nn.Module):
        def forward(self, x: mn.Tensor) -> mn.Tensor:
            calls.append(x.shape)
            return F.group_norm(x, 2)

    mo.export(Counted(), image(), opset_version=21)
    asked = len(calls)
    mo.export(Counted(), image())
    assert len(calls) == 2 * asked


def test_the_same_file_as_at_that_opset_when_it_is_asked_for() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.Dropout())
    assert mo.export(model, image()) == mo.export(model, image(), opset_version=21)


def test_it_says_why() -> None:
    def why(model: Any) -> str:
        return translating.translate(model, image(), opset_version=None, training=False).why

    assert why(nn.BatchNorm2d(8)) == ""
    assert why(nn.Sequential(nn.ReLU(), nn.GroupNorm(4, 8))) == "opset 20 splits group_norm in 1"
    assert why(lambda x: x.cumprod(1)) == "opset 25 does not have every operator"
    text = "the lowest opset from 17 on that has every operator and splits no normalization"
    assert default_opset.reason("") == text
    assert default_opset.reason("opset 20 splits group_norm") == f"{text} (opset 20 splits group_norm)"


def test_an_operation_without_a_form_is_an_error_still() -> None:
    with pytest.raises(mo.ExportError, match=r"1 operation\(s\) cannot be written at opset 26"):
        mo.export(lambda x: x.histc(4), image())


@pytest.mark.parametrize(("name", "opset"), [("digits_cnn", 17), ("lenet", 17), ("resnet20", 17), ("norms_cnn", 21)])
def test_the_networks_of_the_library(name: str, opset: int) -> None:
    x = mn.Tensor(np.zeros((2, 1, 16, 16), np.float32))
    assert mo.export(getattr(models, name)(channels=1, size=16), x).opset_import[0].version == opset
