"""MixUp and CutMix: against the formula, pixel by pixel; labels stay probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minorm as mn
from minorm.data import CutMix, MixUp


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 6), size=st.integers(1, 9), alpha=st.floats(0.1, 4), seed=st.integers(0, 99))
def test_mixup_is_the_weighed_mean_of_neighbours(count: int, size: int, alpha: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.random((count, 3, size, size)), rng.integers(0, 4, count)
    mixed, soft = MixUp(alpha, 4)(x, y, np.random.default_rng(seed))
    share = np.random.default_rng(seed).beta(alpha, alpha)
    for i in range(count):
        assert np.allclose(mixed[i], share * x[i] + (1 - share) * x[i - 1])
        wanted = np.zeros(4)
        wanted[y[i]] += share
        wanted[y[i - 1]] += 1 - share
        assert np.allclose(soft[i], wanted)


@settings(max_examples=60, deadline=None)
@given(height=st.integers(1, 9), width=st.integers(1, 9), seed=st.integers(0, 999))
def test_cutmix_pastes_one_rectangle_and_counts_its_pixels(height: int, width: int, seed: int) -> None:
    x = np.arange(5.0)[:, None, None, None] * np.ones((1, 2, height, width))
    mixed, soft = CutMix(1.0, 5)(x, np.arange(5), np.random.default_rng(seed))
    pasted = mixed[2, 0] == 1
    assert set(np.unique(mixed[2])) <= {1.0, 2.0}
    assert np.isclose(soft[2, 2], 1 - pasted.mean())
    assert np.isclose(soft[2, 1], pasted.mean())
    rows, columns = pasted.any(1), pasted.any(0)
    assert np.array_equal(pasted, rows[:, None] & columns)


@pytest.mark.parametrize("kind", [MixUp, CutMix])
def test_tensors_train_and_what_is_wrong_is_said(kind: Any) -> None:
    images, labels = mn.randn(4, 3, 8, 8), mn.tensor([0, 1, 2, 1])
    mixed, soft = kind(num_classes=3)(images, labels)
    assert soft.dtype == mn.float32
    loss = mn.nn.CrossEntropyLoss()(mixed.flatten(1)[:, :3], soft)
    assert np.isfinite(loss.item())
    assert repr(kind(0.2, 3)) == f"{kind.__name__}(alpha=0.2, num_classes=3)"
    for wrong in ({"alpha": 0, "num_classes": 3}, {"num_classes": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            kind(**wrong)
    with pytest.raises(ValueError, match="floats"):
        kind(num_classes=3)(np.zeros((2, 3, 4, 4), np.uint8), np.zeros(2, int))
