"""How kernels are launched: numbers of blocks and threads, the width of an access, the type of an index.

Plain arithmetic on sizes: nothing here needs a device, and no answer depends on one, so that the order of every sum,
and with it every bit, is the same on all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes

WARP = 32
ACCESS = 16  # bytes a thread reads at once where it can


def index_type(size: int) -> np.dtype[Any]:
    """int where every index, and one grid of threads beyond, fits into it; else long long."""
    return dtypes.int32 if size < 2**31 - 2**24 else dtypes.int64


def width(itemsize: int, *steps: int) -> int:
    """Elements that one access takes: the most that 16 bytes hold and that divide all these numbers; 8, 4, 2 or 1."""
    elements = ACCESS // itemsize
    while any(step % elements for step in steps):
        elements //= 2
    return elements


def is_aligned(*arrays: Any) -> bool:
    """Does every array that is there begin at a multiple of 16 bytes? CuPy's own memory does, views may not."""
    return all(array is None or array.data.ptr % ACCESS == 0 for array in arrays)


def blocks(items: int, threads: int) -> int:
    """Blocks of so many threads, one thread an item; one block at least, as CUDA refuses none."""
    return max(1, -(-items // threads))
