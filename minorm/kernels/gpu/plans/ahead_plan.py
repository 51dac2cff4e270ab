"""Plans norm_ahead.cu: the backward pass of rows whose columns have separate scales. The next row waits in shared
memory. This module needs neither a device nor an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.kernels.gpu.plans import cluster_plan, norm_plan
from minorm.normalization.nest import Nest

Type = np.dtype[Any]

TEAM_THREADS = 3 << 15  # threads of all blocks, if a thread takes 80 registers; otherwise norm_plan.TEAM_THREADS
COLUMNS = 16  # columns of a thread that takes 80 registers
STAGES = 2  # rows in shared memory: this one and the next one


def rows(
    nest: Nest, storage: Type, compute: Type, aligned: bool, packs: int, most_threads: int, relu: bool
) -> tuple[norm_plan.Rows, int] | None:
    """Return the grid and the bytes of shared memory, or None if other kernels take these rows.

    A thread keeps as many `packs` as in row_backward. It keeps twice as many if a block would be so large that no other
    block fits on its multiprocessor, or if the largest block is too small for a row.
    """
    if len(norm_plan.of_statistics(nest).kept) != 1:
        return None
    few, many = (_grid(nest, storage, compute, aligned, most, most_threads, relu) for most in (packs, 2 * packs))
    alone = few is None or few[0].block[0] == most_threads
    return many if many and alone and (few is None or many[1] <= cluster_plan.MOST // 2) else few


def _grid(
    nest: Nest, storage: Type, compute: Type, aligned: bool, packs: int, most_threads: int, relu: bool
) -> tuple[norm_plan.Rows, int] | None:
    loops, size = norm_plan.of_statistics(nest), norm_plan.size_of(nest)
    how = loops, size, storage.itemsize, aligned, packs, most_threads, True
    grid = norm_plan.rows(*how)
    if grid is None or grid.lanes:
        return None
    narrow = compute.itemsize == grid.index.itemsize == 4 and grid.packs * grid.width <= COLUMNS
    if narrow and grid.turns == 1 and grid.block[0] < most_threads:
        grid = norm_plan.rows(*how, TEAM_THREADS) or grid
    access = grid.width * storage.itemsize
    shared = STAGES * (2 + relu) * grid.packs * access * grid.block[0]
    return (grid, shared) if access >= cluster_plan.COPIED and shared <= cluster_plan.MOST else None
