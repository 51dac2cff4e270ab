"""Find symptoms of wrong running statistics, and of batches that are unfit for computing statistics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.diagnosis import layer_statistics
from minorm.diagnosis.measured import Measured, Norm
from minorm.diagnosis.symptom import NOTE, WARNING, Symptom

USUAL_BATCH = 32  # if the batch size of training is not known


def untouched(norm: Norm, measured: Measured) -> Symptom | None:
    """Find running statistics that are still 0 and 1. If the images are noise, only a trained layer gets a warning."""
    if norm.running is None:
        return None
    mean, var = norm.running
    if mean.any() or (var != 1).any():
        return None
    numbers: dict[str, Any] = {"channels": mean.size}
    if not measured.random:
        numbers["offset"] = layer_statistics.rms(norm.offset())
        return Symptom("untouched_statistics", norm.name, WARNING, numbers, harms=True)
    trained = norm.weight is not None and (norm.weight != norm.weight.flat[0]).any()
    return Symptom("untouched_statistics", norm.name, WARNING if trained else NOTE, numbers)


def inverted_momentum(norm: Norm, framework: str) -> Symptom | None:
    """Find a momentum below 0.5, with which each step keeps less than half of the old statistics."""
    kept = norm.momentum
    if norm.running is None or kept is None or kept >= 0.5 or norm.frozen:
        return None
    own, usual = _as_written(kept, framework), _as_written(1 - kept, framework)
    return Symptom(
        "momentum_convention", norm.name, WARNING, {"momentum": own, "kept": float(kept), "usual": usual}, harms=True
    )


def _as_written(kept: float, framework: str) -> float:
    """Return the momentum that keeps the share `kept` of the old statistics, in the convention of `framework`."""
    return round(float(1 - kept if framework == "pytorch" else kept), 6)


def drifts(norm: Norm, framework: str) -> Symptom | None:
    """Find a layer whose parameters are frozen while its running statistics still change.

    `half_after` is the number of batches after which half of the running statistics come from new batches. If the
    statistics are an average over all batches, this number is the number of batches seen so far.
    """
    if not norm.drifts or norm.momentum == 1:
        return None
    kept = norm.momentum
    half = (norm.batches or 1) if kept is None else 1 if kept <= 0.5 else math.ceil(math.log(0.5) / math.log(kept))
    numbers = {"momentum": None if kept is None else _as_written(kept, framework), "half_after": half}
    return Symptom("frozen_norm_drifts", norm.name, WARNING, numbers)


def in_training(norm: Norm) -> Symptom | None:
    """Find a layer that was saved in training mode, and so normalizes with the statistics of each batch."""
    if not norm.in_training or norm.running is None:
        return None
    return Symptom("saved_in_training", norm.name, WARNING, {"channels": norm.running[0].size}, harms=True)


def variance(norm: Norm, batch_size: int | None) -> Symptom | None:
    """Find a running variance that divides by n - 1, while training divides by n.

    n is the number of values, and the check is made only if n is at most 11.

    Such a running variance is n / (n - 1) times too large. The variance of a batch of B samples is s^2 (1 - tau/B) on
    average; s and tau are known from the images. So the running variance is compared with n / (n - 1) times this
    number, if there are enough images.
    """
    if batch_size is None or norm.running is None or norm.per_sample:
        return None
    samples = _samples(norm, batch_size)
    values = samples * norm.positions
    if not 2 <= values <= 11:
        return None
    means, variances = norm.moments()
    tau, kappa, _ = layer_statistics.draws(means, variances)
    var, running = norm.whole()[1], norm.running[1]
    live = (var > 0) & (running > 0)
    if not live.any():
        return None
    ratio = np.log(running[live] / (var[live] * (1 - np.minimum(tau[live], 1) / samples)))
    factor, error = values / (values - 1), math.sqrt((ratio.var() + np.median(kappa) / len(means)) / live.sum())
    if abs(ratio.mean() - math.log(factor)) > math.log(factor) / 2 - 2 * error:
        return None
    numbers = {"values": values, "factor": factor, "ratio": float(math.exp(ratio.mean()))}
    return Symptom("variance_convention", norm.name, WARNING if factor > 1.5 else NOTE, numbers, harms=True)


def stale(norm: Norm, measured: Measured) -> Symptom | None:
    """Find running statistics that are far from the moments of the layer's input."""
    if norm.running is None:
        return None
    offset, limit = norm.offset(), offset_limit(norm, measured)
    whole, worst = layer_statistics.rms(offset), float(np.max(offset, initial=0))
    initial = 0.0
    if norm.momentum is not None and norm.batches:
        initial = float(norm.momentum) ** norm.batches
    if whole <= limit and worst <= 4 * limit and not (initial > 0.2 and whole > 0.2):
        return None
    numbers = {
        "offset": whole,
        "limit": limit,
        "channel": int(np.argmax(offset)),
        "channel_offset": worst,
        "initial_share": initial,
    }
    return Symptom("stale_statistics", norm.name, NOTE if norm.frozen else WARNING, numbers, harms=True)


def offset_limit(norm: Norm, measured: Measured) -> float:
    """Return the largest usual offset: max(0.5, 4 * sampling error of the images, 6 * noise of the running average)."""
    spread = layer_statistics.spread(*norm.moments())
    batch = _samples(norm, measured.batch_size or USUAL_BATCH)
    noise = layer_statistics.output_error(spread, batch) * math.sqrt(_noise_kept(norm))
    return max(0.5, 4 * layer_statistics.output_error(spread, len(measured.images)), 6 * noise)


def _noise_kept(norm: Norm) -> float:
    """Return how noisy running statistics are: their variance divided by that of one batch's statistics.

    Return 0 for a frozen layer.
    """
    if norm.frozen:
        return 0.0
    if norm.momentum is None:
        return 1 / norm.batches if norm.batches else 0.0
    return (1 - norm.momentum) / (1 + norm.momentum)


def _samples(norm: Norm, batch: int) -> int:
    """Return the number of samples over which a layer computes statistics."""
    return min(batch * norm.ranks, norm.virtual or batch * norm.ranks)


def skipped(norm: Norm) -> Symptom | None:
    """Find batches that were left out of the running statistics."""
    if not norm.skipped:
        return None
    share = norm.skipped / (norm.skipped + (norm.batches or 0))
    return Symptom(
        "skipped_batches", norm.name, WARNING if share > 0.1 else NOTE, {"skipped": norm.skipped, "share": share}
    )


def batch_error(norm: Norm, batch_size: int | None) -> float | None:
    """Return the output's error in batches of this size.

    Return None if the batch size is unknown, or if the layer does not use batch statistics.
    """
    if batch_size is None or norm.running is None or norm.frozen or norm.per_sample:
        return None
    return layer_statistics.output_error(layer_statistics.spread(*norm.moments()), _samples(norm, batch_size))


def batch(norm: Norm, batch_size: int | None) -> Symptom | None:
    """Find batches that have too few samples for statistics."""
    error = batch_error(norm, batch_size)
    if error is None or batch_size is None:
        return None
    batch = _samples(norm, batch_size)
    if batch > 4 and error <= 0.25:
        return None
    means, variances = norm.moments()
    in_mean, in_variance = layer_statistics.mean_and_variance_error(means, variances, batch)
    numbers = {
        "batch_size": batch,
        "error": error,
        "mean_error": in_mean,
        "variance_error": in_variance,
        "batch_for_10_percent": math.ceil(layer_statistics.spread(means, variances) / 0.01),
    }
    if batch == 1:
        return Symptom("batch_of_one", norm.name, WARNING, numbers)
    return Symptom("small_batch", norm.name, WARNING if error > 0.5 else NOTE, numbers)
