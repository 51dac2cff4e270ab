"""Plans the kernels relay_forward and relay_backward, which read each tile of lanes twice in one launch. The second
time a tile comes from the second-level cache. This module needs neither a device nor an array.

A tile is the lanes of a block, with all their terms: the channels of some images, if channels come last. Rows lie
within tiles, as those of InstanceNorm and GroupNorm do.
"""

from __future__ import annotations

from typing import NamedTuple

from minorm.kernels.gpu.launch import index_type
from minorm.kernels.gpu.plans import norm_plan

FEWEST_TILES = 8
BLOCKS = 256  # blocks with sums whose tickets come before those that wait for them
NEAR = 24 << 20  # bytes between the first and the second time that a tile is read
PACKS = {1: 16, 2: 8, 3: 4}  # accesses of a thread to each array, by the number of arrays that are read twice


class Relay(NamedTuple):
    """A grid whose blocks take the sums and the results of tiles in turn."""

    walk: norm_plan.Walk
    tiles: int
    lag: int  # the tiles between the first and the second time
    columns: int  # neighbouring lanes that belong to one row

    @property
    def grid(self) -> tuple[int]:
        return (2 * self.tiles * self.walk.chunks,)


def relay(loops: norm_plan.Loops, size: int, itemsize: int, aligned: bool, computed: int, arrays: int) -> Relay | None:
    """Return the grid, or None if rows are not neighbouring lanes, or if the cache cannot keep the tiles in between."""
    if not loops.is_lanes or not loops.one_row or not loops.terms or not all(loop.count for loop in loops.kept):
        return None
    found, columns = norm_plan.walk(loops, size, itemsize, aligned, computed=computed), loops.columns
    lanes = int(found.team) * found.width
    if columns & (columns - 1) or lanes % columns or found.grid[0] < FEWEST_TILES:
        return None
    chunk = norm_plan.BLOCK // int(found.team) * PACKS[arrays]
    chunks, tiles = -(-loops.terms // chunk), found.grid[0]
    lag = min(tiles, -(-BLOCKS // chunks))
    if lag * lanes * loops.terms * itemsize * arrays > NEAR:
        return None
    index = index_type(max(size, 2 * chunks * loops.results))
    walk = found._replace(loops=loops.packed(index), index=index, grid=(tiles, chunks), chunk=index.type(chunk))
    return Relay(walk, tiles, lag, columns)
