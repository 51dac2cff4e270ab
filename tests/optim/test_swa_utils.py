"""AveragedModel, SWALR and update_bn beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import nn, optim
from minorm.optim import swa_utils

torch = pytest.importorskip("torch")


def pair(rng: np.random.Generator) -> tuple[Any, Any]:
    mine, other = (m.Sequential(m.Linear(3, 4), m.BatchNorm1d(4), m.Linear(4, 2)) for m in (nn, torch.nn))
    other.double()
    mine.double().load_state_dict(other.state_dict())
    return mine, other


@pytest.mark.parametrize("kind", ["mean", "ema", "buffers"])
def test_averages(kind: str, rng: np.random.Generator) -> None:
    mine, other = pair(rng)
    averaged = []
    for model, utils in ((mine, swa_utils), (other, torch.optim.swa_utils)):
        settings = {
            "mean": {},
            "ema": {"multi_avg_fn": utils.get_ema_multi_avg_fn(0.9)},
            "buffers": {"use_buffers": True},
        }
        averaged.append(utils.AveragedModel(model, **settings[kind]))
    for _ in range(4):
        for p, q in zip(mine.parameters(), other.parameters(), strict=True):
            change = rng.standard_normal(p.shape)
            p.detach().add_(mn.Tensor(np.asarray(change)))
            q.data += torch.tensor(change)
        x = rng.standard_normal((5, 3))
        mine(mn.tensor(x)), other(torch.tensor(x))
        averaged[0].update_parameters(mine)
        averaged[1].update_parameters(other)
    for p, q in zip(averaged[0].parameters(), averaged[1].parameters(), strict=True):
        np.testing.assert_allclose(p.array, q.detach().numpy(), rtol=1e-12)
    assert averaged[0].n_averaged.item() == 4
    assert list(averaged[0].state_dict()) == sorted(averaged[1].state_dict(), key=list(averaged[0].state_dict()).index)


def test_update_bn(rng: np.random.Generator) -> None:
    mine, other = pair(rng)
    mine[1].unbiased_running_var = True
    batches = [rng.standard_normal((6, 3)) for _ in range(3)]
    swa_utils.update_bn([(mn.tensor(x), 0) for x in batches], mine.eval())
    torch.optim.swa_utils.update_bn([torch.tensor(x) for x in batches], other)
    for name in ("running_mean", "running_var"):
        np.testing.assert_allclose(getattr(mine[1], name).array, getattr(other[1], name).numpy(), rtol=1e-12)
    assert (mine[1].momentum, mine[1].training) == (0.9, False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_rate(strategy: str) -> None:
    ours = optim.SGD([nn.Parameter(mn.ones(1))], 0.4)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.4)
    mine = swa_utils.SWALR(ours, 0.05, 6, strategy)
    other = torch.optim.swa_utils.SWALR(theirs, 0.05, 6, strategy)
    for _ in range(10):
        mine.step()
        other.step()
        np.testing.assert_allclose(mine.get_last_lr(), other.get_last_lr(), rtol=1e-9)


@pytest.mark.parametrize("freeze", ["freeze()", "freeze_norm", "layer above"])
def test_update_bn_keeps_frozen_statistics(freeze: str, rng: np.random.Generator) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm1d(2)), nn.InstanceNorm1d(3))
    frozen = model[1][0]
    frozen.running_mean.fill_(9.0)
    frozen.running_var.fill_(4.0)
    {"freeze()": frozen.freeze, "freeze_norm": lambda: nn.utils.freeze_norm(model[1]), "layer above": model[1].freeze}[
        freeze
    ]()
    x = rng.standard_normal((8, 2)).astype(np.float32)
    swa_utils.update_bn([mn.tensor(x), mn.tensor(x)], model[:2])
    assert (frozen.running_mean.tolist(), frozen.running_var.tolist()) == ([9.0, 9.0], [4.0, 4.0])
    assert frozen.num_batches_tracked.item() == 0
    np.testing.assert_allclose(model[0].running_mean.numpy(), x.mean(0), rtol=1e-5)
    assert (frozen.momentum, frozen.frozen) == (0.9, True)


@pytest.mark.parametrize("use_buffers", [True, False])
def test_an_average_keeps_frozen_statistics(use_buffers: bool) -> None:
    """decay * s + (1 - decay) * s is not s: rounding would move it at every step."""
    model = nn.Sequential(nn.BatchNorm1d(1), nn.BatchNorm1d(1))
    for layer in model:
        layer.running_mean.fill_(0.1)
    model[1].freeze()
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=use_buffers)
    for step in range(50):
        model[0].running_mean.fill_(float(step))
        averaged.update_parameters(model)
    assert averaged.module[1].running_mean.item() == model[1].running_mean.item()
    expected = 0.0
    for step in range(50):
        expected = expected * 0.9 + step * 0.1 if step else 0.0
    assert averaged.module[0].running_mean.item() == pytest.approx(expected if use_buffers else 49.0, rel=1e-5)
