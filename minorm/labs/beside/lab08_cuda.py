"""Lab 8: launches the student's compiled kernels, in a process without the student's Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.labs.cuda import KernelError


def normalized(program: Any, x: Any, mean: Any, rstd: Any, threads: int) -> list[Any]:
    """Run the kernel `normalize`. Return y, and what each thread did."""
    y = np.full(x.shape, np.nan, np.float32)
    program.launch("normalize", len(x), threads, x, mean, rstd, y, x.shape[1], seed=threads)
    return [y, program.work]


def worked(program: Any, x: Any, changed_shuffle: int = -1) -> list[Any]:
    """Run the kernel `each`, one block per row of x.

    Return the sum and the work of each thread, the number of barriers, and a race if there was one.
    """
    y = np.full(x.shape, np.nan, np.float32)
    barriers = program.launch("each", *x.shape, x, y, changed_shuffle=changed_shuffle)
    return [y, program.work, barriers, program.race]


def block_sums(program: Any, kernel: str, x: Any, seeds: int = 1, may_fail: bool = False) -> list[Any]:
    """Run the kernel once for each seed, one block per row of x; return [sums, barriers, race] for each seed.

    may_fail: if the kernel raises a KernelError, return its message in place of the sums
    """
    found: list[Any] = []
    for seed in range(seeds):
        y = np.full((*x.shape, 2 if kernel == "twice" else 1), np.nan, np.float32)
        try:
            barriers = program.launch(kernel, *x.shape, x, y, seed=seed)
        except KernelError as error:
            if not may_fail:
                raise
            found.append([str(error), 0, program.race])
        else:
            found.append([y, barriers, program.race])
    return found


def row_moments(program: Any, x: Any, threads: int, seeds: int) -> list[Any]:
    """Run the kernel `moments` once for each seed.

    Return its three results for each row (k, d and var), each thread's work, and a race if there was one.
    """
    found = []
    for seed in range(seeds):
        places = np.full((3, len(x)), np.nan, np.float32)
        program.launch("moments", len(x), threads, x, *places, x.shape[1], seed=seed)
        found.append(places)
    return [found, program.work, program.race]
