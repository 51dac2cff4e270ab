"""All layers beyond PyTorch's support files, copies, types, export, and a row in the summary."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.nn.utils.parametrizations import weight_standardization

LAYERS: dict[str, tuple[Callable[..., Any], tuple[int, ...], str]] = {
    "GhostBatchNorm": (lambda: nn.GhostBatchNorm(4, 2), (6, 4, 5, 5), "(0, 2, 3), 2 samples per group"),
    "GhostBatchNorm, cumulative": (lambda: nn.GhostBatchNorm(4, 4, momentum=None), (6, 4), "(0,), 4 samples per group"),
    "BatchRenorm1d": (lambda: nn.BatchRenorm1d(4), (6, 4), "(0,)"),
    "BatchRenorm2d": (lambda: nn.BatchRenorm2d(4, rmax=2, dmax=1), (6, 4, 5, 5), "(0, 2, 3)"),
    "BatchRenorm3d": (lambda: nn.BatchRenorm3d(4, momentum=None), (6, 4, 2, 3, 2), "(0, 2, 3, 4)"),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(4), (6, 4, 5, 5), "(0, 2, 3)"),
    "FilterResponseNorm2d": (lambda: nn.FilterResponseNorm2d(4), (6, 4, 5, 5), "(2, 3)"),
    "TLU": (lambda: nn.TLU(4), (6, 4, 5), ""),
    "FrozenBatchNorm2d": (lambda: nn.FrozenBatchNorm2d(4), (6, 4, 5, 5), ""),
    "weight_standardization": (lambda: weight_standardization(nn.Conv2d(4, 3, 3)), (6, 4, 5, 5), ""),
}


def trained(name: str) -> tuple[Any, mn.Tensor]:
    """A layer whose state is no longer its first."""
    make, shape, _ = LAYERS[name]
    layer, rng = make(), np.random.default_rng(0)
    x = mn.tensor((rng.standard_normal(shape) * 2 + 1).astype(np.float32))
    with mn.no_grad():
        for p in layer.parameters():
            p.copy_(mn.tensor(rng.standard_normal(p.shape).astype(np.float32)))
    for _ in range(3):
        layer(x)
    return layer, x


@pytest.mark.parametrize("name", LAYERS)
def test_it_is_saved_and_loaded(name: str, tmp_path: Path) -> None:
    layer, x = trained(name)
    mn.save(layer.state_dict(), tmp_path / "layer.safetensors")
    other = LAYERS[name][0]()
    other.load_state_dict(mn.load(tmp_path / "layer.safetensors"))
    for training in (False, True):
        a, b = (m.train(training)(x).detach().numpy() for m in (layer, other))
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", LAYERS)
def test_a_copy_is_its_own(name: str) -> None:
    layer, x = trained(name)
    other = copy.deepcopy(layer)
    state = {k: v.numpy().copy() for k, v in layer.state_dict().items()}
    other.train()(x * 3)
    for key, value in layer.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[key])
    assert repr(other) == repr(layer)
    again = pickle.loads(pickle.dumps(layer))
    assert again.eval()(x).detach().numpy().tobytes() == layer.eval()(x).detach().numpy().tobytes()


@pytest.mark.parametrize("dtype", [mn.float16, mn.bfloat16, mn.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_types(name: str, dtype: Any) -> None:
    layer, x = trained(name)
    expected = layer.eval()(x).detach().numpy()
    layer.to(dtype)
    y = layer(x.to(dtype))
    assert y.dtype == dtype
    tolerance = {mn.float64: 1e-5, mn.float16: 2e-2, mn.bfloat16: 2e-1}[dtype]
    np.testing.assert_allclose(y.detach().numpy().astype(np.float32), expected, rtol=tolerance, atol=tolerance)
    layer.train()(x.to(dtype).requires_grad_()).sum().backward()
    assert all(p.grad.dtype == dtype for p in layer.parameters())


@pytest.mark.parametrize("opset", [7, 13, 17, 21])
@pytest.mark.parametrize("name", LAYERS)
def test_export_in_evaluation(name: str, opset: int) -> None:
    """onnxruntime computes the same, and so does the file read back."""
    onnx = pytest.importorskip("minorm.onnx")
    layer, x = trained(name)
    layer.eval()
    file = onnx.export(layer, x, None, opset_version=opset, verify=opset == 17)
    loaded = onnx.load(file)
    np.testing.assert_allclose(loaded(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in LAYERS if not n.startswith("BatchRenorm")])
def test_export_for_training(name: str) -> None:
    """The file gives what the layer gives in training, and the running statistics that it leaves."""
    onnx = pytest.importorskip("minorm.onnx")
    layer, x = trained(name)
    loaded = onnx.load(onnx.export(layer, x, None, training=True)).train()
    np.testing.assert_allclose(loaded(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-5, atol=1e-5)
    after = loaded.state_dict()
    for key, value in layer.state_dict().items():
        if "running" in key:
            np.testing.assert_allclose(after[key].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_the_summary_has_a_row(name: str) -> None:
    layer, x = trained(name)
    (row,) = nn.summary(nn.Sequential(layer), x.shape).rows
    assert row.layer == f"0 ({type(layer).__name__})"
    assert row.output_shape == str(layer(x).shape)
    assert row.parameters == sum(p.numel() for p in layer.parameters())
    assert row.reduces_over == LAYERS[name][2]
    assert (row.multiplications > 0) == (name == "weight_standardization")


@pytest.mark.parametrize("name", [n for n in LAYERS if n not in ("TLU", "weight_standardization")])
def test_compute_dtype(name: str) -> None:
    """float64 inside, float16 outside: rounded once."""
    layer, x = trained(name)
    x = x.half()
    wide = copy.deepcopy(layer).double()
    layer.compute_dtype = mn.float64
    for training in (True, False):
        y = layer.train(training)(x).detach().numpy()
        expected = wide.train(training)(x.double()).detach().numpy()
        assert y.dtype == np.float16
        if training:  # running statistics are kept in another type, so only the batch's own are the same
            np.testing.assert_array_equal(y, expected.astype(np.float16))
        else:
            np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", ["GhostBatchNorm", "BatchRenorm1d"])
def test_what_they_have_no_arithmetic_for_is_refused(name: str) -> None:
    layer, x = trained(name)
    with pytest.raises(ValueError, match=f"{name}: mask is given; expected None"):
        layer(x, mn.ones(*x.shape) > 0)
    with pytest.raises(TypeError, match=f"{name}: there is no argument 'variance'"):
        type(layer)(4, variance="onnx")
