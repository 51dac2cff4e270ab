"""How a normalization runs on a GPU: which kernels, on how many blocks, with what loops. No device, no array.

    rows(of_statistics(nest), ...)    rows in registers: the grid, or None where they are too long
    walk(of_statistics(nest), ...)    the grid that goes through them by chunks

A nest becomes the `Loops` of a kernel (loops.cuh). Where the loop of unit step is reduced, threads of a *team* (a warp
or a block) walk along one row; where it is kept, they lie side by side on `lanes` of different rows. Rows that fit into
the registers of a team take one kernel; others are cut into chunks, of which there are enough to keep a large device
busy: how many depends on shapes alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.gpu.launch import WARP, blocks, index_type, width
from minorm.nest import Nest

BLOCK = 256  # threads of the kernels that walk through chunks
LANES, FEWEST_LANES = 32, 4  # threads side by side
UNROLL = 8  # packs a thread reads between two sums in double, as in the kernels
BUSY = 1024  # blocks that keep a large device busy
SHORT = 2048  # terms up to which a warp, not a block, walks along them
TEAM_THREADS = 1 << 16  # over all teams that each add up the gradients of scale and bias


class Loop(NamedTuple):
    """As in loops.cuh."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    data: int
    param: int
    row: int


class Loops(NamedTuple):
    """Loops in two groups, outer first, without those of one turn."""

    kept: tuple[Loop, ...]
    reduced: tuple[Loop, ...]

    @property
    def results(self) -> int:
        return prod(loop.count for loop in self.kept)

    @property
    def terms(self) -> int:
        return prod(loop.count for loop in self.reduced)

    @property
    def is_lanes(self) -> bool:
        """Is the loop of unit step a kept one?"""
        return bool(self.kept) and self.kept[-1].data == 1

    def width(self, itemsize: int) -> int:
        """Elements of one access: they must belong to one turn of the innermost loop."""
        inner = (self.kept if self.is_lanes else self.reduced)[-1:]
        if not inner or inner[0].data != 1 or (not self.is_lanes and inner[0].row):
            return 1
        return width(itemsize, inner[0].count, *[loop.data for loop in self.kept + self.reduced if loop.data != 1])

    def packed(self, index: np.dtype[Any]) -> Any:
        """The struct Loops of loops.cuh, to pass by value."""
        struct = np.zeros(
            (), [("kept", index, (4, 4)), ("reduced", index, (4, 4)), ("results", index), ("terms", index)]
        )
        for name, loops in zip(("kept", "reduced"), self, strict=True):
            struct[name] = [(1, 0, 0, 0)] * (4 - len(loops)) + list(loops)
        struct["results"], struct["terms"] = self.results, self.terms
        return struct


def loops_of(nest: Nest) -> list[Loop]:
    """The nest's loops that turn at all, kept before reduced, with their steps among the statistics."""
    steps = (nest.two_by_two[1].count, 1, 0, 0)
    return [Loop(*loop, row) for loop, row in zip(nest.two_by_two, steps, strict=True) if loop.count > 1]


def grouped(loops: Iterable[Loop], kept: Any) -> Loops:
    """The loops for which `kept` is true, and the others."""
    loops = list(loops)
    return Loops(tuple(loop for loop in loops if kept(loop)), tuple(loop for loop in loops if not kept(loop)))


def in_memory_order(loops: Iterable[Loop]) -> list[Loop]:
    return sorted(loops, key=lambda loop: -loop.data)


def of_statistics(nest: Nest) -> Loops:
    """One result a row of the nest."""
    return grouped(loops_of(nest), lambda loop: loop.row)


def of_parameters(nest: Nest) -> Loops:
    """One result an element of scale and bias."""
    return grouped(in_memory_order(loops_of(nest)), lambda loop: loop.param)


class Walk(NamedTuple):
    """A grid of teams over results and chunks of terms."""

    loops: Any  # packed
    index: np.dtype[Any]  # type: ignore[assignment]  # hides tuple.index
    width: int
    form: str  # "rows" or "lanes", the end of the kernels' names
    team: bool | int  # WARP for rows, threads side by side for lanes: the last template argument
    grid: tuple[int, int]
    block: tuple[int]
    chunk: Any  # terms of one chunk, in the index type
    results: int

    @property
    def chunks(self) -> int:
        return self.grid[1]


def walk(loops: Loops, size: int, itemsize: int, aligned: bool, elementwise: bool = False) -> Walk:
    """The grid that goes through all terms of all results; `elementwise`: nothing is added up, chunks may be short."""
    index = index_type(size)
    elements = loops.width(itemsize) if aligned else 1
    warp, lanes = False, LANES
    if loops.is_lanes:
        while lanes > FEWEST_LANES and lanes // 2 * elements >= loops.results:
            lanes //= 2
        step, block = BLOCK // lanes, BLOCK
        across = blocks(loops.results, lanes * elements)
    else:
        warp = loops.terms <= SHORT
        step, block = (WARP if warp else BLOCK) * elements, WARP * 4 if warp else BLOCK
        across = blocks(loops.results, 4) if warp else loops.results
    least = step * (1 if elementwise else UNROLL)
    chunks = max(1, min(-(-loops.terms // least), -(-BUSY // max(1, across)), 65535))
    chunk = -(-loops.terms // (chunks * step)) * step
    chunks = max(1, -(-loops.terms // max(1, chunk)))
    form, team = ("lanes", lanes) if loops.is_lanes else ("rows", warp)
    return Walk(
        loops.packed(index), index, elements, form, team, (max(1, across), chunks), (block,), index.type(chunk),
        loops.results,
    )  # fmt: skip


class Rows(NamedTuple):
    """A grid of teams that have whole rows in their registers."""

    loops: Any
    index: np.dtype[Any]  # type: ignore[assignment]  # hides tuple.index
    width: int
    packs: int  # E of the kernels: accesses a thread makes in a row
    warp: bool
    grid: tuple[int]
    block: tuple[int]
    teams: int


def rows(
    loops: Loops, size: int, itemsize: int, aligned: bool, most_packs: int, most_threads: int, together: bool = False
) -> Rows | None:
    """None where a row does not fit, or where there are no rows; `together`: a team takes several rows, and adds up."""
    if loops.is_lanes:
        return None
    elements = loops.width(itemsize) if aligned else 1
    accesses = -(-loops.terms // elements)
    warp = accesses <= WARP * most_packs
    threads = WARP
    while not warp and threads * min(4, most_packs) < accesses and threads < most_threads:
        threads *= 2
    packs = 1
    while packs * threads < accesses:
        packs *= 2
    if packs > most_packs:
        return None
    teams = loops.results
    if together:
        teams = max(1, min(-(-teams // 4), TEAM_THREADS // threads))
    teams_a_block = 4 if warp else 1
    grid = blocks(teams, teams_a_block)
    index = index_type(size)
    return Rows(
        loops.packed(index), index, elements, packs, warp, (grid,), (threads * teams_a_block,), grid * teams_a_block
    )


def fits_param_columns(nest: Nest) -> bool:
    """Is there one scale for each column, and the same for every row?"""
    kept, reduced = of_statistics(nest)
    return all(not loop.param for loop in kept) and all(loop.param for loop in reduced) and nest.param_size > 1


def has_runs(nest: Nest) -> bool:
    """Is the scale constant along what a sum's inner loop walks?"""
    loops = of_statistics(nest)
    if loops.is_lanes:
        return all(not loop.param for loop in loops.reduced)
    return not loops.reduced or not loops.reduced[-1].param


class Runs(NamedTuple):
    """One pass over the data for two sums: runs, then what adds them up to statistics and to parameters."""

    runs: Loops
    to_rows: Loops
    to_parameters: Loops


def runs(nest: Nest) -> Runs:
    """A run is a row where scale and bias are constant along it; else a turn of all loops but the innermost one."""
    loops = of_statistics(nest)
    inner = loops.reduced[-1:] if any(loop.param for loop in loops.reduced) else loops.reduced
    outer = [loop for loop in loops.kept + loops.reduced if loop not in inner]
    step, numbered = 1, []
    for loop in reversed(outer):
        numbered.append(loop._replace(data=step))
        step *= loop.count
    numbered.reverse()
    return Runs(
        Loops(tuple(outer), inner),
        grouped(numbered, lambda loop: loop.row),
        grouped(numbered, lambda loop: loop.param),
    )
