"""Allocates output arrays from a pool, which reuses the memory of tensors that were freed.

    y = memory.empty(shape, dtype)     # as np.empty, but 64-byte aligned and usually in used memory
    y = memory.empty_like(x)           # the same for x's shape, type and memory order

The operating system zeroes a page of fresh memory at the first access. For a large tensor this takes up to ten times as
long as the arithmetic, and every training step allocates the same sizes again. The memory returns to the pool when its
last array or view is freed, in any thread. The pool keeps at most `statistics()["limit_bytes"]` bytes of unused memory.
Above this limit, the memory that has been unused the longest is returned to the system. `empty_cache()` returns all
unused memory.
"""

from __future__ import annotations

import os
from typing import Any

import minorm_ext

_pool: Any = minorm_ext.kernels("memory", "baseline")  # the pool has only this build

empty = _pool.empty
empty_like = _pool.empty_like
empty_cache = _pool.empty_cache
statistics = _pool.statistics
set_limit = _pool.set_limit


def _memory_of_this_process() -> int:
    """Return the memory of the machine in bytes, or the limit of the container if this limit is lower."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max") as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):  # no such file, or the word "max"
        return total


set_limit(_memory_of_this_process() // 4)
