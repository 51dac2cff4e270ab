"""FrozenBatchNorm2d against torchvision's formula."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def filled(dtype: object = mn.float32) -> nn.FrozenBatchNorm2d:
    rng = np.random.default_rng(0)
    layer = nn.FrozenBatchNorm2d(3, dtype=dtype)
    layer.load_state_dict({
        "weight": rng.standard_normal(3).astype(dtype), "bias": rng.standard_normal(3).astype(dtype),
        "running_mean": rng.standard_normal(3).astype(dtype), "running_var": rng.random(3).astype(dtype),
    })  # fmt: skip
    return layer


def test_torchvisions_formula() -> None:
    torch = pytest.importorskip("torch")
    layer = filled(mn.float64)
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5))
    state = {name: torch.tensor(value.numpy()).reshape(1, -1, 1, 1) for name, value in layer.state_dict().items()}
    theirs = torch.tensor(x, requires_grad=True)
    scale = state["weight"] * (state["running_var"] + 1e-5).rsqrt()
    expected = theirs * scale + (state["bias"] - state["running_mean"] * scale)
    given = mn.tensor(x, requires_grad=True)
    y = layer(given)
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-12)
    (y * y).sum().backward()
    (expected * expected).sum().backward()
    np.testing.assert_allclose(given.grad.numpy(), theirs.grad.numpy(), rtol=1e-12, atol=1e-12)


def test_nothing_changes_and_nothing_trains() -> None:
    layer = filled()
    before = {k: v.numpy().copy() for k, v in layer.state_dict().items()}
    assert list(before) == ["weight", "bias", "running_mean", "running_var"]
    assert not list(layer.parameters())
    for model in (layer.train(), layer.unfreeze(), layer.requires_grad_()):
        model(mn.randn(2, 3, 4, 4) + 5)
    for name, value in layer.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])


def test_it_loads_the_state_of_a_batch_norm() -> None:
    plain = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3))
    plain(mn.randn(4, 2, 3, 3))
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.FrozenBatchNorm2d(3))
    result = model.load_state_dict(plain.state_dict())
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    x = mn.randn(2, 2, 3, 3)
    np.testing.assert_array_equal(model(x).detach().numpy(), plain.eval()(x).detach().numpy())
    with pytest.raises(ValueError, match=r"unexpected keys: 0\.num_batches_tracked"):
        model.load_state_dict({**plain.state_dict(), "0.num_batches_tracked": mn.ones(1)})
    with pytest.raises(ValueError, match=r"missing keys: 1\.running_var"):
        model.load_state_dict({k: v for k, v in plain.state_dict().items() if k != "1.running_var"})


def test_repr_and_arguments() -> None:
    assert repr(nn.FrozenBatchNorm2d(3)) == "FrozenBatchNorm2d(3, eps=1e-05)"
    with pytest.raises(ValueError, match="FrozenBatchNorm2d: num_features is 0"):
        nn.FrozenBatchNorm2d(0)
    with pytest.raises(ValueError, match=r"FrozenBatchNorm2d: x has shape \(2, 3\); expected \(N, C, H, W\)"):
        nn.FrozenBatchNorm2d(3)(mn.randn(2, 3))


def test_a_file_of_it_does_not_train_either() -> None:
    onnx = pytest.importorskip("minorm.onnx")
    model = nn.Sequential(nn.Conv2d(2, 3, 1), copy.deepcopy(filled()))
    loaded = onnx.load(onnx.export(model.eval(), mn.randn(2, 2, 3, 3), None)).train()
    loaded(mn.randn(4, 2, 3, 3) + 3)
    assert {n for n, p in loaded.named_parameters() if p.requires_grad} == {"0.weight", "0.bias"}
    np.testing.assert_array_equal(loaded.state_dict()["1.running_mean"].numpy(), model[1].running_mean.numpy())
