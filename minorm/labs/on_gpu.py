"""Runs students' CUDA on a GPU through CuPy, with the same text as on the CPU, and measures its speed.

Results on a GPU do not show that a barrier is missing, because the results may be right by chance. minorm/labs/cuda.py
finds missing barriers.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minorm import devices
from minorm.labs.cuda import KERNEL

ELEMENTS = 1 << 25  # that a measurement reads: more than caches hold
ROUNDS = 20


class OnGpu:
    """Compiles CUDA text for the GPU; raises RuntimeError if there is no GPU or no CuPy."""

    def __init__(self, *pieces: str) -> None:
        self.library = devices.library()
        source = "\n".join(pieces)
        kernels = [name for name, _ in KERNEL.findall(source)]
        self.module = self.library.RawModule(code=source, options=("-std=c++17",), name_expressions=kernels)

    def launch(self, name: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Start a kernel on GPU arrays. Numbers of Python are passed as C's int and float."""
        kinds = {int: np.int32, float: np.float32}
        narrow = [kinds[type(value)](value) if type(value) in kinds else value for value in arguments]
        self.module.get_function(name)((blocks,), (threads,), tuple(narrow))

    def run(self, name: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Run a kernel on NumPy arrays, which it changes in place, as on the CPU (minorm.labs.cuda.Program.launch)."""
        moved = [self.library.asarray(value) if isinstance(value, np.ndarray) else value for value in arguments]
        self.launch(name, blocks, threads, *moved)
        for value, there in zip(arguments, moved, strict=True):
            if isinstance(value, np.ndarray):
                value[...] = self.library.asnumpy(there)


def gigabytes(program: OnGpu, lengths: Sequence[int], threads: int, elements: int = ELEMENTS) -> list[float]:
    """Return the GB/s of the kernel moments(x, k, d, var, m) for each row length.

    Each row gets one block. Only the bytes of x are counted, and each byte is counted once.
    """
    xp = program.library
    x = xp.ones(elements, xp.float32)
    found = []
    for length in lengths:
        blocks = elements // length
        k, d, var = (xp.zeros(blocks, xp.float32) for _ in range(3))
        launch = functools.partial(program.launch, "moments", blocks, threads, x, k, d, var, length)
        seconds = _seconds(xp, launch)
        found.append(4e-9 * elements / seconds)
    return found


def copying(elements: int = ELEMENTS) -> float:
    """Return the GB/s of copying an array, which is the fastest that the memory allows.

    The bytes read and the bytes written are both counted.
    """
    xp = devices.library()
    x, y = xp.ones(elements, xp.float32), xp.ones(elements, xp.float32)
    return 8e-9 * elements / _seconds(xp, lambda: xp.copyto(y, x))


def _seconds(xp: Any, function: Callable[[], Any]) -> float:
    """Return the seconds of one call, among many that the GPU runs in a row."""
    function()
    best = float("inf")
    for _ in range(3):
        xp.cuda.Device().synchronize()
        start = time.perf_counter()
        for _ in range(ROUNDS):
            function()
        xp.cuda.Device().synchronize()
        best = min(best, (time.perf_counter() - start) / ROUNDS)
    return best
