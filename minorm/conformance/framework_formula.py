"""Compute the expected results of framework_cases.py in float64: mainly the derivatives of formula.py's functions.

One function per operator computes the gradients of x, scale and bias from dy, the gradient of y. Let xhat be the
standardized data and g = dy * scale; the means are over the axes of the statistics. Then for most operators

    dx = (g - mean(g) - xhat * mean(g * xhat)) / sqrt(var + eps)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.conformance import formula
from minorm.conformance.case import CUMULATIVE, GRADIENTS, OUTPUTS, Case

Gradients = tuple[Any, ...]


def due(case: Case) -> list[tuple[Any, Any]]:
    """Compute the results that the case asks for. Return a list of (value in float64, element type)."""
    if case.kind == OUTPUTS:
        return formula.due(case)
    with np.errstate(all="ignore"):
        inputs = [array.astype(np.float64) for array in case.inputs]
        if case.kind == GRADIENTS:
            values = DERIVATIVES[case.operator](case, case.beside.astype(np.float64), *inputs)
            return [(value, array.dtype) for value, array in zip(values, case.inputs, strict=False)]
        return (cumulative if case.kind == CUMULATIVE else masked)(case, *inputs)


def batch_normalization(case: Case, dy: Any, x: Any, s: Any, b: Any, mean: Any, var: Any) -> Gradients:  # noqa: ARG001
    """Differentiate BatchNormalization.

    In inference, the stored statistics are constants; in training, the batch's statistics depend on x.
    """
    eps, axes, shape = case.get("epsilon", 1e-5), (0, *range(2, x.ndim)), (1, -1, *[1] * (x.ndim - 2))
    if formula.trains_batch_norm(case) and x.size:
        return through_statistics(x, dy, s.reshape(shape), axes, axes, eps)
    root = np.sqrt(var.reshape(shape) + eps)
    return dy * s.reshape(shape) / root, (dy * (x - mean.reshape(shape)) / root).sum(axes), dy.sum(axes)


def instance_normalization(case: Case, dy: Any, x: Any, s: Any, b: Any) -> Gradients:  # noqa: ARG001  b drops out
    """Differentiate InstanceNormalization, through the statistics of each channel of each sample."""
    over, scale = tuple(range(2, x.ndim)), formula.along_channels(s, x)
    return through_statistics(x, dy, scale, over, (0, *over), case.get("epsilon", 1e-5))


def group_normalization(case: Case, dy: Any, x: Any, s: Any, b: Any) -> Gradients:  # noqa: ARG001
    """Differentiate GroupNormalization, through the statistics of each group of channels.

    Scale and bias are per channel.
    """
    split = (x.shape[0], case.attributes["num_groups"], -1) if x.size else (0, case.attributes["num_groups"], 1)
    rows, g = x.reshape(split), (dy * formula.along_channels(s, x)).reshape(split)
    eps, over = case.get("epsilon", 1e-5), (0, *range(2, x.ndim))
    xhat = formula.standardized(rows, (2,), eps)[0].reshape(x.shape)
    return through_statistics(rows, g, 1.0, (2,), (0,), eps)[0].reshape(x.shape), (dy * xhat).sum(over), dy.sum(over)


def layer_normalization(case: Case, dy: Any, x: Any, s: Any, b: Any = None) -> Gradients:
    """Differentiate through the statistics, which are over the axes from `axis` to the last.

    Scale and bias have the same axes.
    """
    first = case.get("axis", -1) % x.ndim
    over = tuple(range(first, x.ndim))
    found = through_statistics(x, dy, s, over, tuple(range(first)), case.get("epsilon", 1e-5))
    return found if b is not None else found[:2]


def rms_normalization(case: Case, dy: Any, x: Any, s: Any) -> Gradients:
    """Differentiate RMSNormalization.

    The term mean(g) of the module's formula is missing, because no mean is subtracted.
    """
    first = case.get("axis", -1) % x.ndim
    over = tuple(range(first, x.ndim))
    root = np.sqrt((x * x).mean(over, keepdims=True) + case.get("epsilon", 1e-5))
    xhat, g = x / root, dy * s
    return (g - xhat * (g * xhat).mean(over, keepdims=True)) / root, (dy * xhat).sum(tuple(range(first)))


def mean_variance_normalization(case: Case, dy: Any, x: Any) -> Gradients:
    """Differentiate MeanVarianceNormalization. It adds 1e-9 to the standard deviation, whose derivative is xhat / n."""
    axes = tuple(case.get("axes", [0, 2, 3]))
    std = x.std(axes, keepdims=True)
    xhat = (x - x.mean(axes, keepdims=True)) / std
    means = dy.mean(axes, keepdims=True) + xhat * (dy * xhat).mean(axes, keepdims=True) * std / (std + 1e-9)
    return ((dy - means) / (std + 1e-9),)


def lp_normalization(case: Case, dy: Any, x: Any) -> Gradients:
    """Differentiate through the norm. The norm's derivative is y if p is 2, and the sign of x if p is 1."""
    p, axis = case.get("p", 2), case.get("axis", -1)
    norm = (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p)
    y = x / norm
    slope = y if p == 2 else np.sign(x)
    return ((dy - slope * (dy * y).sum(axis, keepdims=True)) / norm,)


def local_response_normalization(case: Case, dy: Any, x: Any) -> Gradients:
    """Differentiate LRN.

    For each channel, sum over all windows that contain the channel, because the channel's x affects the results of
    these windows.
    """
    size, beta = case.attributes["size"], case.get("beta", 0.75)
    share = case.get("alpha", 1e-4) / size
    base, dx = case.get("bias", 1.0) + share * formula.windows(x, size), np.zeros_like(x)
    through = dy * x * base ** (-beta - 1)
    for c in range(x.shape[1]):
        seen_by = through[:, max(0, c - size // 2) : c + (size - 1) // 2 + 1].sum(1)  # the window, mirrored
        dx[:, c] = dy[:, c] * base[:, c] ** -beta - 2 * beta * share * x[:, c] * seen_by
    return (dx,)


def through_statistics(x: Any, dy: Any, s: Any, over: tuple[int, ...], of: tuple[int, ...], eps: float) -> Gradients:
    """Return the gradients of x, scale and bias.

    The mean and variance over the axes `over` depend on x. `of` are the axes of x that scale and bias lack.
    """
    xhat, _, root = formula.standardized(x, over, eps)
    g = dy * s
    dx = (g - g.mean(over, keepdims=True) - xhat * (g * xhat).mean(over, keepdims=True)) / root
    return dx, (dy * xhat).sum(of), dy.sum(of)


def masked(case: Case, x: Any, s: Any, b: Any, mean: Any, var: Any) -> list[tuple[Any, Any]]:
    """Run a batch norm in training mode on the entries whose mask is True.

    Return y, which is 0 at all other entries, and the new running statistics.
    """
    mask, keep = case.beside[:, None, :], case.get("momentum", 0.9)
    count = case.beside.sum()
    m = np.where(mask, x, 0).sum((0, 2)) / count
    v = np.where(mask, (x - m[:, None]) ** 2, 0).sum((0, 2)) / count
    y = (x - m[:, None]) / np.sqrt(v[:, None] + case.get("epsilon", 1e-5)) * s[:, None] + b[:, None]
    found = (np.where(mask, y, 0), mean * keep + m * (1 - keep), var * keep + v * (1 - keep))
    return [(value, case.inputs[0].dtype) for value in found]


def cumulative(case: Case, x: Any, *others: Any) -> list[tuple[Any, Any]]:  # noqa: ARG001  the average replaces the old
    """Take each sample as a batch. Return the mean and the variance, averaged over these batches."""
    over = tuple(range(2, x.ndim))
    return [(x.mean(over).mean(0), case.inputs[3].dtype), (x.var(over).mean(0), case.inputs[4].dtype)]


DERIVATIVES: dict[str, Callable[..., Gradients]] = {
    "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization,
    "GroupNormalization": group_normalization,
    "LayerNormalization": layer_normalization,
    "RMSNormalization": rms_normalization,
    "MeanVarianceNormalization": mean_variance_normalization,
    "LpNormalization": lp_normalization,
    "LRN": local_response_normalization,
}
