"""Allocates output arrays on the current device from CuPy's pool, which reuses the memory of freed arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from minorm.kernels.order import is_dense


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """Allocate an array in C order. This takes 3 microseconds of Python; cupy.empty takes 4."""
    dtype = np.dtype(dtype)
    return cupy.ndarray(shape, dtype, cupy.cuda.alloc(prod(shape) * dtype.itemsize))


def empty_like(x: Any, dtype: Any = None) -> Any:
    """Allocate an array in x's memory order. This takes 3 microseconds; cupy.empty_like takes 7."""
    dtype = x.dtype if dtype is None else dtype
    if x.flags.c_contiguous:
        return empty(x.shape, dtype)
    if dtype != x.dtype or not is_dense(x):
        return cupy.empty_like(x, dtype)
    return cupy.ndarray(x.shape, dtype, cupy.cuda.alloc(x.nbytes), x.strides)


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
