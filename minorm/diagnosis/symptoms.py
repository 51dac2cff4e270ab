"""Find symptoms of single layers; each symptom has a statistic, with thresholds for a note, a warning or an error.

The thresholds separate healthy models from models with planted faults; docs/doctor.md has the numbers. A threshold
grows with the sampling error of its statistic. findings.py decides the final severity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minorm.diagnosis import layer_statistics
from minorm.diagnosis import statistics_symptoms as running
from minorm.diagnosis.measured import Activation, Measured, Norm
from minorm.diagnosis.symptom import ERROR, NOTE, WARNING, Symptom

DYING = frozenset(("relu", "relu6", "gelu", "silu", "mish", "hardswish"))  # activations that give 0 where they are off


def of(measured: Measured) -> Iterator[Symptom]:
    """Yield the symptoms of single layers, layer by layer."""
    for norm in measured.norms:
        if norm.folded is not None:
            yield _folded(norm.name, norm.folded)
            continue
        explained = running.untouched(norm, measured) or running.inverted_momentum(norm, measured.framework)
        yield from _of_the_layer(norm, measured.framework, explained)
        if not measured.random:
            yield from _of_the_data(norm, measured, explained)
    if measured.random:
        return
    for activation in measured.activations:
        yield from _some(_dead(activation) or _saturated(activation))
    for affine in measured.affine:
        found = affine.cancellation()
        if found is not None and layer_statistics.cancels(*found):
            yield _folded(affine.name, found)


def _of_the_layer(norm: Norm, framework: str, explained: Symptom | None) -> list[Symptom]:
    """Return the symptoms that can be found without images.

    `explained` comes first, unless it is None: a symptom that explains why running statistics are wrong.
    """
    return _some(
        explained,
        running.drifts(norm, framework),
        running.in_training(norm),
        running.skipped(norm),
        _half_eps(norm),
        _vanished(norm),
        _undone(norm),
    )


def _of_the_data(norm: Norm, measured: Measured, explained: Symptom | None) -> list[Symptom]:
    """Return the symptoms that can be found only with images.

    `explained`, unless it is None, is a symptom that explains wrong running statistics.
    """
    stale = None if explained else running.stale(norm, measured)
    return _some(
        stale,
        None if stale else running.variance(norm, measured.batch_size),
        running.batch(norm, measured.batch_size),
        _large_mean(norm),
        _eps(norm),
    )


def _some(*found: Symptom | None) -> list[Symptom]:
    return [symptom for symptom in found if symptom is not None]


# The moments with which normalizations compute


def moments(norm: Norm) -> tuple[Any, Any, bool]:
    """Return (means, variances, is_sets) of a layer's inputs.

    If each set of numbers that is normalized together was recorded, there is one entry per set. Otherwise there is one
    entry per channel.
    """
    if norm.sets:
        mean, var = (np.concatenate(part) for part in zip(*norm.sets, strict=True))
        return mean, var, True
    return *norm.whole(), False


def digits_lost(norm: Norm, mean: Any, var: Any, sets: bool) -> float | None:
    """Return log10(1 + mean^2 / var), the number of digits that the variance E[x^2] - E[x]^2 loses.

    This is the value of the worst channel or, if `sets` is True, the 95 % quantile over sets. Return None if the layer
    subtracts no mean.
    """
    live = ~layer_statistics.is_constant(mean, var, norm.step)
    if norm.what in layer_statistics.UNCENTRED or not live.any():
        return None
    digits = np.log10(1 + mean[live] ** 2 / var[live])
    return float(np.quantile(digits, 0.95) if sets else digits.max())


def eps_over_variance(norm: Norm, mean: Any, var: Any) -> float | None:
    """Return the median of eps / var over channels or sets. Return None if every channel or set is constant."""
    live = ~layer_statistics.is_constant(mean, var, norm.step)
    eps = norm.eps**2 if norm.what == "mean_variance" else norm.eps  # it adds eps to the deviation
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


def _half_eps(norm: Norm) -> Symptom | None:
    """Find an eps that would become 0 in float16, or that rounding to float16 would change by more than a tenth."""
    if norm.eps == 0 and norm.dtype != "float16":
        return None
    half = float(np.float16(norm.eps))
    if norm.eps != 0 and abs(half - norm.eps) <= 0.1 * norm.eps:
        return None
    numbers = {"eps": norm.eps, "in_float16": half, "type": norm.dtype}
    return Symptom("eps_underflows", norm.name, WARNING if norm.dtype == "float16" else NOTE, numbers)


def _vanished(norm: Norm) -> Symptom | None:
    if norm.weight is None or norm.weight.size < 2:
        return None
    size = np.abs(np.asarray(norm.weight, np.float64)).ravel()
    usual = max(float(np.median(size)), float(size.max()) / 10)  # if most have vanished, the median has too
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


# Normalizations that an export folded


def _folded(name: str, found: tuple[float, float, float]) -> Symptom:
    size, slope, correlation = found
    return Symptom("folded_norm", name, NOTE, {"z": size, "slope": slope, "correlation": correlation})
