"""Lab 7: calls the student's compiled kernels, in a process without the student's Python.

The judge measures the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.compiling import CHUNK
from minorm.labs.counting import thread_work


def summed(kernels: Any, function: str, x: Any) -> Any:
    """Call a kernel with the address and the size of x."""
    return getattr(kernels, function)(x.ctypes.data, x.size)


def shared(kernels: Any, x: Any, threads: list[int], repeats: int = 1) -> list[float]:
    """Call parallel_sum with each number of threads, `repeats` times."""
    found = []
    for count in threads:
        for _ in range(repeats):
            partial = np.full(x.size // CHUNK + 20, np.nan)
            found.append(kernels.parallel_sum(x.ctypes.data, x.size, partial.ctypes.data, count))
    return found


def merged(kernels: Any, x: Any, threads: list[int]) -> list[Any]:
    """Call parallel_moments with each number of threads."""
    found = []
    for count in threads:
        places = np.full(2 * (x.size // CHUNK + 2), np.nan)
        found.append(kernels.parallel_moments(x.ctypes.data, x.size, places.ctypes.data, count))
    return found


def nothing(kernels: Any) -> None:
    """Do nothing: the kernels are already compiled when this function is called."""


def counted(kernels: Any, function: str, x: Any, threads: int, patience: float) -> list[Any]:
    """Run a kernel with several threads. Return its answer, and what each thread did (see thread_work.py)."""
    places = np.full(2 * (x.size // CHUNK + 20), np.nan)

    def call(address: int) -> Any:
        return getattr(kernels, function)(address, x.size, places.ctypes.data, threads)

    return list(thread_work.counted(kernels, call, x, threads, patience))


def repeated(kernels: Any, function: str, size: int, places: Any, values: Any, threads: int = 0) -> Any:
    """Call a kernel repeatedly on one array. The array begins as ones, and one element is changed before each call.

    So a kernel cannot reuse an earlier answer, and the judge knows every sum. If `threads` is not 0, the function also
    gets a buffer and the number of threads.
    """
    x, left = np.ones(size, np.float32), np.empty(size // CHUNK + 1)
    more = (left.ctypes.data, threads) if threads else ()
    call, found = getattr(kernels, function), []
    for place, value in zip(places.tolist(), values.tolist(), strict=True):
        x[place] = value
        found.append(call(x.ctypes.data, size, *more))
    return found
