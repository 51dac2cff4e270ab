"""BatchNormWatch: the statistics it reads back from the running values are those of the batches."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import nn
from minorm.training import BatchNormWatch


@pytest.mark.parametrize("momentum", [0.9, 0.5])
def test_batch_statistics_come_back_from_the_running_ones(momentum: float, rng: np.random.Generator) -> None:
    model = nn.Sequential(nn.BatchNorm2d(3, momentum=momentum), nn.ReLU(), nn.Flatten(), nn.BatchNorm1d(48))
    watch = BatchNormWatch(model)
    assert watch.layers == ["0", "3"]
    batches = [(2 * rng.standard_normal((8, 3, 4, 4)) + 5).astype(np.float32) for _ in range(6)]
    for batch in batches:
        model(mn.tensor(batch))
        watch.step()
    means, variances = watch.batch("0")
    assert means.shape == variances.shape == (6, 3)
    np.testing.assert_allclose(means, [b.mean(axis=(0, 2, 3)) for b in batches], rtol=1e-5)
    np.testing.assert_allclose(variances, [b.var(axis=(0, 2, 3)) for b in batches], rtol=1e-4)
    running_mean, running_var = watch.running("0")
    np.testing.assert_array_equal(running_mean[-1], model[0].running_mean.numpy())
    np.testing.assert_array_equal(running_var[-1], model[0].running_var.numpy())
    assert watch.batch("3")[0].shape == (6, 48)


def test_layers_without_running_statistics_are_left_out() -> None:
    model = nn.Sequential(
        nn.BatchNorm2d(3, track_running_stats=False), nn.GroupNorm(1, 3), nn.BatchNorm2d(3, momentum=None)
    )
    assert BatchNormWatch(model).layers == []
