"""Allocates output arrays on the current device from CuPy's pool, which reuses the memory of freed arrays.

There is no cache of freed blocks in front of the pool: in Python, a look-up and a destructor take longer than the pool.
Most of the time of `empty` goes into the array. So memory that only kernels use comes from `scratch`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from minorm.kernels.order import is_dense, is_in_rows


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """Allocate an array in C order."""
    if isinstance(dtype, type):
        dtype = np.dtype(dtype)
    return cupy.ndarray(shape, dtype, cupy.cuda.alloc(prod(shape) * dtype.itemsize))


def empty_like(x: Any, dtype: Any = None) -> Any:
    """Allocate an array in x's memory order."""
    if is_in_rows(x):
        return empty(x.shape, x.dtype if dtype is None else dtype)
    if (dtype is not None and dtype != x.dtype) or not is_dense(x):
        return cupy.empty_like(x, dtype)
    return cupy.ndarray(x.shape, x.dtype, cupy.cuda.alloc(x.nbytes), x.strides)


def scratch(size: int) -> Any:
    """Allocate `size` bytes, and return where they start. This is an argument for kernels; `at` makes an array of it.

    It takes a third of the time of `empty`, since no array is made.
    """
    return cupy.cuda.alloc(size)


def at(start: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array in C order in the memory that starts at `start`, a result of `scratch` plus a number of bytes."""
    return cupy.ndarray(shape, dtype, start)


def zeros(count: int) -> Any:
    """Allocate `count` counters of type uint32, which are 0."""
    return cupy.zeros(count, np.uint32)


def empty_cache() -> None:
    """Give unused memory back to the driver."""
    cupy.get_default_memory_pool().free_all_blocks()


def statistics() -> dict[str, Any]:
    """Return how many bytes of the current device are in use, and how many are idle in the pool."""
    pool = cupy.get_default_memory_pool()
    return {"used_bytes": pool.used_bytes(), "idle_bytes": pool.free_bytes()}


def owned(view: Any) -> Any:
    """Return an array that is not a view but uses the memory of `view`. `view` has no gaps, and no other array may use
    it.

    Autograd copies views, since two leaves might share their memory. So a gradient that is a view would be copied.
    """
    return cupy.ndarray(view.shape, view.dtype, memptr=view.data)
