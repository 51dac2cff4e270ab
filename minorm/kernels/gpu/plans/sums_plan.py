"""Plans the launch for a stage of axis_sums.py, which sums the middle axis of (batches, rows, columns).

If there are only a few long sums, they are cut into chunks, and one more stage adds up the chunks. The plan, and so the
bits of the result, depends only on the shape. The module needs neither a device nor an array.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.axis_sums import Stage
from minorm.kernels.gpu import launch

BLOCK = 256
WARPS = 4  # the sums of a block whose teams are warps
SHORT = 1024  # the most accesses of a sum for a warp; longer sums take a block
BUSY = 1024  # the number of blocks that keeps a large device busy
LEAST = 8  # the fewest accesses of a thread in a chunk


class Plan(NamedTuple):
    """The launch of a kernel that computes one stage of a sum."""

    name: str  # the name of the kernel
    integer: np.dtype[Any]  # the type of indices
    width: int
    team: bool | int  # WARP for sum_rows, LANES for sum_columns
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
    """Return the number of rows in a chunk, a multiple of `step`, and the number of chunks, which is enough to keep a
    device busy.
    """
    wanted = max(1, min(-(-rows // (step * LEAST)), -(-BUSY // across), 65535))
    chunk = -(-rows // (wanted * step)) * step
    return chunk, -(-rows // chunk)
