"""Tensors that a program computed and no training made: masks, positions as sines, ranges, frequencies, blurs.

PyTorch's older exporter writes Parameters and float buffers alike, as `path.name`. Two things tell them apart, where
they can be told apart at all: what a buffer holds is often a table with a formula, and a module's buffers follow its
Parameters, so that whatever comes after one buffer of a module is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from minorm.devices import dtypes

MASKED = -50.0  # added before a softmax, such a number means "not here"
BUFFERS = frozenset(
    (*(f"{kind}_{name}" for kind in ("running", "moving", "pixel", "image") for name in ("mean", "var", "std")),)
) | {"mean", "std", "moving_variance", "num_batches_tracked", "anchors", "anchor_grid", "noise_const", "inv_freq"}
LARGEST = 1 << 22  # elements; a larger tensor is no table


def is_named_as_buffer(name: str) -> bool:
    """Whether a tensor is called as statistics are, of a norm or of images, or as a table of no known formula."""
    return name.rpartition(".")[2] in BUFFERS


def buffers(initializers: Mapping[str, Any]) -> set[str]:
    """The tensors, in the order of the file, that are buffers of PyTorch's modules for certain."""
    found, closed = set(), set()
    for name, array in initializers.items():
        if ":" in name:  # the exporter's own
            continue
        module, _, last = name.rpartition(".")
        if last in ("weight", "bias") and f"{module}.running_mean" in initializers:  # a scripted module's come last
            continue
        if not dtypes.is_float(array.dtype) or module in closed or is_named_as_buffer(name) or is_table(array):
            found.add(name)
            closed.add(module)
    return found


def repeats(array: Any) -> bool:
    """Whether an axis in front, a batch, holds the same once for each sample: what was expanded to it."""
    return (
        array.ndim > 2
        and len(array) > 1
        and bool((array == array[:1]).all())
        and not (array == array.flat[:1]).all()
        and not is_table(array[:1])
    )


def is_table(array: Any) -> bool:
    """Whether a formula made these numbers."""
    if array.ndim == 0 or not 4 <= array.size <= LARGEST:
        return False
    if not np.isfinite(array).all():
        return True
    values = np.squeeze(array).astype(np.float64)
    if np.ptp(values) <= 1e-3 * abs(values).max():  # a parameter that was hardly trained yet
        return False
    masked = values <= MASKED
    if masked.any() and not values[~masked].any():
        return True
    with np.errstate(all="ignore"):
        return (
            any(_is_wave(np.moveaxis(values, axis, -1)) for axis in range(values.ndim))
            or _is_range(values)
            or (values.ndim in (2, 3) and array.ndim > 2 and _is_blur(values))
        )


def _is_wave(values: Any) -> bool:
    """Sines beside their cosines, or behind them: sin^2 + cos^2 = 1."""
    n = values.shape[-1]
    if n < 4 or n % 2:
        return False
    for x in (values[(0,) * (values.ndim - 1)], values):  # one row tells of most weights that they are none
        pairs = ((x[..., ::2], x[..., 1::2]), (x[..., : n // 2], x[..., n // 2 :]))
        if not any(bool((abs(a * a + b * b - 1) < 1e-3).all()) for a, b in pairs):
            return False
    return True


def _is_range(values: Any) -> bool:
    """Numbers that grow by one step, or by one factor."""
    if values.ndim != 1:
        return False
    steps, factors = np.diff(values), values[1:] / values[:-1]
    return any(bool((abs(d - d[0]) <= 1e-4 * abs(d[0])).all()) for d in (steps, factors))


def _is_blur(filters: Any) -> bool:
    """One symmetric filter for every channel, which is no filter that was drawn."""
    first = filters if filters.ndim == 2 else filters[0]
    return bool((filters == first).all()) and all(bool((first == np.flip(first, axis)).all()) for axis in range(2))
