"""An int8 model of ours, loaded, trained and written again: int8 weights, the file's scales, onnxruntime's integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import models
from minorm import quantization as Q
from tests.quantized_models import images, trained

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
from onnx import numpy_helper  # noqa: E402  after importorskip

import minorm.onnx as mo  # noqa: E402


@pytest.fixture(scope="module")
def proto() -> Any:
    mn.manual_seed(0)
    x = images(6, 1, 8, 8)
    return mo.export(Q.convert(trained(models.digits_cnn(), x)), x)


def answers(proto: Any, x: Any) -> Any:
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")
    source = str(proto) if isinstance(proto, Path) else proto.SerializeToString()
    session = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def contents(proto: Any) -> dict[str, Any]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def test_untouched_it_is_the_file_again(proto: Any) -> None:
    before, after = contents(proto), contents(mo.export(mo.load(proto), None))
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert after[name].dtype == array.dtype
        np.testing.assert_array_equal(after[name], array)
    assert [n.op_type for n in mo.export(mo.load(proto), None).graph.node] == [n.op_type for n in proto.graph.node]


@pytest.mark.parametrize("opset", [None, 13, 19, 21])
def test_a_step_of_training_and_a_second_file(proto: Any, opset: int | None, tmp_path: Path) -> None:
    model, x = mo.load(proto).train(), images(8, 1, 8, 8, seed=2)
    optimizer = mn.optim.SGD(model.parameters(), lr=0.1)
    loss = F.cross_entropy(model(x), mn.arange(8) % 10)
    loss.backward()
    optimizer.step()
    assert F.cross_entropy(model(x), mn.arange(8) % 10).item() < loss.item()
    second = mo.export(model, None, tmp_path / "second.onnx", opset_version=opset)
    onnx.checker.check_model(second, full_check=True)
    before, after = contents(proto), contents(second)
    assert after["7_weight"].dtype == np.int8
    assert after["7_bias"].dtype == np.int32
    assert (after["7_weight"] != before["7_weight"]).any()
    for name in before:
        if name.endswith("_scale"):
            np.testing.assert_array_equal(after[name], before[name])
    y, want = model.eval()(x).array, answers(tmp_path / "second.onnx", x.array)
    assert (y != want).mean() <= 2e-3
    again = mo.load(tmp_path / "second.onnx")
    np.testing.assert_array_equal(again(x).array, want)


def test_weights_in_a_file_of_their_own(proto: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    mo.export(mo.load(proto), None, path, external_data=True)
    x = images(4, 1, 8, 8, seed=2).array
    np.testing.assert_array_equal(answers(path, x), answers(proto, x))
    assert (tmp_path / "model.onnx.data").exists()


def test_as_a_part_of_another_model(proto: Any) -> None:
    """A head on the int8 network: integers there, floats behind."""
    x = images(4, 1, 8, 8, seed=2)
    model = mn.nn.Sequential(mo.load(proto), mn.nn.Linear(10, 3))
    written = mo.export(model, x)
    assert np.abs(answers(written, x.array) - model.eval()(x).array).max() < 1e-5
