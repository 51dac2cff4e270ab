"""The statistic of each finding of one layer, and from where on it is one: a note, a warning or an error.

The thresholds separated healthy models from planted diseases (docs/doctor.md has both columns). Each grows with the
error that the images given leave in its statistic. How severe a finding is in the end, findings.py decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minorm.diagnosis import layer_statistics
from minorm.diagnosis.passes import Activation, Affine, Measured, Norm

NOTE, WARNING, ERROR = "note", "warning", "error"
USUAL_BATCH = 32  # where nobody says with which one a model trains
DYING = frozenset(("relu", "relu6", "gelu", "silu", "mish", "hardswish"))  # activations that give 0 where they are off


@dataclass
class Symptom:
    """What was found: the level that its statistic gives; harms: whether it needs harm to stand above a note."""

    name: str
    layer: str | None
    level: str
    numbers: dict[str, Any]
    harms: bool = False


def of(measured: Measured) -> Iterator[Symptom]:
    """All that the statistics of single layers show, layer by layer."""
    for norm in measured.norms:
        if norm.running is not None:
            yield from _some(_untouched(norm) or _convention(norm) or _stale(norm, measured))
        yield from _some(
            _skipped(norm),
            _batch(norm, measured.batch_size),
            _large_mean(norm),
            _eps(norm),
            _vanished(norm),
            _undone(norm),
        )
    for activation in measured.activations:
        yield from _some(_dead(activation) or _saturated(activation))
    for affine in measured.affine:
        yield from _some(_folded(affine))


def _some(*found: Symptom | None) -> list[Symptom]:
    return [symptom for symptom in found if symptom is not None]


# Running statistics


def _untouched(norm: Norm) -> Symptom | None:
    assert norm.running is not None
    mean, var = norm.running
    if mean.any() or (var != 1).any():
        return None
    numbers = {"channels": mean.size, "offset": layer_statistics.rms(norm.offset())}
    return Symptom("untouched_statistics", norm.name, WARNING, numbers, harms=True)


def _convention(norm: Norm) -> Symptom | None:
    if norm.momentum is None or norm.momentum >= 0.5 or norm.frozen:
        return None
    numbers = {"momentum": float(norm.momentum), "usual": round(1 - float(norm.momentum), 6)}
    return Symptom("momentum_convention", norm.name, WARNING, numbers, harms=True)


def _stale(norm: Norm, measured: Measured) -> Symptom | None:
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
    """0.5, or 4 sampling errors of the images, or 6 times the noise that an average with this momentum has."""
    spread = layer_statistics.spread(*norm.moments())
    batch = _samples(norm, measured.batch_size or USUAL_BATCH)
    noise = layer_statistics.output_error(spread, batch) * math.sqrt(_noise_kept(norm))
    return max(0.5, 4 * layer_statistics.output_error(spread, len(measured.images)), 6 * noise)


def _noise_kept(norm: Norm) -> float:
    """The variance of an average with this momentum, over that of a batch; nobody averages in a frozen layer."""
    if norm.frozen:
        return 0.0
    if norm.momentum is None:
        return 1 / norm.batches if norm.batches else 0.0
    return (1 - norm.momentum) / (1 + norm.momentum)


def _samples(norm: Norm, batch: int) -> int:
    """How many samples a layer takes its statistics over."""
    return min(batch * norm.ranks, norm.virtual or batch * norm.ranks)


def _skipped(norm: Norm) -> Symptom | None:
    if not norm.skipped:
        return None
    share = norm.skipped / (norm.skipped + (norm.batches or 0))
    return Symptom(
        "skipped_batches", norm.name, WARNING if share > 0.1 else NOTE, {"skipped": norm.skipped, "share": share}
    )


# The size of the batch


def batch_error(norm: Norm, batch_size: int | None) -> float | None:
    """The error of the output; None where no batch has a part in it, or nobody says how large it is."""
    if batch_size is None or norm.running is None or norm.frozen or norm.per_sample:
        return None
    return layer_statistics.output_error(layer_statistics.spread(*norm.moments()), _samples(norm, batch_size))


def _batch(norm: Norm, batch_size: int | None) -> Symptom | None:
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


# What normalizations divide by


def moments(norm: Norm) -> tuple[Any, Any, bool]:
    """Mean and variance of each channel, or of each set where there are no running statistics (then True)."""
    if norm.sets:
        mean, var = (np.concatenate(part) for part in zip(*norm.sets, strict=True))
        return mean, var, True
    return *norm.whole(), False


def digits_lost(norm: Norm, mean: Any, var: Any, sets: bool) -> float | None:
    """log10(1 + mean^2/var): of the worst channel, or the 95 % quantile over sets; None where nothing is centred."""
    live = ~layer_statistics.is_constant(mean, var, norm.step)
    if norm.what in layer_statistics.UNCENTRED or not live.any():
        return None
    digits = np.log10(1 + mean[live] ** 2 / var[live])
    return float(np.quantile(digits, 0.95) if sets else digits.max())


def eps_over_variance(norm: Norm, mean: Any, var: Any) -> float | None:
    """The median over channels or sets; None where all of them are constant."""
    live = ~layer_statistics.is_constant(mean, var, norm.step)
    eps = norm.eps**2 if norm.what == "mean_variance" else norm.eps  # which adds it to the deviation
    return float(np.median(eps / var[live])) if live.any() else None


def _large_mean(norm: Norm) -> Symptom | None:
    mean, var, sets = moments(norm)
    lost = digits_lost(norm, mean, var, sets)
    if lost is None or lost < 3:
        return None
    live = np.flatnonzero(~layer_statistics.is_constant(mean, var, norm.step))
    worst = live[np.argmax(mean[live] ** 2 / var[live])]
    numbers = {"digits_lost": lost, "mean": float(mean[worst]), "deviation": float(math.sqrt(var[worst]))}
    return Symptom("large_mean", norm.name, ERROR if lost >= 6.5 else WARNING if lost >= 4 else NOTE, numbers)


def _eps(norm: Norm) -> Symptom | None:
    mean, var, _ = moments(norm)
    ratio = eps_over_variance(norm, mean, var)
    if ratio is None or ratio <= 0.1:
        return None
    usual = float(np.median(var[~layer_statistics.is_constant(mean, var, norm.step)]))
    numbers = {"eps_over_variance": ratio, "eps": norm.eps, "variance": usual}
    return Symptom("eps_swallows_variance", norm.name, WARNING if ratio > 1 else NOTE, numbers)


def _vanished(norm: Norm) -> Symptom | None:
    if norm.weight is None or norm.weight.size < 2:
        return None
    size = np.abs(np.asarray(norm.weight, np.float64)).ravel()
    usual = max(float(np.median(size)), float(size.max()) / 10)  # where most have vanished, so has the median
    gone = size <= 1e-3 * usual
    if not gone.any():
        return None
    numbers = {"channels": int(gone.sum()), "of": size.size, "smallest": float(size.min()), "usual": usual,
               "channel": int(np.argmin(size))}  # fmt: skip
    return Symptom("vanished_scale", norm.name, WARNING if gone.mean() >= 0.5 else NOTE, numbers)


def _undone(norm: Norm) -> Symptom | None:
    if norm.undone is None or norm.undone[1] >= 0.04:
        return None
    return Symptom("undone_norm", norm.name, WARNING, {"earlier": norm.undone[0], "change": norm.undone[1]})


# Activations


def _dead(activation: Activation) -> Symptom | None:
    peaks = activation.peaks
    if activation.what not in DYING:
        return None
    alive = peaks[peaks > 0]
    dead = peaks <= 1e-6 * (np.median(alive) if len(alive) else 0.0)
    if not dead.any():
        return None
    numbers = {"channels": int(dead.sum()), "of": len(peaks), "share": float(dead.mean()),
               "channel": int(np.argmax(dead)), "activation": activation.what}  # fmt: skip
    return Symptom("dead_channel", activation.name, WARNING if dead.mean() >= 0.9 else NOTE, numbers)


def _saturated(activation: Activation) -> Symptom | None:
    share = activation.flat / activation.seen
    channels = share > 0.9
    if not channels.any():
        return None
    numbers = {"channels": int(channels.sum()), "of": len(share), "share": float(share.mean()),
               "channel": int(np.argmax(share)), "activation": activation.what}  # fmt: skip
    return Symptom("saturated_channel", activation.name, WARNING if channels.mean() > 0.9 else NOTE, numbers)


# What an export left of a normalization


def _folded(affine: Affine) -> Symptom | None:
    """After folding, bias = beta - gamma mu / sigma and the product has mean gamma mu / sigma: they nearly cancel."""
    mean, var = layer_statistics.merged(np.concatenate(affine.means), np.concatenate(affine.variances))
    live = var > 0
    if live.sum() < 4:  # a slope of two or three says nothing
        return None
    sd = np.sqrt(var[live])
    z, shift = mean[live] / sd, -affine.bias[live] / sd
    if z.std() == 0 or shift.std() == 0:
        return None
    slope, _ = np.polyfit(z, shift, 1)
    correlation = float(np.corrcoef(z, shift)[0, 1])
    size = layer_statistics.rms(z)
    if size <= 0.3 or not 0.5 <= slope <= 1.5 or correlation <= 0.8:
        return None
    return Symptom("folded_norm", affine.name, NOTE, {"z": size, "slope": float(slope), "correlation": correlation})
