"""Where each statistic begins to be a finding, and which of two in one layer is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from minorm.diagnosis import statistics_symptoms, symptoms
from minorm.diagnosis.image_batches import Images
from minorm.diagnosis.measured import Activation, Affine, Measured, Norm

CHANNELS = 8


def layer(count: int = 512, mean: float = 0.0, sd: float = 1.0, **options: Any) -> Norm:
    """A BatchNorm that has seen what its running statistics say."""
    draw = np.random.default_rng(0)
    running = np.full(CHANNELS, mean + 1e-3 * sd), np.full(CHANNELS, sd**2)
    made = Norm("bn", "batch", 1e-5, np.ones(CHANNELS, np.float32), running, momentum=0.9, batches=100, positions=64)
    for name, value in options.items():
        setattr(made, name, value)
    made.means = [mean + sd * draw.standard_normal((count, CHANNELS))]
    made.variances = [np.zeros((count, CHANNELS))]
    made.outputs = {"E": [np.zeros(4)], "R": [np.zeros(4)]}
    return made


def found(*norms: Norm, batch_size: int | None = 64, **more: Any) -> list[tuple[str, str]]:
    count = len(norms[0].moments()[0]) if norms and norms[0].means else 512
    images = Images(np.zeros((count, 1), np.float32), None, 64)
    parts = {"activations": [], "affine": [], "logits": {}, "order": []} | more
    measured = Measured(images, batch_size, list(norms), **parts)
    return [(symptom.name, symptom.level) for symptom in symptoms.of(measured)]


def test_a_healthy_layer() -> None:
    assert found(layer()) == []


@pytest.mark.parametrize(("shift", "factor", "sick"), [(0.3, 1, False), (1, 1, True), (0, 1.3, False), (0, 16, True)])
def test_running_statistics_that_are_off(shift: float, factor: float, sick: bool) -> None:
    norm = layer(running=(np.full(CHANNELS, shift), np.full(CHANNELS, float(factor))))
    assert found(norm) == ([("stale_statistics", "warning")] if sick else [])
    norm.frozen = True
    assert found(norm) == ([("stale_statistics", "note")] if sick else [])


@pytest.mark.parametrize(("skipped", "level"), [(1, "note"), (11, "note"), (12, "warning"), (400, "warning")])
def test_batches_that_were_left_out(skipped: int, level: str) -> None:
    assert found(layer(skipped=skipped)) == [("skipped_batches", level)]


@pytest.mark.parametrize(
    ("eps", "dtype", "level"),
    [(1e-5, "float16", None), (1e-7, "float16", "warning"), (1e-8, "float32", "note"), (1e-12, "bfloat16", "note"),
     (0.0, "float16", "warning"), (0.0, "float32", None), (6e-8, "float16", None)],
)  # fmt: skip
def test_eps_in_float16(eps: float, dtype: str, level: str | None) -> None:
    """6e-8 is the smallest number of float16 above 0, and 1.2e-7 the next."""
    assert found(layer(eps=eps, dtype=dtype)) == ([("eps_underflows", level)] if level else [])


@pytest.mark.parametrize(
    ("batch_size", "factor", "level"),
    [(2, 1.0, "warning"), (2, 0.5, None), (4, 1.0, "note"), (4, 0.75, None), (11, 1.0, "note"), (12, 1.0, None)],
)
def test_the_running_variance_of_n_and_of_n_minus_one(batch_size: int, factor: float, level: str | None) -> None:
    """The variance of B independent values is (B - 1) / B of the population's in the mean, divided by N."""
    draw = np.random.default_rng(1).standard_normal((4096, 64))
    norm = layer(positions=1, weight=None, running=(np.zeros(64), np.full(64, factor)))
    norm.means, norm.variances = [draw], [np.zeros((4096, 64))]
    names = dict(found(norm, batch_size=batch_size))
    assert names.get("variance_convention") == level


@pytest.mark.parametrize(("momentum", "batches", "half"), [(0.9, 10, 7), (0.99, 10, 69), (0.2, 10, 1), (None, 40, 40)])
def test_when_half_of_the_statistics_are_new(momentum: float | None, batches: int, half: int) -> None:
    drifting = statistics_symptoms.drifts(layer(momentum=momentum, batches=batches, drifts=True), "minorm")
    assert drifting is not None
    assert drifting.numbers["half_after"] == half
    assert statistics_symptoms.drifts(layer(momentum=1.0, drifts=True), "minorm") is None


def test_one_channel_that_is_far_off() -> None:
    mean = np.zeros(CHANNELS)
    mean[3] = 3.0
    norm = layer(count=4096, running=(mean, np.ones(CHANNELS)), weight=None)
    norm.running = (np.concatenate([mean, np.zeros(56)]), np.ones(64))  # among 64
    norm.means = [np.random.default_rng(0).standard_normal((4096, 64))]
    norm.variances = [np.zeros((4096, 64))]
    assert found(norm) == [("stale_statistics", "warning")]


def test_few_images_raise_no_alarm() -> None:
    shifted = layer(count=8, running=(np.full(CHANNELS, 0.8), np.ones(CHANNELS)))
    assert found(shifted) == []
    shifted = layer(count=512, running=(np.full(CHANNELS, 0.8), np.ones(CHANNELS)))
    assert found(shifted) == [("stale_statistics", "warning")]


def test_the_noise_that_a_small_momentum_explains_is_no_fault() -> None:
    noisy = layer(running=(np.full(CHANNELS, 0.8), np.ones(CHANNELS)), momentum=0.5)
    assert (
        statistics_symptoms.offset_limit(noisy, Measured(Images(np.zeros((512, 1)), None, 4), 4, [], [], [], {}, []))
        > 1.5
    )


def test_in_a_frozen_layer_no_batch_makes_noise() -> None:
    frozen = layer(running=(np.full(CHANNELS, 0.8), np.ones(CHANNELS)), frozen=True, momentum=None, batches=None)
    assert found(frozen, batch_size=2) == [("stale_statistics", "note")]


def test_statistics_that_have_hardly_begun() -> None:
    norm = layer(running=(np.full(CHANNELS, 0.3), np.ones(CHANNELS)), batches=10)
    assert found(norm) == [("stale_statistics", "warning")]
    assert found(layer(running=(np.full(CHANNELS, 0.3), np.ones(CHANNELS)), batches=100)) == []
    assert found(layer(batches=10)) == []


def test_in_a_layer_untouched_comes_before_convention_and_that_before_stale() -> None:
    fresh = np.zeros(CHANNELS), np.ones(CHANNELS)
    assert found(layer(mean=9, running=fresh, momentum=0.1)) == [("untouched_statistics", "warning")]
    off = np.full(CHANNELS, 9.0), np.ones(CHANNELS)
    assert found(layer(running=off, momentum=0.1)) == [("momentum_convention", "warning")]
    assert found(layer(running=off, momentum=None)) == [("stale_statistics", "warning")]


@pytest.mark.parametrize(
    ("size", "expected"),
    [(1, [("batch_of_one", "warning")]), (2, [("small_batch", "warning")]), (4, [("small_batch", "warning")]),
     (16, [("small_batch", "note")]), (64, []), (None, [])],
)  # fmt: skip
def test_the_size_of_the_batch(size: int | None, expected: Any) -> None:
    """Behind a Linear a sample is one draw: e = sqrt(1.5 / B)."""
    assert found(layer(), batch_size=size) == expected
    assert found(layer(frozen=True), batch_size=size) == []


def test_a_virtual_batch_counts_and_all_ranks_do() -> None:
    assert found(layer(virtual=2), batch_size=64) == [("small_batch", "warning")]
    assert found(layer(ranks=32), batch_size=2) == []


@pytest.mark.parametrize(("mean", "level"), [(20, None), (50, "note"), (200, "warning"), (3000, "error")])
def test_a_mean_that_is_large_for_its_deviation(mean: float, level: str | None) -> None:
    assert found(layer(mean=mean)) == ([] if level is None else [("large_mean", level)])


@pytest.mark.parametrize(("sd", "level"), [(1, None), (0.02, None), (6e-3, "note"), (1e-3, "warning")])
def test_a_variance_below_eps(sd: float, level: str | None) -> None:
    assert found(layer(sd=sd)) == ([] if level is None else [("eps_swallows_variance", level)])


def test_channels_without_any_variance_say_nothing_of_eps_and_mean() -> None:
    norm = layer()
    norm.means = [np.full((512, CHANNELS), 5.0)]
    norm.running = np.full(CHANNELS, 5.0), np.zeros(CHANNELS)
    assert found(norm) == []


@pytest.mark.parametrize(("gone", "level"), [(0, None), (1, "note"), (4, "warning"), (7, "warning"), (8, "warning")])
def test_scales_that_vanished(gone: int, level: str | None) -> None:
    weight = np.linspace(0.5, -1.5, CHANNELS)
    weight[:gone] = 0 if gone == 8 else weight[:gone] * 1e-4
    assert found(layer(weight=weight)) == ([] if level is None else [("vanished_scale", level)])


@pytest.mark.parametrize(("dead", "level"), [(0, None), (1, "note"), (7, "note"), (10, "warning")])
def test_dead_channels(dead: int, level: str | None) -> None:
    peaks = np.ones(10)
    peaks[:dead] = 0
    activation = Activation("a", "relu", peaks, np.zeros(10), 100)
    assert found(activations=[activation]) == ([] if level is None else [("dead_channel", level)])
    activation.what = "leaky_relu"
    assert found(activations=[activation]) == []


@pytest.mark.parametrize(("flat", "level"), [(0, None), (1, "note"), (9, "note"), (10, "warning")])
def test_saturated_channels(flat: int, level: str | None) -> None:
    counts = np.full(10, 50.0)
    counts[:flat] = 95
    activation = Activation("a", "tanh", np.ones(10), counts, 100)
    assert found(activations=[activation]) == ([] if level is None else [("saturated_channel", level)])


def test_norms_that_undo_one_another() -> None:
    assert found(layer(undone=("before", 0.02))) == [("undone_norm", "warning")]
    assert found(layer(undone=("before", 0.21))) == []


def test_a_folded_norm() -> None:
    draw = np.random.default_rng(0)
    mean, sd = draw.standard_normal(16), draw.uniform(0.5, 2, 16)
    means = mean * sd + sd * draw.standard_normal((400, 16))
    folded = Affine("conv", -mean * sd + 0.1 * draw.standard_normal(16), [means], [np.zeros((400, 16))])
    assert found(affine=[folded]) == [("folded_norm", "note")]
    plain = Affine("conv", 0.1 * draw.standard_normal(16), [means], [np.zeros((400, 16))])
    assert found(affine=[plain]) == []
