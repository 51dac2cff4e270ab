"""A run uses the loss that its settings name, with their smoothing and weights, in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.data import ArrayDataset
from minorm.training.settings import Settings
from minorm.training.steps.criterion import make_loss

TRAIN = ArrayDataset(np.zeros((4, 1, 8, 8), np.float32), np.array([0, 0, 0, 1]))
LOGITS = np.random.default_rng(0).standard_normal((4, 2))


def expected(gamma: float, smoothing: float, weight: Any) -> float:
    """Return the loss by its formula, in float64."""
    log_p = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
    labels = TRAIN.arrays[1]
    q = (np.eye(2)[labels] * (1 - smoothing) + smoothing / 2) * weight
    return float(-(q * (1 - np.exp(log_p)) ** gamma * log_p).sum() / np.asarray(weight)[labels].sum())


@pytest.mark.parametrize(("loss", "gamma"), [("cross_entropy", 0), ("focal", 2)])
@pytest.mark.parametrize("balanced", [False, True])
def test_the_loss_is_that_of_the_settings(loss: str, gamma: float, balanced: bool) -> None:
    weight = np.array([4 / 6, 4 / 2]) if balanced else np.ones(2)
    settings = Settings(loss=loss, label_smoothing=0.2, class_weights="balanced" if balanced else "none")
    made = make_loss(settings, TRAIN, 2)
    labels = mn.tensor(TRAIN.arrays[1])
    assert made(mn.tensor(LOGITS, dtype=mn.float32), labels).item() == pytest.approx(expected(gamma, 0.2, weight), 1e-5)
    narrow = made(mn.tensor(LOGITS, dtype=mn.bfloat16), labels)
    assert narrow.dtype == mn.float32
    assert narrow.item() == pytest.approx(expected(gamma, 0.2, weight), 2e-2)
