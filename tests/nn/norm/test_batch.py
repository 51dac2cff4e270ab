"""BatchNorm: repr, and statistics of every position."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def test_repr():
    assert repr(nn.BatchNorm2d(3)) == "BatchNorm2d(3, eps=1e-05, momentum=0.9, affine=True, track_running_stats=True)"
    assert "unbiased_running_var=True" in repr(nn.BatchNorm2d(3, unbiased_running_var=True))


def test_batch_norm_of_every_position() -> None:
    """num_features as a shape: statistics over N alone."""
    x = np.random.default_rng(0).standard_normal((6, 3, 4, 5)).astype(np.float32) * 2 + 3
    layer = nn.BatchNorm2d((3, 4, 5))
    assert layer.weight.shape == layer.running_mean.shape == (3, 4, 5)
    y = layer(mn.tensor(x)).numpy()
    np.testing.assert_allclose(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), atol=1e-5)
    np.testing.assert_allclose(layer.running_mean.numpy(), 0.1 * x.mean(0), rtol=1e-5, atol=1e-6)
    layer.eval()
    mean, var = layer.running_mean.numpy(), layer.running_var.numpy()
    np.testing.assert_allclose(layer(mn.tensor(x)).numpy(), (x - mean) / np.sqrt(var + 1e-5), atol=1e-5)
    assert repr(layer) == "BatchNorm2d((3, 4, 5), eps=1e-05, momentum=0.9, affine=True, track_running_stats=True)"
    with pytest.raises(ValueError, match=r"x has shape \(2, 3, 5, 4\).*x.shape\[1:\] == \(3, 4, 5\)"):
        layer(mn.zeros(2, 3, 5, 4))
    with pytest.raises(ValueError, match=r"num_features=\(3, 4\); expected C, or the shape"):
        nn.BatchNorm2d((3, 4))
    with pytest.raises(ValueError, match="has no effect with affine=False"):
        nn.BatchNorm2d((3, 4, 5), affine=False, track_running_stats=False)


@pytest.mark.parametrize("opset", [7, 9, 15])
def test_batch_norm_of_every_position_goes_to_onnx_and_back(opset: int) -> None:
    onnx = pytest.importorskip("minorm.onnx")
    model = nn.Sequential(nn.BatchNorm1d((3, 4)), nn.ReLU())
    x = mn.tensor(np.random.default_rng(0).standard_normal((6, 3, 4)).astype(np.float32))
    for _ in range(2):
        model(x)
    model.eval()
    loaded = onnx.load(onnx.export(model, x, None, opset_version=opset)).eval()
    np.testing.assert_allclose(loaded(x).numpy(), model(x).numpy(), atol=1e-6)
