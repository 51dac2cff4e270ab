"""What each operator should give: the specification's formula in float64, in plain NumPy, knowing nothing of minorm.

A function an operator. Each takes a case and returns what is due for each output of the node, in its order. The inputs
are taken as they are stored: an x of float16 has been rounded before anything is computed with it.

Source: https://onnx.ai/onnx/operators/, each version as it was published; where prose and shapes contradict each other,
the shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.conformance.case import Case
from minorm.devices import dtypes

STASH: dict[int, Any] = {1: dtypes.float32, 10: dtypes.float16, 11: dtypes.float64, 16: dtypes.bfloat16}


def due(case: Case) -> list[tuple[Any, Any]]:
    """(value in float64, element type) of every output of the node; None for a value that no text settles."""
    with np.errstate(all="ignore"):
        return FORMULAS[case.operator](case, *[array.astype(np.float64) for array in case.inputs])


def batch_normalization(case: Case, x: Any, s: Any, b: Any, mean: Any, var: Any) -> list[tuple[Any, Any]]:
    """y, the running mean and variance, the batch's; old * momentum + batch * (1 - momentum), population variance."""
    eps, momentum = case.get("epsilon", 1e-5), case.get("momentum", 0.9)
    if x.ndim == 1:  # no channel axis: there is one channel
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
    """1 and 6: unless is_test. 7 and 9: where there is more than one output. From 14 on: training_mode."""
    if case.opset < 7:
        return not case.get("is_test", 0)
    return any(case.outputs[1:]) if case.opset < 14 else bool(case.get("training_mode", 0))


def instance_normalization(case: Case, x: Any, s: Any, b: Any) -> list[tuple[Any, Any]]:
    """Statistics of each channel of each sample."""
    y = standardized(x, tuple(range(2, x.ndim)), case.get("epsilon", 1e-5))[0]
    return [(y * along_channels(s, x) + along_channels(b, x), case.inputs[0].dtype)]


def group_normalization(case: Case, x: Any, s: Any, b: Any) -> list[tuple[Any, Any]]:
    """Statistics of each group of channels; scale and bias one a group (18) or one a channel (21)."""
    groups = case.attributes["num_groups"]
    if case.opset < 21:
        s, b = (np.repeat(p, x.shape[1] // groups) for p in (s, b))
    rows = x.reshape(x.shape[0], groups, int(np.prod(x.shape[1:])) // groups)
    y = standardized(rows, (2,), case.get("epsilon", 1e-5))[0].reshape(x.shape)
    return [(y * along_channels(s, x) + along_channels(b, x), case.inputs[0].dtype)]


def layer_normalization(case: Case, x: Any, s: Any, b: Any = 0.0) -> list[tuple[Any, Any]]:
    """Statistics over the axes from `axis` on; then the mean and 1 / std, in the stash type."""
    axes = tuple(range(case.get("axis", -1) % x.ndim, x.ndim))
    y, mean, root = standardized(x, axes, case.get("epsilon", 1e-5))
    stash = STASH[case.get("stash_type", 1)]
    return [(y * s + b, case.inputs[0].dtype), (mean, stash), (1 / root, stash)]


def rms_normalization(case: Case, x: Any, s: Any) -> list[tuple[Any, Any]]:
    """x / sqrt(mean(x^2) + eps) * scale, of scale's type."""
    axes = tuple(range(case.get("axis", -1) % x.ndim, x.ndim))
    root = np.sqrt((x * x).mean(axes, keepdims=True) + case.get("epsilon", 1e-5))
    return [(x / root * s, case.inputs[1].dtype)]


def mean_variance_normalization(case: Case, x: Any) -> list[tuple[Any, Any]]:
    """(x - mean) / (std + 1e-9): eps stands outside the root."""
    axes = tuple(case.get("axes", [0, 2, 3]))
    if not x.size:
        return [(x, case.inputs[0].dtype)]
    centred = x - x.mean(axes, keepdims=True)
    return [(centred / (x.std(axes, keepdims=True) + 1e-9), case.inputs[0].dtype)]


def lp_normalization(case: Case, x: Any) -> list[tuple[Any, Any]]:
    """x / its p-norm along an axis; where the norm is 0, 0."""
    p, axis = case.get("p", 2), case.get("axis", -1)
    norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
    return [(np.divide(x, norm, out=np.zeros_like(x), where=norm != 0), case.inputs[0].dtype)]


def local_response_normalization(case: Case, x: Any) -> list[tuple[Any, Any]]:
    """x / (bias + alpha / size * sum of squares of a window of channels) ^ beta; an even window reaches further up."""
    size = case.attributes["size"]
    alpha, beta, bias = case.get("alpha", 1e-4), case.get("beta", 0.75), case.get("bias", 1.0)
    return [(x / (bias + alpha / size * windows(x, size)) ** beta, case.inputs[0].dtype)]


def windows(x: Any, size: int) -> Any:
    """The sum of squares of each channel's window."""
    below, above = (size - 1) // 2, size // 2
    energy = np.zeros_like(x)
    for c in range(x.shape[1]):
        energy[:, c] = (x[:, max(0, c - below) : c + above + 1] ** 2).sum(1)
    return energy


def standardized(x: Any, axes: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """(x - mean) / sqrt(var + eps), the mean and that root."""
    mean = x.mean(axes, keepdims=True)
    root = np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)
    return (x - mean) / root, mean, root


def along_channels(parameter: Any, x: Any) -> Any:
    """(C) numbers as they broadcast over (N, C, ...)."""
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
