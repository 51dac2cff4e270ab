"""Recognize tensors made by a formula, not by training: tables of sines, filter banks, windows, masks, ranges, grids.

One equation finds most of these tensors: x[t+1] + x[t-1] = 2 c x[t], where c is the same for all t. Along the right
axis, the equation holds for a sine, a cosine, a straight line, and numbers that grow by one factor. Along the
frequencies, it also holds for the rows of a Fourier basis, even if a window multiplies the rows. It never holds for
trained numbers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import dtypes

MASKED = -50.0  # a number of at most this, added before a softmax, means "not here"
LARGEST = 1 << 22  # elements; a larger tensor is not a table
TOLERANCE = 2e-3  # of a line's largest number; sines of large angles and 16-bit floats have rounding errors
WINDOW = 8  # the shortest vector whose symmetry means something
BINARY = "zeros and ones"
FEW = 6  # the most different numbers in the kernels of fixed filters
LINES = 16  # the number of lines to look at first; for most weights they show that there is no formula
SAMPLE = 256  # the count of numbers to look at first
SMALL = 1 << 12  # the most elements of a tensor that we look at completely


def repeats(array: Any) -> bool:
    """Return True for an expanded tensor: its first axis, a batch, repeats the same numbers for each sample."""
    return (
        array.ndim > 1
        and len(array) > 1
        and bool((array[:2] == array[:1]).all() and (array == array[:1]).all())
        and not is_all_equal(array)
        and not formula(array[:1])
    )


def is_all_equal(array: Any) -> bool:
    """Return whether all numbers are the same."""
    return _is_all(array, array.flat[:1])


def _is_all(array: Any, number: Any) -> bool:
    flat = array.reshape(-1)
    return bool((flat[:SAMPLE] == number).all() and (flat == number).all())


def formula(array: Any) -> str:
    """Return the kind of formula that made these numbers, in words; "" if they have no formula."""
    if not _may_be_a_table(array):
        return ""
    return basis(array) or ("" if _has_hardly_moved(array) else _progression(_core(array)))


def basis(array: Any) -> str:
    """Return the formula of a tensor that may be an operator's weight; ranges and grids are not formulas here."""
    if not _may_be_a_table(array):
        return ""
    found = "" if _is_mixed(array) else _masks(array)
    if not found and _has_hardly_moved(array):
        return ""
    values = _core(array)
    with np.errstate(all="ignore"):
        found = found or _waves(values)
        if found or _is_mixed(array):
            return found
        values = values.astype(np.float64)
        if values.ndim == 1 and array.ndim != 1 and _is_symmetric(values):
            return "a symmetric filter"
        if values.ndim in (2, 3) and array.ndim > 2 and _is_blur(values):
            return "one symmetric filter for every channel"
        if values.ndim == 2 and any(_is_bank(x) for x in (values, values.T)):
            return "a bank of filters, each positive on one interval"
    return ""


def _masks(array: Any) -> str:
    if not np.isfinite(array).all():
        return "a mask: not all numbers are finite"
    masked = array <= MASKED
    return "a mask of zeros and large negative numbers" if masked.any() and not array[~masked].any() else ""


def is_binary(array: Any) -> bool:
    """Return whether all numbers are 0 or 1, and both occur."""
    flat = array.reshape(-1)
    zeros_and_ones = all(bool(((x == 0) | (x == 1)).all()) for x in (flat[:SAMPLE], flat))
    return array.size >= 4 and zeros_and_ones and not is_all_equal(array)


def few_numbers(array: Any, times: int = 2) -> str:
    """Return why a program may have written these numbers; "" if they look like weights.

    times    how often each number must occur on average
    """
    if array.size < 4 or array.size > LARGEST or is_all_equal(array):
        return ""
    if is_binary(array):
        return BINARY
    if array.size < 8 * times or _is_broadcast(array):
        return ""
    count = len(np.unique(array))
    if count * times > array.size or (count > 64 and _is_rounded(array)):
        return ""
    return "few different numbers, repeated"


def _is_rounded(array: Any) -> bool:
    """Return True if all numbers fit into 16 bits; so few such numbers exist that repetitions prove nothing."""
    return any(bool((array.astype(short).astype(array.dtype) == array).all()) for short in dtypes.HALVES)


def _has_hardly_moved(array: Any) -> bool:
    """Return True if all numbers are nearly equal, as in a parameter that began with ones and has hardly trained."""
    sample = _sample(array)
    return bool(np.ptp(sample) <= 1e-3 * float(abs(sample).max()))


def fixed_filters(array: Any) -> str:
    """Return why the kernels of a convolution look fixed (Sobel, Laplace, wavelets); "" if they look trained."""
    if not 9 <= array.size <= LARGEST or is_all_equal(array):
        return ""
    if len(np.unique(array.reshape(-1)[:SAMPLE])) > FEW or len(numbers := np.unique(array)) > FEW:
        return ""
    simple = bool((numbers * 256 == np.rint(numbers * 256)).all())
    return "filters of few different numbers" if simple or 4 * len(numbers) <= array.size else ""


# A first look, which is enough for most weights


def _may_be_a_table(array: Any) -> bool:
    return bool(array.ndim and 4 <= array.size <= LARGEST)


def _sample(array: Any) -> Any:
    """Return some of the numbers, or all numbers if the tensor is small."""
    flat = array.reshape(-1)
    return flat if flat.size <= SMALL else flat[:: flat.size // SAMPLE]


def _is_mixed(array: Any) -> bool:
    """Return whether a large tensor has both signs and only finite, nonzero numbers, so it is no mask or filter."""
    if array.size <= SMALL:
        return False
    sample = _sample(array)
    return bool(np.isfinite(sample).all() and sample.all() and (sample > 0).any() and (sample < 0).any())


def _core(array: Any) -> Any:
    """Remove the axes of length 1 and the axes along which all numbers are the same; return the rest."""
    values = np.squeeze(array)
    for axis in reversed(range(values.ndim)):
        first = values.take([0], axis)
        if values.shape[axis] > 1 and (values.take([1], axis) == first).all() and (values == first).all():
            values = first.squeeze(axis)
    return values


def _is_broadcast(array: Any) -> bool:
    return _core(array).size < np.squeeze(array).size


# Waves and progressions


def _waves(values: Any) -> str:
    if any(_is_wave(np.moveaxis(values, axis, -1)) for axis in range(values.ndim)):
        return "a table of sines and cosines"
    if any(_oscillates(values, axis) for axis in range(values.ndim)):
        return "a table of sines or cosines"
    return ""


def _is_wave(values: Any) -> bool:
    """Return True if the numbers are pairs of a sine and a cosine of one angle, so that sin^2 + cos^2 = 1.

    The two numbers of a pair are neighbours on the last axis, or one is in the first half and one in the second half.
    """
    n = values.shape[-1] if values.ndim else 0
    if n < 4 or n % 2:
        return False
    for x in (values[(0,) * (values.ndim - 1)], values):  # one row excludes most weights
        x = x.astype(np.float64)
        pairs = ((x[..., ::2], x[..., 1::2]), (x[..., : n // 2], x[..., n // 2 :]))
        if not any(bool((abs(a * a + b * b - 1) < 1e-3).all()) for a, b in pairs):
            return False
    return True


def _lines(values: Any, axis: int, most: int | None = None) -> Any:
    """Return the lines of numbers along an axis, in float64: all lines, or about `most` lines.

    The lines come from all parts of the tensor, because its first lines may be all zeros.
    """
    others = [n for i, n in enumerate(values.shape) if i != axis]
    count = math.prod(others)
    if most is None or count <= most:
        return np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis]).astype(np.float64)
    places = [np.unravel_index(i, others) for i in range(0, count, max(1, count // most))]
    return np.stack([values[(*at[:axis], slice(None), *at[axis:])] for at in places]).astype(np.float64)


def _recurrent(lines: Any) -> Any:
    """Return the c of each line if all lines satisfy x[t+1] + x[t-1] = 2 c x[t]; else None."""
    around, middle = lines[:, 2:] + lines[:, :-2], 2 * lines[:, 1:-1]
    scale = np.maximum((middle * middle).sum(1), np.finfo(np.float64).tiny)
    c = (around * middle).sum(1) / scale
    wrong = abs(around - c[:, None] * middle)
    most = abs(lines).max(1)
    return c if (wrong <= TOLERANCE * np.maximum(most, 1e-3 * most.max())[:, None]).all() else None


def _oscillates(values: Any, axis: int) -> bool:
    """Return True if the numbers along an axis are sines or cosines.

    The axis may also have two halves, with waves in each half. The numbers at the two ends may differ from the waves.
    """
    n, count = values.shape[axis], values.size // values.shape[axis]
    halves = [slice(0, n // 2), slice(1, n // 2 - 1)] if n % 2 == 0 else []
    for part in (slice(0, n), slice(1, n - 1), *halves):
        length = part.stop - part.start
        if length < 5 or count * (length - 3) < 6:  # too few to tell a formula from chance
            continue
        if _recurrent(_lines(values, axis, LINES)[:, part]) is None:
            continue
        lines = _lines(values, axis)
        c = _recurrent(lines[:, part])
        if c is not None and _has_waves(lines[:, part], c) and (length >= n - 2 or _ends_alike(lines[:, n // 2 :])):
            return True
    return False


def _has_waves(lines: Any, c: Any) -> bool:
    """Return True if some lines go up and down; lines that grow by a step or a factor do not."""
    most = abs(lines).max(1)
    steps = np.diff(lines)
    turns = (lines[:, 1:] * lines[:, :-1] < 0).any(1) | (steps[:, 1:] * steps[:, :-1] < 0).any(1)
    return bool(((abs(c) < 0.99999) & (most > 1e-3 * most.max()) & turns).any())


def _ends_alike(lines: Any) -> bool:
    return any(x.shape[1] >= 5 and _recurrent(x) is not None for x in (lines, lines[:, 1:-1]))


def _progression(values: Any) -> str:
    """Find numbers that grow by one step or one factor (in the whole tensor or along an axis), or powers of two."""
    if values.ndim == 0 or values.size < 4:
        return ""
    flat = values.reshape(-1)
    with np.errstate(all="ignore"):
        if _grows(flat[: SAMPLE + 1]) and _grows(flat):
            return "numbers that grow by one step or one factor"
        if values.ndim == 1 and len(values) >= WINDOW and _is_symmetric(values.astype(np.float64)):
            return "a symmetric window"
        for axis in range(values.ndim if values.ndim > 1 else 0):
            n = values.shape[axis]
            if n < 4 or values.size // n * (n - 3) < 6 or _recurrent(_lines(values, axis, LINES)) is None:
                continue
            if _recurrent(_lines(values, axis)) is not None:
                return "a grid, or numbers that grow by one step along an axis"
        if (flat > 0).all():
            powers = np.log2(flat.astype(np.float64)) * 16
            if (abs(powers - np.rint(powers)) < 1e-3).all():
                return "powers of two"
    return ""


def _grows(flat: Any) -> bool:
    numbers = flat.astype(np.float64)
    steps, factors = np.diff(numbers), numbers[1:] / numbers[:-1]
    return any(bool((abs(d - d[0]) <= 1e-4 * abs(d[0])).all()) for d in (steps, factors))


# Filters


def _is_symmetric(values: Any) -> bool:
    """Return True if a vector, perhaps without its first number, is symmetric: a window or a low-pass filter."""
    if len(values) < WINDOW:
        return False
    bound = 1e-5 * abs(values).max()
    return any(bool((abs(x - x[::-1]) <= bound).all()) and np.ptp(x) > 100 * bound for x in (values, values[1:]))


def _is_blur(filters: Any) -> bool:
    """Return whether every channel has the same symmetric filter; random filters differ."""
    first = filters if filters.ndim == 2 else filters[0]
    return bool((filters == first).all()) and all(bool((first == np.flip(first, axis)).all()) for axis in range(2))


def _is_bank(filters: Any) -> bool:
    """Return True for a mel or other filter bank: each row rises and falls on one interval and is 0 elsewhere."""
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
