"""Output arrays on the current device: CuPy's pool serves them, and keeps what dies for the next of its size."""

from __future__ import annotations

from typing import Any

import cupy

empty = cupy.empty
empty_like = cupy.empty_like


def empty_cache() -> None:
    """Give idle memory back to the driver."""
    cupy.get_default_memory_pool().free_all_blocks()


def statistics() -> dict[str, Any]:
    """Bytes in use and idle, of the current device."""
    pool = cupy.get_default_memory_pool()
    return {"used_bytes": pool.used_bytes(), "idle_bytes": pool.free_bytes()}


def owned(view: Any) -> Any:
    """The elements of a view without gaps as an array of its own: for memory that is nobody else's any more.

    A gradient that is a view is copied before it becomes a leaf's, as two leaves might share it otherwise.
    """
    return cupy.ndarray(view.shape, view.dtype, memptr=view.data)
