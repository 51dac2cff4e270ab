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
from minorm.normalization.nest import Nest

BLOCK = 256  # threads of the kernels that walk through chunks
LANES, FEWEST_LANES = 32, 4  # threads side by side
BATCH, ELEMENTS_BATCH = 8, 4  # packs a thread has on their way, where it adds up and where it does not
LANE_WIDTH = 4  # elements of a thread whose lanes have their own statistics, and those take registers
FEWEST_TERMS = 16  # of a column, for which its sums are worth writing down
LINE = 128  # bytes that memory gives at once
USUAL_PACKS = 4  # of a row, where a larger team can have it
IN_FLOAT = 128  # terms of a lane that a thread adds up in float
BUSY = 4096  # blocks that keep a large device busy
FEW, FEWEST = 1024, 512  # the same where lanes have setting up to do, or each block writes down a part of most results
SHORT = 1024  # accesses up to which a warp, not a block, walks along a row
TEAM_THREADS = 1 << 16  # over all teams that take rows in turn: what a large device has registers for
SPLITS = (1, 8, 32, 128)  # threads that share the parts of one result
SERIAL = 16  # parts that one of them adds up, where that is enough
LARGEST_TEAM = {4: 1024, 8: 512}  # by the bytes of an index: wide ones take registers, of which a block has 65,536


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
    def columns(self) -> int:
        """Results that one row of the statistics has: see `side_by_side`."""
        return prod(loop.count for loop in self.kept if not loop.row) if any(loop.row for loop in self.kept) else 1

    @property
    def is_lanes(self) -> bool:
        """Is the loop of unit step a kept one?"""
        return bool(self.kept) and self.kept[-1].data == 1

    @property
    def one_row(self) -> bool:
        """Do all terms of a result share their statistics?"""
        return all(not loop.row for loop in self.reduced)

    @property
    def one_param(self) -> bool:
        """Do they share scale and bias?"""
        return all(not loop.param for loop in self.reduced)

    @property
    def turns(self) -> int:
        """Reduced loops that a cursor keeps count of."""
        return next(n for n in (1, 2, 4) if len(self.reduced) <= n)

    def width(self, itemsize: int) -> int:
        """Elements of one access: along a row they must belong to one turn of the innermost loop, as their scales do.

        Side by side they may go on through kept loops without a gap, where each finds its own scale.
        """
        group = self.kept if self.is_lanes else self.reduced
        loop = group[-1] if group else None
        if loop is None or loop.data != 1 or loop.param not in (0, 1) or (not self.is_lanes and loop.row):
            return 1
        length, along, own_scales = loop.count, [loop], loop.param == 1
        for loop in reversed(group[:-1] if self.is_lanes and self.one_param else ()):
            if loop.data == length:
                along.append(loop)
                length *= loop.count
        others = [loop for loop in self.kept + self.reduced if loop not in along]
        scales = [loop.param for loop in others] if own_scales else []
        return width(itemsize, length, *[loop.data for loop in others], *scales)

    def side_by_side(self, itemsize: int) -> Loops:
        """The same with a result for each turn of the innermost loop as well, where that makes longer accesses.

        So the columns of one row are results of their own, and lie beside those of the next one: the pixels of 7 x 7
        images, or the channels of a group where they come last.
        """
        *outer, loop = self.reduced or (None,)
        if self.is_lanes or loop is None or loop.data != 1 or not self.kept or not all(each.row for each in self.kept):
            return self
        found = Loops((*self.kept, loop), tuple(outer))
        if len(self.kept) > 3 or found.terms < FEWEST_TERMS or not found.one_param:
            return self
        short = loop.count * itemsize < LINE
        return found if short or min(LANE_WIDTH, found.width(itemsize)) > self.width(itemsize) else self

    def packed(self, index: np.dtype[Any], wanted: bool = True) -> Any:
        """The struct Loops of loops.cuh, to pass by value; without a result where nobody wants any."""
        numbers = [(name, index) for name in ("results", "terms", "statistics")]
        fields = [("kept", index, (4, 4)), ("reduced", index, (4, 4)), *numbers, ("part", np.float64)]
        struct = np.zeros((), np.dtype(fields, align=True))
        for name, loops in zip(("kept", "reduced"), self, strict=True):
            struct[name] = [(1, 0, 0, 0)] * (4 - len(loops)) + list(loops)
        struct["results"], struct["terms"] = self.results if wanted else 0, self.terms
        struct["statistics"] = self.results // self.columns
        struct["part"] = 1 / max(1, self.terms * self.columns)
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


def size_of(nest: Nest) -> int:
    """What every index is below: elements, or the four rows of the statistics."""
    return max(nest.columns, 4) * nest.rows


def registers_of_an_index(nest: Nest) -> int:
    """2 where the tensor is so large that indices are wide; kernels keep fewer elements then."""
    return index_type(size_of(nest)).itemsize // 4


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
    team: bool | int  # WARP for rows, threads side by side for lanes
    turns: int  # reduced loops that a cursor keeps count of: 1, 2 or 4
    ragged: bool  # lanes of an access belong to several turns of the loops outside the innermost kept one
    grid: tuple[int, int]
    block: tuple[int]
    chunk: Any  # terms of one chunk, in the index type
    results: int

    @property
    def chunks(self) -> int:
        return self.grid[1]

    @property
    def shape(self) -> tuple[Any, ...]:
        """The template arguments that all kernels of a form begin with."""
        return self.index, self.width, self.team, self.turns


def walk(
    loops: Loops, size: int, itemsize: int, aligned: bool, elementwise: bool = False, lanes_busy: int = FEW
) -> Walk:
    """The grid that goes through all terms of all results; `elementwise`: nothing is added up."""
    elements = loops.width(itemsize) if aligned else 1
    warp, lanes = False, LANES
    if loops.is_lanes:
        elements = min(elements, LANE_WIDTH)
        while lanes > FEWEST_LANES and lanes // 2 * elements >= loops.results:
            lanes //= 2
        step, block = BLOCK // lanes, BLOCK
        across = blocks(loops.results, lanes * elements)
    else:
        warp = -(-loops.terms // elements) <= SHORT
        step, block = (WARP if warp else BLOCK) * elements, WARP * 4 if warp else BLOCK
        across = blocks(loops.results, 4) if warp else loops.results
    least = step * (ELEMENTS_BATCH if elementwise else BATCH)
    wanted = min(-(-(lanes_busy if loops.is_lanes else BUSY) // max(1, across)), SERIAL * SPLITS[-1])
    if loops.is_lanes and not elementwise:
        wanted = max(wanted, -(-loops.terms // (step * IN_FLOAT)))
    chunks = max(1, min(-(-loops.terms // least), wanted, 65535))
    chunk = -(-loops.terms // (chunks * step)) * step
    chunks = max(1, -(-loops.terms // max(1, chunk)))
    form, team = ("lanes", lanes) if loops.is_lanes else ("rows", warp)
    ragged = loops.is_lanes and loops.kept[-1].count % elements != 0
    index = index_type(max(size, 0 if elementwise else 2 * chunks * loops.results))
    return Walk(
        loops.packed(index), index, elements, form, team, loops.turns, ragged, (max(1, across), chunks), (block,),
        index.type(chunk), loops.results,
    )  # fmt: skip


class Rows(NamedTuple):
    """A grid of teams that have whole rows in their registers."""

    loops: Any
    index: np.dtype[Any]  # type: ignore[assignment]  # hides tuple.index
    width: int
    packs: int  # E of the kernels: accesses a thread makes in a row
    lanes: int  # threads of a team that is a part of a warp, or all of it; 0: a block
    turns: int  # as of a Walk
    same: bool  # scale and bias, for a whole row
    grid: tuple[int]
    block: tuple[int]


def rows(
    loops: Loops, size: int, itemsize: int, aligned: bool, most_packs: int, most_threads: int, together: bool = False
) -> Rows | None:
    """None where a row does not fit, or where there are no rows; `together`: a team adds up over its rows.

    A team is the smallest that has the row in USUAL_PACKS accesses a thread; the largest may need `most_packs`. Teams
    that add up begin at `most_packs`: threads with more columns hide more of the time that sums take.
    """
    if loops.is_lanes:
        return None
    elements = loops.width(itemsize) if aligned else 1
    accesses = -(-loops.terms // elements)
    few = most_packs if most_packs < USUAL_PACKS or together else USUAL_PACKS
    threads = FEWEST_LANES
    while threads * few < accesses and threads < most_threads:
        threads *= 2
    packs = 1
    while packs * threads < accesses:
        packs *= 2
    if packs > most_packs:
        return None
    lanes = threads if threads <= WARP else 0
    teams_a_block = 4 * WARP // lanes if lanes else 1
    teams = max(1, min(-(-loops.results // 4), TEAM_THREADS // threads)) if together else loops.results
    grid = blocks(teams, teams_a_block)
    index = index_type(max(size, 2 * grid * loops.terms if together else 0, loops.results + teams))
    block = (threads * teams_a_block,)
    return Rows(loops.packed(index), index, elements, packs, lanes, loops.turns, loops.one_param, (grid,), block)


class Columns(NamedTuple):
    """A grid of threads that each keep some columns and walk up rows that are too long for registers."""

    loops: Any
    index: np.dtype[Any]  # type: ignore[assignment]
    width: int
    grid: tuple[int, int]
    block: tuple[int]
    chunk: Any  # rows of one chunk, in the index type

    @property
    def chunks(self) -> int:
        return self.grid[1]


def columns(nest: Nest, itemsize: int, aligned: bool) -> Columns | None:
    """None unless each column has a scale of its own, and rows are one loop."""
    loops = of_statistics(nest)
    if not fits_param_columns(nest) or loops.is_lanes or len(loops.kept) > 1:
        return None
    elements = loops.width(itemsize) if aligned else 1
    across = blocks(-(-loops.terms // elements), BLOCK)
    chunks = max(1, min(-(-loops.results // (2 * BATCH)), -(-FEW // across)))
    chunk = -(-loops.results // chunks)
    chunks = -(-loops.results // chunk)
    index = index_type(max(size_of(nest), 2 * chunks * loops.terms))
    return Columns(loops.packed(index), index, elements, (across, chunks), (BLOCK,), index.type(chunk))


class Merge(NamedTuple):
    """A grid that adds up the parts of results: merge.cuh."""

    splits: int  # threads a result
    grid: tuple[int]
    block: tuple[int]


def merge(results: int, parts: int) -> Merge:
    """As few threads a result as have SERIAL parts each, 128 at most; they meet in a knockout."""
    splits = next((n for n in SPLITS if parts <= SERIAL * n), SPLITS[-1])
    side = 256 // splits if splits < 32 else 8 if splits < 128 else 4
    return Merge(splits, (blocks(results, side),), (splits * side,))


def team(terms: int, index: np.dtype[Any]) -> int:
    """Threads that add up so many parts of a run: a warp, or a block."""
    return next((threads for threads in (WARP, BLOCK) if terms <= SERIAL * threads), LARGEST_TEAM[index.itemsize])


def fits_param_columns(nest: Nest) -> bool:
    """Is there one scale for each column, and the same for every row?"""
    kept, reduced = of_statistics(nest)
    return all(not loop.param for loop in kept) and all(loop.param for loop in reduced) and nest.param_size > 1


def has_runs(nest: Nest) -> bool:
    """Is there a reduced loop along which the scale is constant?"""
    loops = of_statistics(nest)
    return not loops.reduced or any(not loop.param for loop in loops.reduced)


class Runs(NamedTuple):
    """One pass over the data for two sums: runs, then what adds them up to statistics and to parameters."""

    runs: Loops
    to_rows: Loops
    to_parameters: Loops

    def in_chunks(self, chunks: int) -> Runs:
        """With partial sums of runs, (chunks, runs), in their place."""
        if chunks == 1:
            return self
        chunk = Loop(chunks, self.runs.results, 0, 0)
        return self._replace(
            to_rows=self.to_rows._replace(reduced=(chunk, *self.to_rows.reduced)),
            to_parameters=self.to_parameters._replace(reduced=(chunk, *self.to_parameters.reduced)),
        )


def runs(nest: Nest, itemsize: int = 0) -> Runs:
    """A run is all turns of the reduced loops along which scale and bias are constant, for one turn of the others.

    With an itemsize it may be one turn of the innermost of them, side by side with the next: see `side_by_side`.
    """
    loops = of_statistics(nest)
    inner = tuple(loop for loop in loops.reduced if not loop.param)
    outer = [loop for loop in loops.kept + loops.reduced if loop not in inner]
    if itemsize and len(outer) == len(loops.kept):
        apart = Loops(tuple(outer), inner).side_by_side(itemsize)
        outer, inner = list(apart.kept), apart.reduced
    step, number = 1, {}
    for loop in reversed(in_memory_order(outer)):
        number[loop] = step
        step *= loop.count
    numbered = [loop._replace(data=number[loop]) for loop in outer]
    return Runs(
        Loops(tuple(in_memory_order(outer)), inner),
        grouped(numbered, lambda loop: loop.row),
        grouped(numbered, lambda loop: loop.param),
    )
