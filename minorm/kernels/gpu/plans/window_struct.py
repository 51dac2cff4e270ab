"""Packs the windows of a pooling or a convolution into the struct of windows.cuh. This module needs no device."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

STRUCT = np.dtype([("axis", "i4", (3, 7)), ("plane", "i4"), ("results", "i4"), ("taps", "i4")])
LARGEST = 2**31 - 2**24  # the most elements of a plane, whose places have type int


@functools.lru_cache(maxsize=1024)
def packed(size: Ints, out: Ints, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Any:
    """Return the struct Windows, which always has three axes. Missing leading axes have length 1."""
    axes = [(1, 1, 1, 1, 0, 0, 1)] * (3 - len(size))
    axes += [
        (n, o, k, s, low, high, d)
        for n, o, k, s, (low, high), d in zip(size, out, kernel, stride, padding, dilation, strict=True)
    ]
    struct = np.zeros((), STRUCT)
    struct["axis"], struct["plane"], struct["results"], struct["taps"] = axes, prod(size), prod(out), prod(kernel)
    return struct


@functools.lru_cache(maxsize=1024)
def unknown(plane: int, results: int) -> Any:
    """Return the struct Windows if the options are unknown, so that each window may contain every element."""
    return packed((plane,), (results,), (plane + results + 1,), (1,), ((results, 0),), (1,))
