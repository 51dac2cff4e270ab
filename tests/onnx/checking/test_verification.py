from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
import minorm.onnx as mo
from minorm import nn
from minorm.onnx.checking import sandbox, verification
from minorm.onnx.exporting import translating

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

LAYER = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
X = mn.tensor(np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32))


def test_a_report_says_what_was_checked_and_how_far_apart(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    proto = mo.export(LAYER, X, path)
    y = LAYER(X)
    for model in (proto, path, str(path)):
        report = mo.verify(model, [X], [y])
        assert report.checker == "passed"
        assert report.runtime.startswith("onnxruntime ")
        assert report.difference < 1e-6
        assert report.outputs[0].shape == (5, 2)
        assert "largest difference" in str(report)
    assert mo.verify(proto, {"x": X.array}, [y.array]).difference < 1e-6


def test_a_difference_is_an_error_that_says_how_large() -> None:
    proto = mo.export(LAYER, X, None)
    wrong = LAYER(X).array.copy()
    wrong[1, 1] += 0.01
    with pytest.raises(mo.VerifyError, match=r"output differs by 0.01 .* allowed: 0.0001"):
        mo.verify(proto, [X], [wrong])
    mo.verify(proto, [X], [wrong], tolerance=0.1)
    with pytest.raises(mo.VerifyError, match=r"output is float32\(5, 2\) .* float32\(5, 1\) in the model"):
        mo.verify(proto, [X], [wrong[:, :1]])


def test_nan_is_no_difference_to_nan_but_to_a_number() -> None:
    x = mn.tensor([[np.nan, np.inf, 1.0]])
    proto = mo.export(nn.ReLU(), x, None)
    mo.verify(proto, [x], [x])
    with pytest.raises(mo.VerifyError, match="differs by nan"):
        mo.verify(proto, [x], [np.array([[0.0, np.inf, 1.0]], np.float32)])


def test_what_is_fed_is_not_written_to() -> None:
    x = X.array.copy()
    mo.verify(mo.export(LAYER, X, None), [x], [LAYER(X)])
    np.testing.assert_array_equal(x, X.array)


def test_a_model_the_runtime_has_no_kernel_for_is_reported_not_raised() -> None:
    layer, x = nn.BatchNorm1d(3).to(mn.bfloat16).eval(), mn.ones(4, 3, dtype=mn.bfloat16)
    proto = mo.export(layer, x, None)
    report = mo.verify(proto, [x], [layer(x)])
    assert "does not run this model" in report.runtime
    assert not report.compared
    with pytest.warns(
        UserWarning, match=r"export: the file was not compared with the model: onnxruntime .* does not run"
    ):
        mo.export(layer, x, None, verify=True)


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("ValidateOpsetForDomain ONNX Runtime only *guarantees* support for models stamped with opset 27", "absent"),
        ("Unsupported model IR version: 99, max supported IR version: 13", "absent"),
        ("Node (n) has input size 1 not in range [min=2, max=2]", "failed"),
    ],
)
def test_an_opset_or_format_too_new_for_the_runtime_is_no_fault_of_the_model(words: str, state: str) -> None:
    assert sandbox.failed("load", words).state == state


def test_a_model_that_is_not_valid_is_an_error() -> None:
    proto = mo.export(LAYER, X, None)
    proto.graph.node[1].input[0] = "nothing"
    with pytest.raises(mo.VerifyError, match=r"the checker of onnx .* rejects the model"):
        mo.verify(proto, [X], [LAYER(X)])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_every_float_type_goes_in_and_comes_out(dtype: Any) -> None:
    x = mn.tensor(np.linspace(-2, 2, 6).reshape(2, 3).astype(dtype))
    proto = mo.export(lambda x: x.reshape(3, -1).mT, x, None, dynamic_axes={})
    report = mo.verify(proto, [x], [x.reshape(3, -1).mT])
    assert report.outputs[0].dtype == x.dtype
    assert verification.check(proto) == "passed"


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"unbiased_running_var": True}], ids=str)
def test_new_running_statistics_are_compared_too(options: dict[str, Any]) -> None:
    net = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3, **options), nn.ReLU()).train()
    x = mn.randn(4, 2, 3, 3) + 1
    translated = translating.translate(net, x, opset_version=None, training=True)
    assert len(translated.results) == len(translated.proto.graph.output)
    net(x)  # the trace left it as it was
    for entry, value in zip(translated.proto.graph.output[1:], translated.results[1:], strict=True):
        np.testing.assert_array_equal(value.array, net.state_dict()[entry.name.removesuffix(".updated")].array)
    assert mo.verify(translated.proto, translated.inputs, translated.results, training=True).compared
    (node,) = (node for node in translated.proto.graph.node if node.op_type == "BatchNormalization")
    momentum = next(a for a in node.attribute if a.name == "momentum")
    momentum.f = 0.5
    with pytest.raises(mo.VerifyError, match=r"1\.running_mean\.updated differs"):
        mo.verify(translated.proto, translated.inputs, translated.results, training=True)


def test_statistics_that_no_module_holds_are_outputs_all_the_same() -> None:
    mean, var = mn.zeros(3), mn.ones(3)
    proto = mo.export(lambda x: F.batch_norm(x, mean, var, training=True), mn.randn(4, 3), training=True, verify=True)
    assert len(proto.graph.output) == 3
