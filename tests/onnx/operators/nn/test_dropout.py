from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.checking import verification

onnx = pytest.importorskip("onnx")

NET = nn.Sequential(nn.Dropout(0.25), nn.Linear(40, 2), nn.Dropout(0.5))
X = mn.ones(8, 40)


def test_the_inference_form_has_no_dropout(proved: Any, operators: Any, opset: int) -> None:
    assert operators(proved(NET, X, opset=opset)) == ["Gemm"]


@pytest.mark.filterwarnings("ignore:export. before opset 12")
def test_the_training_form_keeps_it_with_its_ratio(operators: Any, numbers: Any, opset: int) -> None:
    proto = mo.export(NET, X, None, opset_version=opset, training=True)
    onnx.checker.check_model(proto, full_check=True)
    assert operators(proto) == ["Dropout", "Gemm", "Dropout"]
    values = numbers(proto)
    node = next(node for node in proto.graph.node if node.op_type == "Dropout")
    if opset < 12:
        assert node.attribute[0].f == np.float32(0.25)
    else:
        assert values[node.input[1]] == np.float32(0.25)
        assert values[node.input[2]] == np.bool_(True)


def test_onnxruntime_drops_in_the_training_form() -> None:
    pytest.importorskip("onnxruntime")
    proto = mo.export(nn.Dropout(0.25), X, None, training=True)
    (y,) = verification.run(verification.start(proto), {"x": X.array})
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.1 < (y == 0).mean() < 0.4


def test_before_opset_12_a_warning_says_that_the_mode_is_lost() -> None:
    with pytest.warns(UserWarning, match="before opset 12 a Dropout node does not say whether it trains"):
        mo.export(NET, X, None, opset_version=11, training=True)


def test_a_frozen_layer_does_nothing_in_the_training_form(operators: Any) -> None:
    net = nn.Sequential(nn.Dropout(0.25).freeze(), nn.Dropout(0.5))
    proto = mo.export(net, X, None, training=True)
    assert operators(proto) == ["Dropout"]
    assert {p.key: p.value for p in proto.metadata_props}["minorm.frozen"] == '["0"]'


@pytest.mark.filterwarnings("ignore:export. before opset 12")
def test_a_loaded_layer_shows_the_ratio_of_the_file(opset: int) -> None:
    text = str(mo.load(mo.export(NET, X, None, opset_version=opset, training=True)))
    assert "p=0.25" in text
    assert "p=0.5" in text
