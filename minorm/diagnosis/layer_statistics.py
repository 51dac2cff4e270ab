"""Compute a layer's statistics: moments of each sample, errors of running statistics, the error of a batch size.

All follow from m_i and v_i, the mean and variance of a channel in sample i. The moments of the data are
mu = mean(m), s^2 = mean(v + (m - mu)^2). A batch of B samples makes the error

    e = sqrt((tau + kappa/4) / B),  tau = Var(m) / s^2,  kappa = Var(v + (m - mu)^2) / s^4,

in standard deviations of the output. Samples are independent draws; pixels are not, as neighbours are alike.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

UNCENTRED = ("rms", "filter_response")  # normalizations that divide by the mean square
AT_ONCE = 1 << 17  # numbers that are in float64 at a time
STEP = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}  # from 1 to the next number


def by_sample(x: Any, mask: Any = None) -> tuple[Any, Any, Any]:
    """Return mean, variance and count (N, C) of each channel in each sample of x (N, C, *positions), in float64.

    mask  True for the elements of x that count, in the shape of x; None if all count
    """
    shape = (*x.shape[:2], -1)
    return _moments(x.reshape(shape), None if mask is None else mask.reshape(shape))


def by_set(x: Any, what: str, options: Any, mask: Any = None) -> tuple[Any, Any]:
    """Return mean and variance (flat arrays) of each set of numbers over which a normalization takes statistics."""
    mean, var, count = _moments(_sets(x, what, options), None if mask is None else _sets(mask, what, options))
    mean, var = mean[count > 0], var[count > 0]
    return (np.zeros_like(mean), var + mean**2) if what in UNCENTRED else (mean, var)


def _sets(x: Any, what: str, options: Any) -> Any:
    """Return x with a row for each set of numbers over which the normalization takes statistics."""
    if what in ("batch", "instance", "filter_response"):
        return x.reshape(x.shape[0] * x.shape[1], -1)
    if what in ("layer", "rms"):
        shape = options["normalized_shape"]
        return x.reshape(-1, math.prod(shape) if isinstance(shape, (tuple, list)) else int(shape))
    groups = int(options.get("num_groups", 1) or 1)
    if groups > 1 or what == "group":
        return x.reshape(x.shape[0] * groups, -1)
    axes = options["axes"]
    if not isinstance(axes, (tuple, list)):
        axes = [axis for axis in range(x.ndim) if axes >> axis & 1]
    reduced = [axis % x.ndim for axis in axes]
    kept = [axis for axis in range(x.ndim) if axis not in reduced]
    return x.transpose(*kept, *reduced).reshape(math.prod(x.shape[axis] for axis in kept), -1)


def _moments(rows: Any, mask: Any) -> tuple[Any, Any, Any]:
    """Return mean, variance and count over the last axis; all are 0 if no element counts.

    Numbers are centred before squaring. Only a few rows are computed at a time, as all of a layer's output in float64
    would take several times its memory.
    """
    shape, length = rows.shape[:-1], rows.shape[-1]
    rows, mask = rows.reshape(-1, length), None if mask is None else mask.reshape(-1, length)
    step = max(1, AT_ONCE // max(1, length))
    parts = [
        _moments_of(rows[i : i + step], None if mask is None else mask[i : i + step]) for i in range(0, len(rows), step)
    ]
    mean, var, count = (np.concatenate(part).reshape(shape) for part in zip(*parts, strict=True))
    return mean, var, count


def _moments_of(rows: Any, mask: Any) -> tuple[Any, Any, Any]:
    rows = np.asarray(rows, np.float64)
    if mask is None:
        mean = rows.mean(-1)
        return mean, ((rows - mean[..., np.newaxis]) ** 2).mean(-1), np.full(mean.shape, float(rows.shape[-1]))
    count = mask.sum(-1, dtype=np.float64)
    share = np.maximum(count, 1)
    mean = np.where(mask, rows, 0).sum(-1) / share
    return mean, np.where(mask, (rows - mean[..., np.newaxis]) ** 2, 0).sum(-1) / share, count


def merged(means: Any, variances: Any, counts: Any = None) -> tuple[Any, Any]:
    """Return mean and variance (C) of all samples together; `counts` (N, C) are their weights, None for equal ones."""
    weights = np.ones_like(means) if counts is None else counts
    mu = _weighted(means, weights)
    return mu, _weighted(variances + (means - mu) ** 2, weights)


def _weighted(values: Any, weights: Any) -> Any:
    return (values * weights).sum(0) / np.maximum(weights.sum(0), 1)


def is_constant(mean: Any, var: Any, step: float) -> Any:
    """Return a mask of channels with equal values, except for rounding; `step` is the distance of numbers at 1."""
    return var <= (2 * step * mean) ** 2


def draws(means: Any, variances: Any) -> tuple[Any, Any, Any]:
    """(tau, kappa, c) of each channel, with c = Cov(v + (m - mu)^2, (m - mu)^2) / s^4; the module defines the others.

    The estimates divide by N - 1. They are 0 for a channel without variance.
    """
    mu, var = merged(means, variances)
    count = len(means)
    away = (means - mu) ** 2
    squares = variances + away
    safe = np.where(var <= 1e-13 * mu**2, np.inf, var)
    tau = away.sum(0) / (count - 1) / safe
    kappa = ((squares - var) ** 2).sum(0) / (count - 1) / safe**2
    c = ((squares - var) * (away - away.mean(0))).sum(0) / (count - 1) / safe**2
    return tau, kappa, c


def spread(means: Any, variances: Any) -> float:
    """B e^2 = tau + kappa/4, of the median channel."""
    tau, kappa, _ = draws(means, variances)
    both = tau + kappa / 4
    live = both[both > 0]
    return float(np.median(live)) if len(live) else 0.0


def output_error(spread: float, batch: float) -> float:
    """e = sqrt(spread / batch): the error of a layer's output, in standard deviations, in batches of this size."""
    return math.sqrt(spread / batch)


def mean_and_variance_error(means: Any, variances: Any, batch: float) -> tuple[float, float]:
    """Return the error of the mean in standard deviations and the relative error of the variance (median channel)."""
    tau, kappa, c = (float(np.median(v)) for v in draws(means, variances))
    return math.sqrt(tau / batch), math.sqrt(max(0.0, kappa / batch + (3 * tau**2 - 2 * c) / batch**2))


def offsets(mean: Any, var: Any, running_mean: Any, running_var: Any, eps: float) -> Any:
    """sqrt((mu - m)^2 / (s sr) + ln(s / sr)^2) of each channel: how far running statistics are from the data's."""
    s, sr = np.sqrt(np.maximum(var, 0) + eps), np.sqrt(np.maximum(running_var, 0) + eps)
    return np.sqrt((mean - running_mean) ** 2 / (s * sr) + np.log(s / sr) ** 2)


def cancellation(mean: Any, var: Any, bias: Any) -> tuple[float, float, float] | None:
    """Return (size, slope, correlation) of a bias and the mean of the product before it; None if they are unknown.

    After folding, bias = beta - gamma mu / sigma and the product has mean gamma mu / sigma and variance gamma^2.
    """
    live = var > 0
    if live.sum() < 4:  # a slope through two or three points says nothing
        return None
    sd = np.sqrt(var[live])
    z, shift = mean[live] / sd, -bias[live] / sd
    if z.std() == 0 or shift.std() == 0:
        return None
    slope, _ = np.polyfit(z, shift, 1)
    size, correlation = rms(z), float(np.corrcoef(z, shift)[0, 1])
    return size, float(slope), correlation


def cancels(size: float, slope: float, correlation: float) -> bool:
    """Return whether a bias cancels the mean of the product, as it does after folding."""
    return size > 0.3 and 0.5 <= slope <= 1.5 and correlation > 0.8


def rms(values: Any) -> float:
    """sqrt(mean(values^2)); 0 for no values."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if np.size(values) else 0.0
