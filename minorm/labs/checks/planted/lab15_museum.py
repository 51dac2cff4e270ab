"""Holds more programs for the museum: two right ones for each function, and two kinds of wrong ones.

A "sibling" of an exhibit has the same cause, but other code. A "neighbour" computes the same function as the exhibit,
but has another cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minorm.labs.museum.exhibits import along_channels

Function = Callable[..., Any]


def _rows(x: Any) -> Any:
    """Reshape x to (C, m)."""
    return np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)


def batch_norm(
    x: Any, s: Any, b: Any, running_mean: Any, running_var: Any, momentum: float = 0.9, eps: float = 1e-5
) -> Any:
    """Return y in the type of x, and the new running statistics in their types."""
    return _batch_norm()(x, s, b, running_mean, running_var, momentum, eps)


def group_norm(x: Any, s: Any, b: Any, num_groups: int, eps: float = 1e-5) -> Any:
    """Normalize groups, with a scale for each channel or for each group."""
    return _group_norm()(x, s, b, num_groups, eps)


def layer_norm(x: Any, s: Any, b: Any, axis: int = -1, eps: float = 1e-5) -> Any:
    """Normalize over the axes from `axis` to the last."""
    return _layer_norm()(x, s, b, axis, eps)


def lp_norm(x: Any, p: int = 2, axis: int = -1) -> Any:
    """Return x / norm, and 0 where the norm is 0."""
    return _lp_norm()(x, p, axis)


def _batch_norm(
    y_mean: float = 0.0,
    y_var: float = 0.0,
    swap_mean: bool = False,
    swap_var: bool = False,
    fewer: int = 0,
    alone: str = "",
    kind: Any = np.float64,
) -> Function:
    """Make a BatchNorm with these faults; the defaults make the right one.

    y_mean, y_var        y is normalized with a mixture of statistics; the share of the old running mean is y_mean *
                         momentum, and that of the old running variance is y_var * momentum
    swap_mean, swap_var  True if momentum is the share of the new value in the running mean (swap_mean) or the running
                         variance (swap_var)
    fewer                the running variance divides by m - fewer
    alone                the results that are wrong if a channel has a single value
    """

    def run(
        x: Any, s: Any, b: Any, running_mean: Any, running_var: Any, momentum: float = 0.9, eps: float = 1e-5
    ) -> Any:
        rows = _rows(x).astype(kind)
        m = rows.shape[1]
        of_mean = rows.sum(axis=1) / m
        of_var = np.square(rows - of_mean[:, None]).sum(axis=1) / m
        keep_mean, keep_var = 1 - momentum if swap_mean else momentum, 1 - momentum if swap_var else momentum
        mean = running_mean * np.float64(keep_mean) + of_mean * (1 - keep_mean)
        var = running_var * np.float64(keep_var) + of_var * m / max(m - fewer, 1) * (1 - keep_var)
        inside_mean = running_mean * y_mean * momentum + of_mean * (1 - y_mean * momentum)
        inside_var = running_var * y_var * momentum + of_var * (1 - y_var * momentum)
        xhat = (x - along_channels(inside_mean, x)) / np.sqrt(along_channels(inside_var, x) + eps)
        y = xhat * along_channels(s, x) + along_channels(b, x)
        if m == 1 and "y" in alone:
            y = x
        if m == 1 and "statistics" in alone:
            mean, var = running_mean, running_var
        if m == 1 and "NaN" in alone:
            var = np.full_like(var, np.nan)
        return y.astype(x.dtype), mean.astype(running_mean.dtype), var.astype(running_var.dtype)

    return run


def _stored(
    x: Any, s: Any, b: Any, running_mean: Any, running_var: Any, momentum: float = 0.9, eps: float = 1e-5
) -> Any:
    """Train with a fault: y is normalized with the old running statistics, not with the batch's statistics."""
    _, mean, var = batch_norm(x, s, b, running_mean, running_var, momentum, eps)
    old_mean, old_var = (along_channels(np.float64(v), x) for v in (running_mean, running_var))
    xhat = (x - old_mean) / np.sqrt(old_var + eps)
    y = xhat * along_channels(s, x) + along_channels(b, x)
    return y.astype(x.dtype), mean, var


def _group_norm(repeat: str = "each", squares: str = "", shifted: bool = False, in_order: bool = False) -> Function:
    """Make a GroupNorm with these faults; the defaults make the right one.

    repeat   how the scales of groups are repeated for the channels
    squares  if not empty, the variance is E[x^2] - E[x]^2; "clamped" replaces a negative variance by 0, "absolute" by
             its absolute value
    """

    def spread(v: Any, channels: int) -> Any:
        count = len(v)
        if count == channels or repeat == "each":
            return np.repeat(v, channels // count)
        if repeat == "tiled":
            return np.tile(v, channels // count)
        if repeat == "next":
            return np.repeat(np.roll(v, 1), channels // count)
        return np.full(channels, v[0])

    def run(x: Any, s: Any, b: Any, num_groups: int, eps: float = 1e-5) -> Any:
        kind = np.float32 if squares or in_order else np.float64
        groups = x.reshape(len(x), num_groups, -1).astype(kind)
        m = groups.shape[2]
        if squares:
            mean = groups.mean(axis=2, keepdims=True)
            total = np.square(groups).sum(axis=2, keepdims=True)
            var = (total - groups.sum(axis=2, keepdims=True) ** 2 / kind(m)) / kind(m) if squares == "sums" else (
                total / kind(m) - mean * mean
            )  # fmt: skip
            var = {"clamped": np.maximum(var, 0), "absolute": np.abs(var)}.get(squares, var)
            c = groups - mean
        else:
            shift = groups[:, :, :1] if shifted else kind(0)
            total = np.cumsum(groups - shift, axis=2)[:, :, -1:] if in_order else (groups - shift).sum(2, keepdims=True)
            c = (groups - shift) - total / kind(m)
            var = (c * c).mean(axis=2, keepdims=True)
        xhat = (c / np.sqrt(var + kind(eps))).reshape(x.shape)
        s, b = (along_channels(spread(v, x.shape[1]), x) for v in (s, b))
        return (xhat * s + b).astype(x.dtype)

    return run


def _layer_norm(
    axes: str = "to the last", rows: str = "all", kind: Any = np.float64, overflow: str = "", scaled: bool = False
) -> Function:
    """Make a LayerNorm with these faults; the defaults make the right one.

    axes, rows  which axes are normalized, and which rows of scale and bias are used
    kind        the type to compute in
    overflow    how squares that overflow are treated; scaled: True if x is divided by a power of two, so that no square
                overflows
    """

    def run(x: Any, s: Any, b: Any, axis: int = -1, eps: float = 1e-5) -> Any:
        first = axis % x.ndim
        over = {"to the last": tuple(range(first, x.ndim)), "one": (first,), "last": (-1,)}[axes]
        wide = x.astype(kind)
        power = kind(2.0) ** np.ceil(np.log2(max(np.abs(wide).max(), 1.0))) if scaled else kind(1)
        wide = wide / power
        c = wide - wide.mean(axis=over, keepdims=True)
        if overflow == "NaN":
            var = (wide * wide).mean(axis=over, keepdims=True)
            var = np.where(np.isinf(var), var - var, (c * c).mean(axis=over, keepdims=True))
        else:
            var = (c * c).mean(axis=over, keepdims=True)
        if overflow == "no variance":
            var = np.where(np.isinf(var), kind(0), var)
        if overflow == "largest":
            var = np.minimum(var, np.finfo(np.float32).max)
        xhat = c / np.sqrt(var + kind(eps) / power / power)
        if rows == "first":
            s, b = s.reshape(-1, s.shape[-1])[0], b.reshape(-1, b.shape[-1])[0]
        return (xhat * s + b).astype(x.dtype)

    return run


def _lp_norm(
    squares: Any = np.float64, sums: Any = np.float64, most: float = np.inf, signed: bool = False, guard: bool = True
) -> Function:
    """Make an LpNormalization with these faults; the defaults make the right one.

    squares, sums  the types of |x|^p and of their sum
    most           the largest value of a square; a larger square becomes this value
    """

    def run(x: Any, p: int = 2, axis: int = -1) -> Any:
        powers = (x if signed and p == 1 else np.abs(x)).astype(squares) ** p
        norm = np.minimum(powers, squares(most)).sum(axis=axis, keepdims=True, dtype=sums) ** (1 / p)
        if guard:
            norm = np.where(norm == 0, norm.dtype.type(1), norm)
        return (x / norm).astype(x.dtype)

    return run


RIGHT: Mapping[str, Function] = {
    "batch_norm": batch_norm, "group_norm": group_norm, "layer_norm": layer_norm, "lp_norm": lp_norm,
}  # fmt: skip
RIGHT_TOO: Mapping[str, Function] = {  # they round at other steps
    "batch_norm": _batch_norm(kind=np.longdouble),
    "group_norm": _group_norm(shifted=True),
    "layer_norm": _layer_norm(kind=np.longdouble),
    "lp_norm": _lp_norm(np.longdouble, np.longdouble),
}
SIBLINGS: Mapping[str, Mapping[str, Function]] = {
    "A": {
        "y with a blended mean": _batch_norm(y_mean=1),
        "y with a blended variance": _batch_norm(y_var=1),
        "y with the stored statistics": _stored,
    },
    "B": {
        "the running mean's momentum reversed": _batch_norm(swap_mean=True),
        "the running variance's momentum reversed": _batch_norm(swap_var=True),
        "momentum reversed, and m - 1": _batch_norm(swap_mean=True, swap_var=True, fewer=1),
    },
    "C": {
        "one value: y is x": _batch_norm(alone="y"),
        "one value: the statistics stay": _batch_norm(alone="statistics"),
        "one value: the running variance is NaN": _batch_norm(alone="NaN"),
    },
    "D": {
        "squares, a negative variance taken for 0": _group_norm(squares="clamped"),
        "squares, a negative variance made positive": _group_norm(squares="absolute"),
        "squares as sums": _group_norm(squares="sums"),
    },
    "E": {
        "scales of groups tiled": _group_norm(repeat="tiled"),
        "the first group's scale for all": _group_norm(repeat="first"),
        "the scale of the group before": _group_norm(repeat="next"),
    },
    "F": {
        "the last axis alone": _layer_norm(axes="last"),
        "the first row of the scale": _layer_norm(rows="first"),
        "one axis alone": _layer_norm(axes="one"),
    },
    "G": {
        "squares overflow: NaN": _layer_norm(kind=np.float32, overflow="NaN"),
        "squares overflow: no variance": _layer_norm(kind=np.float32, overflow="no variance"),
        "squares overflow: the largest number": _layer_norm(kind=np.float32, overflow="largest"),
    },
    "H": {
        "squares in 16 bits": _lp_norm(np.float16, np.float32),
        "squares that stop at 65504": _lp_norm(np.float64, np.float64, most=65504),
        "both in 16 bits, by powers": _lp_norm(np.float16, np.float16),
    },
}
NEIGHBOURS: Mapping[str, Mapping[str, Function]] = {
    "batch_norm": {"the running variance divides by m - 1, as PyTorch's": _batch_norm(fewer=1)},
    "group_norm": {"sums in order, in float32": _group_norm(in_order=True)},
    "layer_norm": {"float64 computed in float32": _layer_norm(kind=np.float32, scaled=True)},
    "lp_norm": {"p = 1 sums x, not |x|": _lp_norm(signed=True), "0 / 0 for zeros": _lp_norm(guard=False)},
}
