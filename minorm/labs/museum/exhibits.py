"""Holds eight faulty normalizations. Lab 15 asks what is wrong, so look at their answers before you read this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any


def exhibit(letter: str) -> Callable[..., Array]:
    """Return the faulty function with this letter, A to H, without warnings."""
    return quiet(_EXHIBITS[letter])


def quiet(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return the same function without NumPy's warnings."""
    return np.errstate(all="ignore")(function)


def along_channels(v: Array, x: Array) -> Array:
    """Reshape one value for each channel so that it broadcasts with x (N, C, ...)."""
    return np.reshape(v, (-1, *[1] * (x.ndim - 2)))


def batch_moments(x: Array) -> tuple[Any, Any]:
    """Return mean and population variance of each channel in float64."""
    axes, wide = (0, *range(2, x.ndim)), x.astype(np.float64)
    return wide.mean(axis=axes), wide.var(axis=axes)


def stepped(old: Array, new: Array, momentum: float) -> Array:
    """Compute old * momentum + new * (1 - momentum), in the type of old."""
    return (old.astype(np.float64) * momentum + new * (1 - momentum)).astype(old.dtype)


def scaled(x: Array, mean: Array, var: Array, s: Array, b: Array, eps: float) -> Array:
    """Compute (x - mean) / sqrt(var + eps) * s + b by channel, in the type of x."""
    mean, var, s, b = (along_channels(np.asarray(v, np.float64), x) for v in (mean, var, s, b))
    return ((x.astype(np.float64) - mean) / np.sqrt(var + eps) * s + b).astype(x.dtype)


def _blended(
    x: Array, s: Array, b: Array, running_mean: Array, running_var: Array, momentum: float = 0.9, eps: float = 1e-5
) -> Array:
    """A: y uses the new running statistics."""
    of_mean, of_var = batch_moments(x)
    mean, var = stepped(running_mean, of_mean, momentum), stepped(running_var, of_var, momentum)
    return scaled(x, mean, var, s, b, eps), mean, var


def _reversed_momentum(
    x: Array, s: Array, b: Array, running_mean: Array, running_var: Array, momentum: float = 0.9, eps: float = 1e-5
) -> Array:
    """B: momentum is the share of the new statistics."""
    of_mean, of_var = batch_moments(x)
    mean, var = stepped(running_mean, of_mean, 1 - momentum), stepped(running_var, of_var, 1 - momentum)
    return scaled(x, of_mean, of_var, s, b, eps), mean, var


def _one_value_left(
    x: Array, s: Array, b: Array, running_mean: Array, running_var: Array, momentum: float = 0.9, eps: float = 1e-5
) -> Array:
    """C: a channel with a single value is not changed."""
    if x.size == x.shape[1]:
        return x.copy(), running_mean.copy(), running_var.copy()
    of_mean, of_var = batch_moments(x)
    mean, var = stepped(running_mean, of_mean, momentum), stepped(running_var, of_var, momentum)
    return scaled(x, of_mean, of_var, s, b, eps), mean, var


def _variance_by_squares(x: Array, s: Array, b: Array, num_groups: int, eps: float = 1e-5) -> Array:
    """D: the variance is the mean of the squares minus the square of the mean."""
    repeats = x.shape[1] // len(s)
    groups = x.astype(np.promote_types(x.dtype, np.float32)).reshape(len(x), num_groups, -1)
    first = groups.mean(axis=2, keepdims=True)
    var = (groups * groups).mean(axis=2, keepdims=True) - first * first
    xhat = ((groups - first) / np.sqrt(var + groups.dtype.type(eps))).reshape(x.shape)
    return (xhat * along_channels(np.repeat(s, repeats), x) + along_channels(np.repeat(b, repeats), x)).astype(x.dtype)


def _as_many_channels_as_scales(x: Array, s: Array, b: Array, num_groups: int, eps: float = 1e-5) -> Array:
    """E: only as many channels are normalized as there are scales; the other channels stay unchanged."""
    y, channels = x.copy(), len(s)
    groups = x[:, :channels].astype(np.float64).reshape(len(x), num_groups, -1)
    xhat = (groups - groups.mean(axis=2, keepdims=True)) / np.sqrt(groups.var(axis=2, keepdims=True) + eps)
    xhat = xhat.reshape(len(x), channels, *x.shape[2:])
    y[:, :channels] = xhat * along_channels(s, x) + along_channels(b, x)
    return y


def _last_axis(x: Array, s: Array, b: Array, axis: int = -1, eps: float = 1e-5) -> Array:  # noqa: ARG001  that is the fault
    """F: only the last axis is normalized, with the first row of scale and bias."""
    x64 = x.astype(np.float64)
    xhat = (x64 - x64.mean(axis=-1, keepdims=True)) / np.sqrt(x64.var(axis=-1, keepdims=True) + eps)
    return (xhat * s.reshape(-1, s.shape[-1])[0] + b.reshape(-1, b.shape[-1])[0]).astype(x.dtype)


def _overflowing(x: Array, s: Array, b: Array, axis: int = -1, eps: float = 1e-5) -> Array:
    """G: squares are computed in the type of x, or in float32 if x is narrower."""
    wide = x.astype(np.promote_types(x.dtype, np.float32))
    axes = tuple(range(axis % x.ndim, x.ndim))
    centered = wide - wide.mean(axis=axes, keepdims=True)
    rstd = 1 / np.sqrt(np.square(centered).mean(axis=axes, keepdims=True) + wide.dtype.type(eps))
    return (centered * rstd * s + b).astype(x.dtype)


def _in_16_bits(x: Array, p: int = 2, axis: int = -1) -> Array:
    """H: everything is computed in the type of x."""
    powers = np.abs(x) if p == 1 else x * x
    total = powers.sum(axis=axis, keepdims=True, dtype=x.dtype)
    norm = total if p == 1 else np.sqrt(total)
    return np.where(norm == 0, x.dtype.type(0), x / norm)


_EXHIBITS: dict[str, Callable[..., Array]] = {
    "A": _blended,
    "B": _reversed_momentum,
    "C": _one_value_left,
    "D": _variance_by_squares,
    "E": _as_many_channels_as_scales,
    "F": _last_axis,
    "G": _overflowing,
    "H": _in_16_bits,
}
