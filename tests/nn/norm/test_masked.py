"""Layers called with a mask: each is its function, and training on a padded batch is training without the padding."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
import minorm.functional as F
from minorm import nn, optim

LAYERS = {
    "BatchNorm1d": ((4, 6, 5), lambda: nn.BatchNorm1d(6)),
    "BatchNorm1d of vectors": ((4, 6), lambda: nn.BatchNorm1d(6)),
    "BatchNorm2d": ((4, 6, 5, 3), lambda: nn.BatchNorm2d(6)),
    "BatchNorm3d": ((4, 6, 5, 3, 2), lambda: nn.BatchNorm3d(6)),
    "SyncBatchNorm": ((4, 6, 5), lambda: nn.SyncBatchNorm(6)),
    "InstanceNorm1d": ((4, 6, 5), lambda: nn.InstanceNorm1d(6, affine=True, track_running_stats=True)),
    "InstanceNorm2d": ((4, 6, 5, 3), lambda: nn.InstanceNorm2d(6)),
    "InstanceNorm3d": ((4, 6, 5, 3, 2), lambda: nn.InstanceNorm3d(6)),
    "GroupNorm": ((4, 6, 5), lambda: nn.GroupNorm(3, 6)),
    "LayerNorm": ((4, 6, 5), lambda: nn.LayerNorm(5)),
    "RMSNorm": ((4, 6, 5), lambda: nn.RMSNorm(5)),
    "MeanVarianceNorm": ((4, 6, 5), lambda: nn.MeanVarianceNorm((0, 2))),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_takes_a_mask(name, rng):
    shape, make = LAYERS[name]
    mask = rng.random(shape) < 0.6
    x = np.where(mask, rng.standard_normal(shape), np.nan).astype(np.float32)
    layer = make()
    for _ in ("training", "evaluation"):
        y = layer(mn.Tensor(x), mn.Tensor(mask)).numpy()
        assert np.isfinite(y).all()
        assert not y[~mask].any()
        assert y[mask].any()
        layer.eval()
    full = make()
    whole, ones = mn.tensor(rng.standard_normal(shape), mn.float32), mn.ones(shape, dtype=mn.bool)
    np.testing.assert_allclose(full(whole, ones).numpy(), make()(whole).numpy(), atol=2e-6)


def test_one_sample_alone(rng):
    x, mask = rng.standard_normal((6, 5)).astype(np.float32), np.array([True, True, False, True, False])
    layer = nn.InstanceNorm1d(6)
    y = layer(mn.Tensor(x), mn.Tensor(mask)).numpy()
    np.testing.assert_allclose(y[:, mask], layer(mn.Tensor(np.ascontiguousarray(x[:, mask]))).numpy(), atol=2e-6)
    assert not y[:, ~mask].any()


def test_options_reach_the_function(rng):
    x = (rng.standard_normal((4, 6, 5)) + 1e3).astype(np.float32)
    mask = mn.Tensor(rng.random((4, 1, 5)) < 0.5)
    layer = nn.BatchNorm1d(6, momentum=None, unbiased_running_var=True, compute_dtype=mn.float64)
    mean, var, batches = mn.zeros(6), mn.ones(6), mn.tensor(0)
    y = F.batch_norm(
        mn.Tensor(x), mean, var, mn.ones(6), mn.zeros(6), True, None, num_batches_tracked=batches,
        unbiased_running_var=True, compute_dtype=mn.float64, mask=mask,
    )  # fmt: skip
    np.testing.assert_array_equal(layer(mn.Tensor(x), mask).numpy(), y.numpy())
    np.testing.assert_array_equal(layer.running_mean.numpy(), mean.numpy())
    np.testing.assert_array_equal(layer.running_var.numpy(), var.numpy())
    assert layer.num_batches_tracked.item() == batches.item() == 1


def test_frozen_statistics_and_no_update(rng):
    layer, mask = nn.BatchNorm1d(3), mn.Tensor(rng.random((4, 1, 5)) < 0.5)
    x = mn.tensor(rng.standard_normal((4, 3, 5)), mn.float32)
    with mn.no_stats_update():
        layer(x, mask)
    assert layer.num_batches_tracked.item() == 0
    assert not layer.running_mean.numpy().any()
    layer.freeze()
    layer(x, mask)
    assert layer.num_batches_tracked.item() == 0


def test_padding_changes_nothing_in_training(rng):
    """Texts of several lengths, padded by 4 and by 40 places: the same losses, parameters and running statistics."""
    lengths = np.array([3, 9, 5, 1, 7, 9])
    data = rng.standard_normal((6, 8, 9)).astype(np.float32)
    held = []
    for more in (4, 40):
        mn.manual_seed(0)
        norm, out = nn.BatchNorm1d(8), nn.Linear(8, 1)
        x = np.full((6, 8, 9 + more), np.nan, np.float32)
        x[:, :, :9] = data
        mask = mn.Tensor(np.arange(9 + more) < lengths[:, None, None])
        optimizer = optim.SGD([*norm.parameters(), *out.parameters()], 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            pooled = norm(mn.Tensor(x), mask).sum(2) / mn.tensor(lengths[:, None].astype(np.float32))
            loss = (out(pooled) ** 2).mean()
            loss.backward()
            optimizer.step()
        held.append([loss.numpy(), *(t.numpy() for t in (*norm.parameters(), *norm.buffers(), *out.parameters()))])
    for a, b in zip(*held, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_several_ranks_are_refused(rng):
    class Group:
        size = 3

    layer = nn.SyncBatchNorm(3, process_group=Group())
    x, mask = mn.tensor(rng.standard_normal((4, 3, 5)), mn.float32), mn.ones((4, 1, 5), dtype=mn.bool)
    with pytest.raises(NotImplementedError, match=r"a mask with a process_group of 3 ranks is not supported"):
        layer(x, mask)
    assert layer.num_batches_tracked.item() == 0
    layer.eval()
    assert layer(x, mask).shape == x.shape


@pytest.mark.parametrize("compute_dtype", [None, mn.float64])
def test_masked_micro_batches_in_another_type(compute_dtype, rng):
    """`accumulate_stats` merges each channel by its own count, at an offset of 1e4."""
    x = (rng.standard_normal((6, 3, 5)) + 1e4).astype(np.float32)
    mask = rng.random((6, 3, 5)) < 0.5
    mask[:2, 1] = False
    layer = nn.BatchNorm1d(3, momentum=None, compute_dtype=compute_dtype)
    layer = layer.to(mn.float64) if compute_dtype is None else layer
    with nn.accumulate_stats(layer):
        for part in range(0, 6, 2):
            data = mn.Tensor(np.where(mask, x, np.nan)[part : part + 2].astype(np.float32))
            layer(data if compute_dtype is not None else data.to(mn.float64), mn.Tensor(mask[part : part + 2]))
    assert layer.num_batches_tracked.item() == 1
    for c in range(3):
        values = x[:, c][mask[:, c]].astype(np.float64)
        np.testing.assert_allclose(layer.running_mean.numpy()[c], values.mean(), rtol=1e-7)
        np.testing.assert_allclose(layer.running_var.numpy()[c], values.var(), rtol=1e-6)
