"""Chooses the parameters of launches: numbers of blocks and threads, the width of an access, the type of an index.

This is arithmetic on sizes, which does not depend on the device. So the order of every sum, and every bit, is the same
on all devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes

WARP = 32
ACCESS = 16  # bytes that a thread reads together if possible


def index_type(size: int) -> np.dtype[Any]:
    """Return int if it holds every index, even those up to one grid of threads beyond the end; else long long."""
    return dtypes.int32 if size < 2**31 - 2**24 else dtypes.int64


def width(itemsize: int, *steps: int) -> int:
    """Return the number of elements in one access, 8, 4, 2 or 1: the largest that fits into 16 bytes and divides all
    `steps`.
    """
    elements = ACCESS // itemsize
    while any(step % elements for step in steps):
        elements //= 2
    return elements


def is_aligned(*arrays: Any) -> bool:
    """Does every array that is not None begin at a multiple of 16 bytes? Memory from CuPy does, but a view may not."""
    return all(array is None or array.data.ptr % ACCESS == 0 for array in arrays)


def blocks(items: int, threads: int) -> int:
    """Return the number of blocks that have one thread for each item, but at least 1, because CUDA refuses 0."""
    return max(1, -(-items // threads))
