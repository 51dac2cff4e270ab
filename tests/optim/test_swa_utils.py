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
