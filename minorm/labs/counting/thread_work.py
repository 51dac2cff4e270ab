"""Counts what each thread of a Cython kernel reads and writes while it runs (thread_work.h says how)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

MOST = 64  # threads
KINDS = ("read", "loads", "places", "pauses", "shared")


def counted(module: Any, call: Callable[[int], Any], x: Any, threads: int, patience: float) -> tuple[Any, Any]:
    """Run the kernel call `call(address)` with the address of x; return its answer, and a row for each thread.

    The kernel is from a module of build_counted.

    The columns are named in KINDS: elements of x that the thread read, numbers that it loaded from any address,
    addresses outside its stack to which it wrote, its pauses, and the pauses in which other threads read. patience: the
    seconds for which threads wait for each other before their first element.
    """
    library = ctypes.CDLL(module.__file__)
    library.counts_begin.argtypes = (*[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int, ctypes.c_double)
    library.counts_end.argtypes = (ctypes.c_void_p,)
    shown, opened, rows = np.zeros_like(x), np.zeros(x.size, np.uint8), np.zeros((MOST, len(KINDS)), np.int64)
    library.counts_begin(shown.ctypes.data, x.ctypes.data, opened.ctypes.data, x.size, threads, patience)
    try:
        answer = call(shown.ctypes.data)
    finally:
        library.counts_end(rows.ctypes.data)
    return answer, rows[rows[:, 0] > 0]
