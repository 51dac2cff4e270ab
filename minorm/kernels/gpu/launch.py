"""Chooses the parameters of launches: numbers of blocks and threads, the width of an access, the type of an index.

This is plain arithmetic on sizes, which needs no device and depends on none. So the order of every sum, and every bit,
is the same on all devices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes

WARP = 32
ACCESS = 16  # bytes a thread reads at once where it can


def index_type(size: int) -> np.dtype[Any]:
    """Return int if it holds every index, and one grid of threads beyond; else long long."""
    return dtypes.int32 if size < 2**31 - 2**24 else dtypes.int64


def width(itemsize: int, *steps: int) -> int:
    """Return the elements of one access, 8, 4, 2 or 1: the most that fit in 16 bytes and divide all these numbers."""
    elements = ACCESS // itemsize
    while any(step % elements for step in steps):
        elements //= 2
    return elements


def is_aligned(*arrays: Any) -> bool:
    """Does every array that is not None begin at a multiple of 16 bytes? CuPy's own memory does, views may not."""
    return all(array is None or array.data.ptr % ACCESS == 0 for array in arrays)


def blocks(items: int, threads: int) -> int:
    """Return the number of blocks with one thread for each item; at least one, because CUDA refuses 0."""
    return max(1, -(-items // threads))
