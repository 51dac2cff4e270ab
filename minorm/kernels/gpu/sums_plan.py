"""How sums over some axes become launches: no device, no array.

    x (32, 64, 56, 56) over (0, 2, 3)        32 added, 64 kept, 3136 added
    first                                    2048 batches, 3136 rows, 1 column     -> 32 x 64
    then                                     1 batch, 32 rows, 64 columns          -> 64

Each stage sums the middle axis of (batches, rows, columns). Where there are few long sums a stage is cut into chunks,
and the sums of the chunks are a stage more. All of that depends on the shape alone, and so do the bits of the result.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.gpu import launch

Stage = tuple[int, int, int]  # batches, rows, columns

BLOCK = 256
WARPS = 4  # sums of a block whose teams are warps
SHORT = 1024  # accesses up to which a warp, not a block, walks along a sum
BUSY = 1024  # blocks that keep a large device busy
LEAST = 8  # accesses of a thread that are worth a chunk


@functools.lru_cache(maxsize=4096)
def stages(shape: tuple[int, ...], summed: frozenset[int]) -> tuple[Stage, ...]:
    """How an array in C order is summed: neighbouring axes merge, and the last of the summed ones goes first."""
    loops: list[tuple[int, bool]] = []
    for axis, length in enumerate(shape):
        if length == 1:
            continue
        before, kind = loops.pop() if loops and loops[-1][1] == (axis in summed) else (1, axis in summed)
        loops.append((before * length, kind))
    found = []
    while any(kind for _, kind in loops):
        last = max(i for i, (_, kind) in enumerate(loops) if kind)
        rows, _ = loops.pop(last)
        found.append((prod(n for n, _ in loops[:last]), rows, prod(n for n, _ in loops[last:])))
    return tuple(found) or ((prod(shape), 1, 1),)


class Plan(NamedTuple):
    """One launch."""

    name: str  # of the kernel
    integer: np.dtype[Any]  # of indices
    width: int
    team: bool | int  # WARP of sum_rows, LANES of sum_columns
    sizes: tuple[int, ...]  # what the kernel takes before the arrays
    grid: tuple[int, int]
    block: tuple[int]

    @property
    def chunks(self) -> int:
        return self.grid[1]


@functools.lru_cache(maxsize=4096)
def plan(stage: Stage, itemsize: int, aligned: bool) -> Plan:
    """The launch for a stage; its result is (batches, chunks, columns)."""
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
    """(rows of a chunk, a multiple of `step`; number of chunks), enough to keep a device busy."""
    wanted = max(1, min(-(-rows // (step * LEAST)), -(-BUSY // across), 65535))
    chunk = -(-rows // (wanted * step)) * step
    return chunk, -(-rows // chunk)
