"""Observers that cut outliers off, against NumPy's percentiles and a search in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm import quantization as Q


def test_a_percentile_cuts_outliers_off(rng: np.random.Generator) -> None:
    x = rng.normal(size=20_000).astype(np.float32)
    observer = Q.PercentileObserver(percentile=99.0)
    for part in np.split(x, 4):
        observer(mn.tensor(part))
    low, high = observer.ends()
    want = np.percentile(x.astype(np.float64), [0.5, 99.5])
    np.testing.assert_allclose([low, high], want, atol=0.02)


def test_the_mean_squared_error_is_the_least_of_those_tried(rng: np.random.Generator) -> None:
    x = np.concatenate([rng.normal(size=5000), [40.0]]).astype(np.float32)
    observer = Q.MSEObserver()
    observer(mn.tensor(x))
    wide = Q.MinMaxObserver()
    wide(mn.tensor(x))

    def error(scale: float, zero: int) -> float:
        q = np.clip(np.rint(x.astype(np.float64) / scale) + zero, 0, 255)
        return float(np.mean(((q - zero) * scale - x) ** 2))

    def of(o: Any) -> float:
        scale, zero = o.calculate_qparams()
        return error(scale.item(), zero.item())

    tried = []
    for share in np.linspace(0.01, 1, 100):
        low, high = float(x.min()) * share, 40 * share
        scale = (high - low) / 255
        tried.append(error(scale, int(np.rint(-low / scale))))
    assert of(observer) < of(wide)
    assert of(observer) < 1.02 * min(tried)  # the histogram has 2048 bins, not every number


def test_a_wider_batch_keeps_what_was_counted(rng: np.random.Generator) -> None:
    observer = Q.PercentileObserver()
    observer(mn.tensor(rng.uniform(0, 1, 1000).astype(np.float32)))
    observer(mn.tensor(rng.uniform(-5, 9, 1000).astype(np.float32)))
    assert observer.histogram.sum().item() == 2000


def test_errors_say_what_was_given() -> None:
    with pytest.raises(ValueError, match="percentile=20; expected above 50"):
        Q.PercentileObserver(percentile=20)
    with pytest.raises(ValueError, match="a NaN or an infinity"):
        Q.MSEObserver()(mn.tensor([np.nan]))
