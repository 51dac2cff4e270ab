"""Compute a layer's statistics: moments of each sample, errors of running statistics, the error of a batch size.

All these follow from m_i and v_i, the mean and variance of a channel in sample i. The data have the moments
mu = mean(m) and s^2 = mean(v + (m - mu)^2). If statistics come from a batch of B samples, the output's error is

    e = sqrt((tau + kappa/4) / B),  tau = Var(m) / s^2,  kappa = Var(v + (m - mu)^2) / s^4,

measured in standard deviations of the output. The formula counts samples, not pixels: samples are independent of each
other, but neighbouring pixels are alike.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

UNCENTRED = ("rms", "filter_response")  # normalizations that divide by the mean square
AT_ONCE = 1 << 17  # numbers that are in float64 at a time
STEP = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}  # from 1 to the next number


def by_sample(x: Any, mask: Any = None) -> tuple[Any, Any, Any]:
    """Return the mean, variance and number of elements of each channel in each sample of x (N, C, *positions).

    mask  has the shape of x, and is True for the elements to use; None to use all elements. The results are float64
    """
    shape = (*x.shape[:2], -1)
    return _moments(x.reshape(shape), None if mask is None else mask.reshape(shape))


def by_set(x: Any, what: str, options: Any, mask: Any = None) -> tuple[Any, Any]:
    """Return two vectors: the mean and the variance of each set of numbers that a normalization normalizes together."""
    mean, var, count = _moments(_sets(x, what, options), None if mask is None else _sets(mask, what, options))
    mean, var = mean[count > 0], var[count > 0]
    return (np.zeros_like(mean), var + mean**2) if what in UNCENTRED else (mean, var)


def _sets(x: Any, what: str, options: Any) -> Any:
    """Return x as a matrix; each row is a set of numbers that the normalization normalizes together."""
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
    """Return mean, variance and number of elements over the last axis; all three are 0 if the mask has no True.

    Numbers are centred before squaring. Only a few rows are converted to float64 at a time, because all rows together
    would take several times the memory of x.
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
    """Return the mean and variance of each channel over all samples.

    `counts` (N, C) are the weights of the samples; None means equal weights.
    """
    weights = np.ones_like(means) if counts is None else counts
    mu = _weighted(means, weights)
    return mu, _weighted(variances + (means - mu) ** 2, weights)


def _weighted(values: Any, weights: Any) -> Any:
    return (values * weights).sum(0) / np.maximum(weights.sum(0), 1)


def is_constant(mean: Any, var: Any, step: float) -> Any:
    """Return a mask of channels whose values are equal up to rounding; 1 + `step` is the first float above 1."""
    return var <= (2 * step * mean) ** 2


def draws(means: Any, variances: Any) -> tuple[Any, Any, Any]:
    """Estimate (tau, kappa, c) of each channel; c = Cov(v + (m - mu)^2, (m - mu)^2) / s^4.

    The arguments are m and v, the mean and the variance of each channel in each sample.

    The module's docstring defines tau and kappa. The estimates divide by N - 1, and are 0 for a channel without
    variance.
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
    """Return the median of tau + kappa/4 over the channels.

    Divided by the batch size, this is the square of the output's error.
    """
    tau, kappa, _ = draws(means, variances)
    both = tau + kappa / 4
    live = both[both > 0]
    return float(np.median(live)) if len(live) else 0.0


def output_error(spread: float, batch: float) -> float:
    """Return sqrt(spread / batch), the error of a layer's output in batches of this size, in standard deviations."""
    return math.sqrt(spread / batch)


def mean_and_variance_error(means: Any, variances: Any, batch: float) -> tuple[float, float]:
    """Return how much the statistics of a batch of this size are off, for the median channel.

    The first number is the error of the mean, in standard deviations. The second is the relative error of the variance.
    """
    tau, kappa, c = (float(np.median(v)) for v in draws(means, variances))
    return math.sqrt(tau / batch), math.sqrt(max(0.0, kappa / batch + (3 * tau**2 - 2 * c) / batch**2))


def offsets(mean: Any, var: Any, running_mean: Any, running_var: Any, eps: float) -> Any:
    """Return sqrt((mu - m)^2 / (s sr) + ln(s / sr)^2) of each channel: how far running statistics are from the data."""
    s, sr = np.sqrt(np.maximum(var, 0) + eps), np.sqrt(np.maximum(running_var, 0) + eps)
    return np.sqrt((mean - running_mean) ** 2 / (s * sr) + np.log(s / sr) ** 2)


def cancellation(mean: Any, var: Any, bias: Any) -> tuple[float, float, float] | None:
    """Compare a bias with the mean to which it is added: fit -bias / sd as a line over mean / sd, over the channels.

    Return (RMS of mean / sd, slope of the line, correlation). Return None if there are fewer than four channels with
    variance, or if one side is constant.

    If a BatchNorm was folded, bias = beta - gamma mu / sigma. The sum before the bias has mean gamma mu / sigma and
    variance gamma^2.
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
    """Return whether a bias cancels the mean to which it is added, as the bias of a folded BatchNorm does."""
    return size > 0.3 and 0.5 <= slope <= 1.5 and correlation > 0.8


def rms(values: Any) -> float:
    """Return sqrt(mean(values^2)), or 0 if there are no values."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64)))) if np.size(values) else 0.0
