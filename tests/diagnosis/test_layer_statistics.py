"""The formulas of one layer, against the normalizations themselves and against batches that are really drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import minorm as mn
import minorm.functional as F
from minorm.diagnosis import layer_statistics

ELEMENTS = st.floats(-100, 100, width=32)


@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=5, max_side=4), elements=ELEMENTS))
def test_moments_of_samples_merge_to_those_of_all(x: Any) -> None:
    mean, var = layer_statistics.merged(*layer_statistics.by_sample(x)[:2])
    channels = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
    np.testing.assert_allclose(mean, channels.mean(1), atol=1e-9)
    np.testing.assert_allclose(var, channels.var(1), atol=1e-7)


@given(
    arrays(np.float64, (3, 2, 4), elements=ELEMENTS),
    arrays(np.bool_, (3, 2, 4)),
    st.sampled_from([np.nan, np.inf, 1e9]),
)
def test_what_a_mask_leaves_out_does_not_count(x: Any, mask: Any, wrong: float) -> None:
    x = np.where(mask, x, wrong)
    mean, var = layer_statistics.merged(*layer_statistics.by_sample(x, mask))
    for channel in range(2):
        counted = x[:, channel][mask[:, channel]]
        if counted.size:
            np.testing.assert_allclose(mean[channel], counted.mean(), atol=1e-9)
            np.testing.assert_allclose(var[channel], counted.var(), atol=1e-7)
    sets = layer_statistics.by_set(x, "layer", {"normalized_shape": 4}, mask)
    rows = [row[m] for row, m in zip(x.reshape(-1, 4), mask.reshape(-1, 4), strict=True) if m.any()]
    np.testing.assert_allclose(sets[0], [row.mean() for row in rows], atol=1e-9)
    np.testing.assert_allclose(sets[1], [row.var() for row in rows], atol=1e-7)


SETS: list[tuple[str, dict[str, Any], Any]] = [
    ("instance", {}, lambda x: F.instance_norm(x, eps=1e-3)),
    ("group", {"num_groups": 2}, lambda x: F.group_norm(x, 2, eps=1e-3)),
    ("layer", {"normalized_shape": (4, 3, 3)}, lambda x: F.layer_norm(x, (4, 3, 3), eps=1e-3)),
    ("layer", {"normalized_shape": 3}, lambda x: F.layer_norm(x, 3, eps=1e-3)),
    ("general", {"axes": (0, 2)}, lambda x: F.normalization(x, axes=(0, 2), eps=1e-3)),
    ("general", {"axes": 0b1100, "num_groups": 2}, lambda x: F.normalization(x, axes=0b1100, num_groups=2, eps=1e-3)),
]


@pytest.mark.parametrize(("what", "options", "normalize"), SETS)
def test_the_sets_are_those_that_a_normalization_takes(what: str, options: Any, normalize: Any) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 3)) * 3 + 1
    mean, var = layer_statistics.by_set(x, what, options)
    # the mean square of a normalized set is var / (var + eps): all of y together tells all variances
    assert mean.size * (x.size // mean.size) == x.size
    y = normalize(mn.tensor(x, dtype=mn.float64)).array
    np.testing.assert_allclose((y**2).sum(), (x.size // mean.size) * (var / (var + 1e-3)).sum(), rtol=1e-9)
    np.testing.assert_allclose(mean.mean(), x.mean(), rtol=1e-9)


def test_the_sets_of_an_rms_norm_have_no_mean() -> None:
    x = np.random.default_rng(0).standard_normal((5, 8)) + 2
    mean, var = layer_statistics.by_set(x, "rms", {"normalized_shape": 8})
    assert not mean.any()
    np.testing.assert_allclose(var, (x**2).mean(1))


def population(count: int, channels: int, positions: int, sample_sd: float) -> Any:
    """Draw samples whose pixels are alike: each channel of each sample has a different level and contrast."""
    draw = np.random.default_rng(0)
    level = sample_sd * draw.standard_normal((count, channels, 1))
    contrast = draw.uniform(0.5, 1.5, (count, channels, 1))
    return level + contrast * draw.standard_normal((count, channels, positions))


@pytest.mark.parametrize("batch", [4, 16])
@pytest.mark.parametrize(("positions", "sample_sd"), [(1, 1.0), (36, 0.3), (36, 2.0)])
def test_the_error_of_a_batch_is_that_of_batches_that_are_drawn(batch: int, positions: int, sample_sd: float) -> None:
    x = population(4000, 6, positions, sample_sd)
    means, variances, _ = layer_statistics.by_sample(x)
    mu, var = layer_statistics.merged(means, variances)
    draw = np.random.default_rng(1)
    means_off, variances_off, off = [], [], []
    for _ in range(600):
        chosen = x[draw.integers(len(x), size=batch)]
        m, v = layer_statistics.merged(*layer_statistics.by_sample(chosen)[:2])
        means_off.append((m - mu) / np.sqrt(var))
        variances_off.append(v / var - 1)
        # the output's error, linear in both: (m - mu)/s + y (v/s^2 - 1)/2, over y of variance 1
        off.append(means_off[-1] ** 2 + variances_off[-1] ** 2 / 4)
    error = layer_statistics.output_error(layer_statistics.spread(means, variances), batch)
    in_mean, in_variance = layer_statistics.mean_and_variance_error(means, variances, batch)
    assert error == pytest.approx(math.sqrt(np.mean(off)), rel=0.1)
    assert in_mean == pytest.approx(layer_statistics.rms(means_off), rel=0.1)
    assert in_variance == pytest.approx(layer_statistics.rms(variances_off), rel=0.1)


def test_pixels_are_not_draws() -> None:
    """Of pixels that are alike the usual 1.5 / (B H W) promises far too much."""
    means, variances, _ = layer_statistics.by_sample(population(4000, 6, 36, 2.0))
    assert layer_statistics.output_error(layer_statistics.spread(means, variances), 8) > 3 * math.sqrt(1.5 / (8 * 36))


POSITIVE = st.floats(1e-3, 1e3)
MEAN = st.floats(-1e3, 1e3)


@given(MEAN, POSITIVE, MEAN, POSITIVE, st.floats(0.1, 10))
def test_an_offset_is_0_for_equal_statistics_and_has_no_unit(
    mean: float, var: float, running_mean: float, running_var: float, scale: float
) -> None:
    found = layer_statistics.offsets(mean, var, running_mean, running_var, 0.0)
    assert layer_statistics.offsets(mean, var, mean, var, 1e-5) == 0
    scaled = layer_statistics.offsets(scale * mean, scale**2 * var, scale * running_mean, scale**2 * running_var, 0.0)
    swapped = layer_statistics.offsets(running_mean, running_var, mean, var, 0.0)
    assert scaled == pytest.approx(found, rel=1e-6, abs=1e-7)
    assert swapped == pytest.approx(found, rel=1e-9, abs=1e-12)


def test_the_offset_of_a_wrong_mean_and_of_a_wrong_variance() -> None:
    assert layer_statistics.offsets(1.0, 1.0, 0.0, 1.0, 0.0) == pytest.approx(1)  # a deviation
    assert layer_statistics.offsets(0.0, 1.0, 0.0, 16.0, 0.0) == pytest.approx(math.log(4))


@pytest.mark.parametrize(("dtype", "step"), layer_statistics.STEP.items())
def test_rounding_is_no_variance(dtype: str, step: float) -> None:
    assert layer_statistics.is_constant(np.array(3.0), np.array((step * 3) ** 2), step)
    assert not layer_statistics.is_constant(np.array(3.0), np.array((10 * step * 3) ** 2), step), dtype
    assert layer_statistics.is_constant(np.array(0.0), np.array(0.0), step)


def test_constant_channels_make_no_error() -> None:
    x = population(100, 3, 4, 1.0)
    x[:, 1] = 7.0
    tau, kappa, c = layer_statistics.draws(*layer_statistics.by_sample(x)[:2])
    assert tau[1] == kappa[1] == c[1] == 0
    assert layer_statistics.spread(*layer_statistics.by_sample(np.full((8, 3, 4), 7.0))[:2]) == 0
    assert layer_statistics.rms([]) == 0
