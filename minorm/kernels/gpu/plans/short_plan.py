"""Plans the kernels of norm_short.cu, which keep many short rows in shared memory. This module needs neither a device
nor an array.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.gpu.launch import blocks, index_type
from minorm.kernels.gpu.plans import norm_plan
from minorm.normalization.nest import Nest

THREADS, ROOM = 128, 16384  # of a block: threads, and bytes of each array
NARROW = 8  # bytes: rows are read in smaller accesses only if they are long


class Short(NamedTuple):
    """A grid of blocks that keep many short rows in shared memory; see norm_short.cu."""

    loops: Any  # the packed struct
    index: np.dtype[Any]  # type: ignore[assignment]  # hides tuple.index
    lanes: int  # the threads of a row
    runs: int  # of all rows: parts with one scale and one bias
    grid: tuple[int]
    block: tuple[int]


def short(nest: Nest, itemsize: int, aligned: bool) -> Short | None:
    """Return the grid, or None if accesses to rows are wide anyway, if rows are long or not next to each other in
    memory, or if scale or bias vary from neighbour to neighbour.
    """
    loops = norm_plan.of_statistics(nest)
    every, step = [*loops.kept, *loops.reduced], 1
    for loop in reversed(every):
        if loop.data != step:
            return None
        step *= loop.count
    if not aligned or not loops.reduced or loops.reduced[-1].param or len(loops.reduced) > 2:
        return None
    elements = loops.width(itemsize)
    if elements > 1 and elements * itemsize >= NARROW:
        return None
    fit, most = ROOM // (itemsize * loops.terms), THREADS
    rows = next((n for n in (most, most // 2, most // 4, most // 8, most // 16) if n <= fit), 0)
    if not rows:
        return None
    runs = loops.results * (loops.reduced[0].count if len(loops.reduced) == 2 else 1)
    index = index_type(max(norm_plan.size_of(nest), 2 * runs))
    grid = (blocks(loops.results, rows),)
    return Short(loops.packed(index), index, most // rows, runs, grid, (most,))
