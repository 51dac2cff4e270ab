"""Loss layers beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import minorm as mn
from minorm import nn


def both(name, weights=None, **options):
    torch = pytest.importorskip("torch")
    ours, theirs = {}, {}
    for key, array in (weights or {}).items():
        ours[key], theirs[key] = mn.tensor(array), torch.tensor(array)
    return getattr(nn, name)(**ours, **options), getattr(torch.nn, name)(**theirs, **options)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_twins(twins, rng, reduction):
    x, y, w = rng.standard_normal((5, 3)), rng.uniform(0, 1, (5, 3)), {"weight": rng.uniform(0.5, 1, 3)}
    labels = np.array([0, 2, 1, 1, 0])
    options = {"reduction": reduction}
    twins(*both("CrossEntropyLoss", **options, label_smoothing=0.1), x, labels)
    twins(*both("CrossEntropyLoss", w, **options, ignore_index=1), x, labels)
    twins(*both("NLLLoss", w, **options), x, labels)
    twins(*both("MSELoss", **options), x, y)
    twins(*both("L1Loss", **options), x, y)
    twins(*both("SmoothL1Loss", **options, beta=0.3), x, y)
    twins(*both("BCEWithLogitsLoss", **options), x, y)
    twins(*both("BCEWithLogitsLoss", w | {"pos_weight": rng.uniform(0.5, 1, 3)}, **options), x, y)


def test_options_are_checked_when_the_layer_is_built():
    with pytest.raises(ValueError, match="MSELoss: reduction is 'avg'; expected 'mean', 'sum' or 'none'"):
        nn.MSELoss(reduction="avg")


def test_weights_are_buffers():
    loss = nn.CrossEntropyLoss(mn.ones(3))
    assert list(loss.state_dict()) == ["weight"]
    assert loss.double().weight.dtype == mn.float64
    assert list(nn.CrossEntropyLoss().state_dict()) == []
