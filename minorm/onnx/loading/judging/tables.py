"""Tensors that a formula made and no training did: tables of sines, filter banks, windows, masks, ranges, grids.

Most of these are found by one property. Along the right axis a sine, a cosine, a straight line, and a growth by one
factor all satisfy x[t+1] + x[t-1] = 2 c x[t], with one number c for each line. So do the rows of a Fourier basis, even
with a window over them, along the frequencies. Numbers that were trained never do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes

MASKED = -50.0  # added before a softmax, such a number means "not here"
LARGEST = 1 << 22  # elements; a larger tensor is no table
TOLERANCE = 2e-3  # of the largest number of a line: sines of large angles are rounded, 16-bit floats too
WINDOW = 8  # the shortest vector whose symmetry says something
BINARY = "zeros and ones"
FEW = 6  # different numbers in the kernels of fixed filters
_SHORT = (dtypes.float16, dtypes.bfloat16)
LINES = 16  # that are looked at first: they tell of most weights that they have no formula


def repeats(array: Any) -> bool:
    """Whether an axis in front, a batch, holds the same once for each sample: what was expanded to it."""
    return (
        array.ndim > 1
        and len(array) > 1
        and bool((array == array[:1]).all())
        and not is_all_equal(array)
        and not formula(array[:1])
    )


def is_all_equal(array: Any) -> bool:
    """Whether all numbers are the same."""
    return bool((array == array.flat[:1]).all())


def formula(array: Any) -> str:
    """What kind of formula made these numbers, in words; "" if none did."""
    if not _may_be_a_table(array):
        return ""
    return basis(array) or _progression(_core(array))


def basis(array: Any) -> str:
    """The same for what may stand where an operator has its weights, in which ranges and grids are not looked for."""
    if not _may_be_a_table(array):
        return ""
    if not np.isfinite(array).all():
        return "a mask: not all numbers are finite"
    if np.ptp(array) <= 1e-3 * float(abs(array).max()):  # a parameter that was hardly trained yet
        return ""
    values = _core(array)
    masked = values <= MASKED
    if masked.any() and not values[~masked].any():
        return "a mask of zeros and large negative numbers"
    with np.errstate(all="ignore"):
        if any(_is_wave(np.moveaxis(values, axis, -1)) for axis in range(values.ndim)):
            return "a table of sines and cosines"
        if any(_oscillates(np.moveaxis(values, axis, -1)) for axis in range(values.ndim)):
            return "a table of sines or cosines"
        if values.ndim == 1 and array.ndim != 1 and _is_symmetric(values):
            return "a symmetric filter"
        if values.ndim in (2, 3) and array.ndim > 2 and _is_blur(values):
            return "one symmetric filter for every channel"
        if values.ndim == 2 and any(_is_bank(x) for x in (values, values.T)):
            return "a bank of filters, each positive on one interval"
    return ""


def few_numbers(array: Any, times: int = 2) -> str:
    """What says that a program wrote these numbers down, where nothing says that they are weights; else "".

    times    how often each number comes, on average
    """
    if array.size < 4 or array.size > LARGEST or is_all_equal(array):
        return ""
    if ((array == 0) | (array == 1)).all():
        return BINARY
    if array.size < 8 * times or _is_broadcast(array):
        return ""
    count = len(np.unique(array))
    if count * times > array.size or (count > 64 and _is_rounded(array)):
        return ""
    return "few different numbers, repeated"


def _is_rounded(array: Any) -> bool:
    """Whether all numbers are of 16 bits, of which there are not many."""
    return any(bool((array.astype(short).astype(array.dtype) == array).all()) for short in _SHORT)


def fixed_filters(array: Any) -> str:
    """What says that the kernels of a convolution were written down: Sobel's, Laplace's, wavelets; else ""."""
    if not 9 <= array.size <= LARGEST or is_all_equal(array):
        return ""
    first = np.unique(array.reshape(-1)[:64])
    if len(first) > FEW or len(numbers := np.unique(array)) > FEW:
        return ""
    simple = bool((numbers * 256 == np.rint(numbers * 256)).all())
    return "filters of few different numbers" if simple or 4 * len(numbers) <= array.size else ""


def _may_be_a_table(array: Any) -> bool:
    return bool(array.ndim and 4 <= array.size <= LARGEST)


def _core(array: Any) -> Any:
    """The numbers in float64, without axes of length 1 and those along which all is the same."""
    values = np.squeeze(array)
    for axis in reversed(range(values.ndim)):
        first = values.take([0], axis)
        if values.shape[axis] > 1 and (values.take([1], axis) == first).all() and (values == first).all():
            values = first.squeeze(axis)
    return values.astype(np.float64)


def _is_broadcast(array: Any) -> bool:
    return _core(array).size < np.squeeze(array).size


# Waves and progressions


def _is_wave(values: Any) -> bool:
    """Sines beside their cosines, or behind them: sin^2 + cos^2 = 1; with a window, the same in every row."""
    n = values.shape[-1] if values.ndim else 0
    if n < 4 or n % 2:
        return False
    for x in (values[(0,) * (values.ndim - 1)], values):  # one row tells of most weights that they are none
        pairs = ((x[..., ::2], x[..., 1::2]), (x[..., : n // 2], x[..., n // 2 :]))
        if not any(bool((abs(a * a + b * b - 1) < 1e-3).all()) for a, b in pairs):
            return False
    return True


def _recurrent(lines: Any) -> Any:
    """The c of each line, where all satisfy x[t+1] + x[t-1] = 2 c x[t]; else None."""
    around, middle = lines[:, 2:] + lines[:, :-2], 2 * lines[:, 1:-1]
    scale = np.maximum((middle * middle).sum(1), np.finfo(np.float64).tiny)
    c = (around * middle).sum(1) / scale
    wrong = abs(around - c[:, None] * middle)
    most = abs(lines).max(1)
    return c if (wrong <= TOLERANCE * np.maximum(most, 1e-3 * most.max())[:, None]).all() else None


def _lines(values: Any, least: int) -> Any:
    """The lines along the last axis, if they are long and many enough to tell chance from a formula."""
    n = values.shape[-1] if values.ndim else 0
    if n < least:
        return None
    lines = values.reshape(-1, n)
    return lines if len(lines) * (n - 3) >= 6 else None


def _sampled(lines: Any) -> Any:
    """Some of the lines, and not only the first, which may be all zeros or ones."""
    return lines[:: max(1, len(lines) // LINES)]


def _all_recurrent(lines: Any) -> Any:
    if _recurrent(_sampled(lines)) is None:
        return None
    return _recurrent(lines)


def _oscillates(values: Any) -> bool:
    """Sines or cosines along the last axis, over all of it or each half of it, perhaps with other ends."""
    n = values.shape[-1] if values.ndim else 0
    for x in (values, values[..., 1:-1], values[..., : n // 2], values[..., 1 : n // 2 - 1]):
        lines = _lines(x, 5)
        c = None if lines is None else _all_recurrent(lines)
        if c is None:
            continue
        most = abs(lines).max(1)
        waves = (abs(c) < 0.99999) & (most > 1e-3 * most.max())
        turns = (lines[:, 1:] * lines[:, :-1] < 0).any(1) | _turns(lines)
        if not (waves & turns).any():
            continue
        if x.shape[-1] >= n - 2 or (n % 2 == 0 and _rest_is_recurrent(values[..., n // 2 :])):
            return True
    return False


def _turns(lines: Any) -> Any:
    """Whether a line goes up and down."""
    steps = np.diff(lines)
    return (steps[:, 1:] * steps[:, :-1] < 0).any(1)


def _rest_is_recurrent(values: Any) -> bool:
    for x in (values, values[..., 1:-1]):
        lines = _lines(x, 5)
        if lines is not None and _recurrent(lines) is not None:
            return True
    return False


def _progression(values: Any) -> str:
    """Numbers that grow by one step or one factor, over the whole or along an axis; powers of two."""
    if values.ndim == 0 or values.size < 4:
        return ""
    flat = values.reshape(-1)
    with np.errstate(all="ignore"):
        steps, factors = np.diff(flat), flat[1:] / flat[:-1]
        if any(bool((abs(d - d[0]) <= 1e-4 * abs(d[0])).all()) for d in (steps, factors)):
            return "numbers that grow by one step or one factor"
        if values.ndim == 1 and len(values) >= WINDOW and _is_symmetric(values):
            return "a symmetric window"
        for axis in range(values.ndim if values.ndim > 1 else 0):
            lines = _lines(np.moveaxis(values, axis, -1), 4)
            if lines is not None and _all_recurrent(lines) is not None:
                return "a grid, or numbers that grow by one step along an axis"
        powers = np.log2(flat) * 16
        if (flat > 0).all() and (abs(powers - np.rint(powers)) < 1e-3).all():
            return "powers of two"
    return ""


# Filters


def _is_symmetric(values: Any) -> bool:
    """Whether a vector is its mirror image, or is once its first number is left out: a window, a low-pass filter."""
    if len(values) < WINDOW:
        return False
    bound = 1e-5 * abs(values).max()
    return any(bool((abs(x - x[::-1]) <= bound).all()) and np.ptp(x) > 100 * bound for x in (values, values[1:]))


def _is_blur(filters: Any) -> bool:
    """One symmetric filter for every channel, which is no filter that was drawn."""
    first = filters if filters.ndim == 2 else filters[0]
    return bool((filters == first).all()) and all(bool((first == np.flip(first, axis)).all()) for axis in range(2))


def _is_bank(filters: Any) -> bool:
    """Rows that are positive on one interval, where they rise and fall, and 0 elsewhere: mel and other filter banks."""
    if min(filters.shape) < 3 or filters.shape[1] < 6 or not (filters >= 0).all():
        return False
    there = filters > 0
    if there.mean() > 0.5 or there.sum(1).max() < 2:
        return False
    edges = np.diff(there.astype(np.int8), axis=1, prepend=0)
    steps = np.diff(filters, axis=1, prepend=0, append=0)
    bound = 1e-6 * filters.max()
    falls = np.maximum.accumulate(steps < -bound, axis=1)
    return bool(((edges > 0).sum(1) <= 1).all() and not (falls & (steps > bound)).any())
