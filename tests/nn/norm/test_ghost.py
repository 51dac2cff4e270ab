"""GhostBatchNorm as a layer: groups, state, modes."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import nn


@pytest.mark.parametrize("shape", [(7, 3), (7, 3, 4), (7, 3, 2, 2), (7, 3, 2, 1, 2)])
def test_a_call_is_a_call_of_batch_norm_for_each_group(shape: tuple[int, ...]) -> None:
    x = mn.randn(*shape) + 1
    options = {"momentum": 0.8, "unbiased_running_var": True, "bias": False}
    ghost, plain = nn.GhostBatchNorm(3, 3, **options), nn.SyncBatchNorm(3, **options)
    if len(shape) == 2:
        x = x[:6]
    y, expected = ghost(x), mn.cat([plain(part) for part in x.split(3)])
    np.testing.assert_allclose(y.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    for key, value in plain.state_dict().items():
        np.testing.assert_allclose(ghost.state_dict()[key].numpy(), value.numpy(), rtol=1e-6)
    plain.load_state_dict(ghost.state_dict())
    a, b = ghost.eval()(x), plain.eval()(x)
    assert a.detach().numpy().tobytes() == b.detach().numpy().tobytes()


def test_arguments() -> None:
    assert repr(nn.GhostBatchNorm(3, 16)) == (
        "GhostBatchNorm(3, virtual_batch_size=16, eps=1e-05, momentum=0.9, affine=True, track_running_stats=True)"
    )
    layer = nn.GhostBatchNorm(3, 2, track_running_stats=False, affine=False)
    assert (list(layer.state_dict()), layer.has_running_stats) == ([], False)
    x = mn.randn(4, 3)
    assert layer.eval()(x).numpy().tobytes() == layer.train()(x).numpy().tobytes()
    for wrong, error in ((0, ValueError), (2.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="GhostBatchNorm: virtual_batch_size"):
            nn.GhostBatchNorm(3, wrong)
    with pytest.raises(ValueError, match=r"GhostBatchNorm: x has 4 channels, the layer num_features=3"):
        nn.GhostBatchNorm(3, 2)(mn.randn(4, 4))


def test_accumulated_groups_are_one_batch() -> None:
    x = mn.randn(9, 3) * 3
    ghost, plain = nn.GhostBatchNorm(3, 2 + 1), nn.BatchNorm1d(3)
    with nn.accumulate_stats(ghost):
        ghost(x)
    plain(x)
    np.testing.assert_allclose(ghost.running_var.numpy(), plain.running_var.numpy(), rtol=1e-6)
    assert ghost.num_batches_tracked.item() == 1


def test_ranks_do_not_share_ghosts() -> None:
    layer = nn.Sequential(nn.GhostBatchNorm(3, 2))
    assert type(nn.SyncBatchNorm.convert_sync_batchnorm(layer, object())[0]) is nn.GhostBatchNorm


def test_frozen() -> None:
    layer = nn.GhostBatchNorm(3, 2).freeze()
    layer(mn.randn(4, 3))
    assert layer.num_batches_tracked.item() == 0
