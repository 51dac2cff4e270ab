"""Compute the correct result of each operator: the specification's formula in float64, in NumPy, without minorm.

Each operator has one function, which takes a case and returns the expected value of each output of the node, in order.
The formula uses the inputs as they are stored: an x in float16 is already rounded.

Source: https://onnx.ai/onnx/operators/, each version as published. Where the text and the shapes contradict each other,
we follow the shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.conformance.case import Case
from minorm.devices import dtypes

STASH: dict[int, Any] = {1: dtypes.float32, 10: dtypes.float16, 11: dtypes.float64, 16: dtypes.bfloat16}


def due(case: Case) -> list[tuple[Any, Any]]:
    """Compute the expected outputs of a case.

    Return a list of (value in float64, element type); a value is None if the specification leaves it open.
    """
    with np.errstate(all="ignore"):
        return FORMULAS[case.operator](case, *[array.astype(np.float64) for array in case.inputs])


def batch_normalization(case: Case, x: Any, s: Any, b: Any, mean: Any, var: Any) -> list[tuple[Any, Any]]:
    """Return y, the new running mean and variance, and the batch's mean and variance, each with its type.

    In training, new running value = old * momentum + batch * (1 - momentum).

    All variances are population variances.
    """
    eps, momentum = case.get("epsilon", 1e-5), case.get("momentum", 0.9)
    if x.ndim == 1:  # without a channel axis there is one channel
        x = x[:, None]
    each_position = s.ndim > 1  # spatial=0: scale is (C, D1, ...), and statistics are taken over N alone
    axes = (0,) if each_position else (0, *range(2, x.ndim))
    shape = (1, *s.shape) if each_position else (1, -1, *[1] * (x.ndim - 2))
    m, v = (None, None) if x.size == 0 else (x.mean(axes), x.var(axes))
    old_mean, old_var = mean, var
    trains = trains_batch_norm(case)
    if trains and m is not None:
        mean, var = m, v
    y = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps) * s.reshape(shape) + b.reshape(shape)
    new = [None if now is None else old * momentum + now * (1 - momentum) for old, now in ((old_mean, m), (old_var, v))]
    t, u = case.inputs[0].dtype, case.inputs[3].dtype
    return [(y.reshape(case.inputs[0].shape), t), (new[0], u), (new[1], u), (m, t), (v, t)]


def trains_batch_norm(case: Case) -> bool:
    """Return True if the node of a case is in training mode.

    Before version 7, this depends on the attribute is_test; from 7 to 13, on the number of outputs; from 14 on, on
    training_mode.
    """
    if case.opset < 7:
        return not case.get("is_test", 0)
    return any(case.outputs[1:]) if case.opset < 14 else bool(case.get("training_mode", 0))


def instance_normalization(case: Case, x: Any, s: Any, b: Any) -> list[tuple[Any, Any]]:
    """Normalize each channel of each sample with its own mean and variance."""
    y = standardized(x, tuple(range(2, x.ndim)), case.get("epsilon", 1e-5))[0]
    return [(y * along_channels(s, x) + along_channels(b, x), case.inputs[0].dtype)]


def group_normalization(case: Case, x: Any, s: Any, b: Any) -> list[tuple[Any, Any]]:
    """Normalize with the statistics of each group of channels.

    Scale and bias are per group in version 18, and per channel in version 21.
    """
    groups = case.attributes["num_groups"]
    if case.opset < 21:
        s, b = (np.repeat(p, x.shape[1] // groups) for p in (s, b))
    rows = x.reshape(x.shape[0], groups, int(np.prod(x.shape[1:])) // groups)
    y = standardized(rows, (2,), case.get("epsilon", 1e-5))[0].reshape(x.shape)
    return [(y * along_channels(s, x) + along_channels(b, x), case.inputs[0].dtype)]


def layer_normalization(case: Case, x: Any, s: Any, b: Any = 0.0) -> list[tuple[Any, Any]]:
    """Normalize over all axes from the attribute `axis` to the last.

    Return y, the mean and 1 / std; the last two have the type of stash_type.
    """
    axes = tuple(range(case.get("axis", -1) % x.ndim, x.ndim))
    y, mean, root = standardized(x, axes, case.get("epsilon", 1e-5))
    stash = STASH[case.get("stash_type", 1)]
    return [(y * s + b, case.inputs[0].dtype), (mean, stash), (1 / root, stash)]


def rms_normalization(case: Case, x: Any, s: Any) -> list[tuple[Any, Any]]:
    """Return x / sqrt(mean(x^2) + eps) * scale, in scale's type."""
    axes = tuple(range(case.get("axis", -1) % x.ndim, x.ndim))
    root = np.sqrt((x * x).mean(axes, keepdims=True) + case.get("epsilon", 1e-5))
    return [(x / root * s, case.inputs[1].dtype)]


def mean_variance_normalization(case: Case, x: Any) -> list[tuple[Any, Any]]:
    """Return (x - mean) / (std + 1e-9); the 1e-9 is not under the root."""
    axes = tuple(case.get("axes", [0, 2, 3]))
    if not x.size:
        return [(x, case.inputs[0].dtype)]
    centred = x - x.mean(axes, keepdims=True)
    return [(centred / (x.std(axes, keepdims=True) + 1e-9), case.inputs[0].dtype)]


def lp_normalization(case: Case, x: Any) -> list[tuple[Any, Any]]:
    """Return x / (p-norm of x along an axis), or 0 if the norm is 0."""
    p, axis = case.get("p", 2), case.get("axis", -1)
    norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
    return [(np.divide(x, norm, out=np.zeros_like(x), where=norm != 0), case.inputs[0].dtype)]


def local_response_normalization(case: Case, x: Any) -> list[tuple[Any, Any]]:
    """Return x / (bias + alpha / size * sum of squares in the window) ^ beta.

    If the size is even, the window has one more channel above than below.
    """
    size = case.attributes["size"]
    alpha, beta, bias = case.get("alpha", 1e-4), case.get("beta", 0.75), case.get("bias", 1.0)
    return [(x / (bias + alpha / size * windows(x, size)) ** beta, case.inputs[0].dtype)]


def windows(x: Any, size: int) -> Any:
    """Return, for each channel, the sum of squares over the channel's window of `size` channels."""
    below, above = (size - 1) // 2, size // 2
    energy = np.zeros_like(x)
    for c in range(x.shape[1]):
        energy[:, c] = (x[:, max(0, c - below) : c + above + 1] ** 2).sum(1)
    return energy


def standardized(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """Return (x - mean) / root, the mean, and the root = sqrt(var + eps)."""
    mean = x.mean(axes, keepdims=True)
    root = np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)
    return (x - mean) / root, mean, root


def along_channels(parameter: Any, x: Any) -> Any:
    """Reshape (C) numbers so that they broadcast over (N, C, ...)."""
    return parameter.reshape(1, -1, *[1] * (x.ndim - 2))


FORMULAS: dict[str, Callable[..., list[tuple[Any, Any]]]] = {
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "LpNormalization": lp_normalization,
    "LRN": local_response_normalization,
}
