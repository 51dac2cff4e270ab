"""Plans the launch for a stage of axis_sums.py, which sums the middle axis of (batches, rows, columns).

A few long sums are cut into chunks, and one more stage adds up the chunks. The plan, and so the bits of the result,
depend on the shape alone. The module needs no device and no array.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.axis_sums import Stage
from minorm.kernels.gpu import launch

BLOCK = 256
WARPS = 4  # sums of a block whose teams are warps
SHORT = 1024  # accesses, at most, for which a warp and not a block walks along a sum
BUSY = 1024  # blocks that keep a large device busy
LEAST = 8  # accesses of a thread, at least, in a chunk


class Plan(NamedTuple):
    """One launch."""

    name: str  # of the kernel
    integer: np.dtype[Any]  # of indices
    width: int
    team: bool | int  # WARP of sum_rows, LANES of sum_columns
    sizes: tuple[int, ...]  # the kernel's arguments before the arrays
    grid: tuple[int, int]
    block: tuple[int]

    @property
    def chunks(self) -> int:
        return self.grid[1]


@functools.lru_cache(maxsize=4096)
def plan(stage: Stage, itemsize: int, aligned: bool) -> Plan:
    """Return the launch for a stage; its result is (batches, chunks, columns)."""
    batches, rows, columns = stage
    integer = launch.index_type(batches * rows * columns)
    if columns == 1:
        width = launch.width(itemsize, rows) if aligned else 1
        warp = -(-rows // width) <= SHORT
        across = launch.blocks(batches, WARPS if warp else 1)
        step = (launch.WARP if warp else BLOCK) * width
        chunk, chunks = _chunks(rows, step, across)
        block = launch.WARP * WARPS if warp else BLOCK
        return Plan("sum_rows", integer, width, warp, (batches, rows, chunk), (across, chunks), (block,))
    width = launch.width(itemsize, columns) if aligned else 1
    lanes = 1
    while lanes < launch.WARP and lanes * width < columns:
        lanes *= 2
    tiles = launch.blocks(columns, lanes * width)
    chunk, chunks = _chunks(rows, BLOCK // lanes, batches * tiles)
    return Plan(
        "sum_columns", integer, width, lanes, (rows, columns, tiles, chunk), (batches * tiles, chunks), (BLOCK,)
    )


def _chunks(rows: int, step: int, across: int) -> tuple[int, int]:
    """Return the rows of a chunk, a multiple of `step`, and the number of chunks, enough to keep a device busy."""
    wanted = max(1, min(-(-rows // (step * LEAST)), -(-BUSY // across), 65535))
    chunk = -(-rows // (wanted * step)) * step
    return chunk, -(-rows // chunk)
