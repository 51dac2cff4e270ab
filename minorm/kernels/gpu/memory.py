"""Allocates output arrays on the current device from CuPy's pool, which reuses the memory of dead arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import cupy
import numpy as np

from minorm.kernels.order import is_dense


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """Allocate an array in C order; takes 3 microseconds of Python, cupy.empty 4."""
    dtype = np.dtype(dtype)
    return cupy.ndarray(shape, dtype, cupy.cuda.alloc(prod(shape) * dtype.itemsize))


def empty_like(x: Any, dtype: Any = None) -> Any:
    """Allocate an array in x's memory order; takes 3 microseconds, cupy.empty_like 7."""
    dtype = x.dtype if dtype is None else dtype
    if x.flags.c_contiguous:
        return empty(x.shape, dtype)
    if dtype != x.dtype or not is_dense(x):
        return cupy.empty_like(x, dtype)
    return cupy.ndarray(x.shape, dtype, cupy.cuda.alloc(x.nbytes), x.strides)


def empty_cache() -> None:
    """Give idle memory back to the driver."""
    cupy.get_default_memory_pool().free_all_blocks()


def statistics() -> dict[str, Any]:
    """Return the bytes in use and idle on the current device."""
    pool = cupy.get_default_memory_pool()
    return {"used_bytes": pool.used_bytes(), "idle_bytes": pool.free_bytes()}


def owned(view: Any) -> Any:
    """Return a gapless view as an array that is not a view, for memory that no other array uses any more.

    Otherwise a leaf's gradient would be copied: autograd copies views, because two leaves might share one.
    """
    return cupy.ndarray(view.shape, view.dtype, memptr=view.data)
