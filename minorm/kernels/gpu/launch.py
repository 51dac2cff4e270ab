"""Chooses the parameters of launches: the number of blocks and threads, the width of an access, and the index type.

All of these are computed from sizes only, not from properties of the device. One property counts elsewhere: some plans
exist only for devices with clusters (plans/norm_cluster.py). So the order of every sum, and every bit, is the same on
all devices with clusters, and the same on all devices without.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes

WARP = 32
ACCESS = 16  # bytes that a thread reads together if possible


def index_type(size: int) -> np.dtype[Any]:
    """Return the type int if it can hold the indices of `size` elements. Otherwise return the type long long.

    The last thread's index may be up to one grid of threads beyond the last element.
    """
    return dtypes.int32 if size < 2**31 - 2**24 else dtypes.int64


def width(itemsize: int, *steps: int) -> int:
    """Return the number of elements in one access: the largest of 8, 4, 2 and 1 that divides all `steps`. An access has
    at most 16 bytes.
    """
    elements = ACCESS // itemsize
    while any(step % elements for step in steps):
        elements //= 2
    return elements


def is_aligned(*arrays: Any) -> bool:
    """Return True if every array that is not None starts at a multiple of 16 bytes, as memory from CuPy does."""
    addresses = 0
    for array in arrays:
        if array is not None:
            addresses |= array.data.ptr
    return addresses % ACCESS == 0


def blocks(items: int, threads: int) -> int:
    """Return the number of blocks that have one thread for each item, but at least 1, because CUDA refuses 0."""
    return max(1, -(-items // threads))
