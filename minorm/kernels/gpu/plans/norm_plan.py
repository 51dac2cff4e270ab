"""Plans a normalization on a GPU: its kernels, blocks and loops. This module needs neither a device nor an array.

    rows(of_statistics(nest), ...)    the grid for rows in registers, or None if rows are too long
    walk(of_statistics(nest), ...)    the grid that goes through rows in chunks

A nest becomes the `Loops` of a kernel (loops.cuh). If the kernel reduces over the loop with step 1, the threads of a
*team* (a warp or a block) work on one row together. If that loop is kept, neighbouring threads (`lanes`) work on
different rows. Rows that fit into the registers of a team take one kernel. Longer rows are cut into enough chunks to
keep a large device busy. The number of chunks depends only on the shapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.gpu.launch import WARP, blocks, index_type, width
from minorm.normalization.nest import Nest

BLOCK = 256  # threads in a block of the kernels that go through chunks
LANES, FEWEST_LANES = 32, 4  # the most and the fewest threads side by side
BATCH, ELEMENTS_BATCH = 8, 4  # packs that each thread loads together, with sums and without
LANE_BYTES = 32  # widened bytes of a thread whose lanes have separate statistics; these need registers
WIDE = 4  # elements of an access that is wide enough for rows
FEWEST_TERMS = 16  # the fewest terms of a column whose sums are written to memory
LINE = 128  # bytes of one memory transaction
USUAL_PACKS = 4  # packs of a row, if a larger team can take it
IN_FLOAT = 128  # the terms of a lane that a thread adds up in float
BUSY = 4096  # the number of blocks that keeps a large device busy
FEW, FEWEST = 1024, 512  # the same if lanes need a setup, or if each block writes parts of most results
SHORT = 1024  # the most accesses of a row for a warp; longer rows take a block
TEAM_THREADS = 1 << 16  # threads of all teams that take rows in turn, as the registers of a large device allow
SPLITS = (1, 8, 32, 128)  # threads that share the parts of one result
SERIAL = 16  # parts that each of these threads adds up, if that is enough
# The most threads of a block, by the bytes of a number or of an index: wide ones take more of its 65,536 registers.
MOST_THREADS = {4: 1024, 8: 512}


class Loop(NamedTuple):
    """A loop, as in loops.cuh."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    data: int
    param: int
    row: int


class Loops(NamedTuple):
    """The kept loops and the reduced loops of a kernel. Outer loops are first, and loops of one turn are left out."""

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
        """The number of results that belong to one row of the statistics; see `side_by_side`."""
        return prod(loop.count for loop in self.kept if not loop.row) if any(loop.row for loop in self.kept) else 1

    @property
    def is_lanes(self) -> bool:
        """True if the loop with step 1 is a kept loop."""
        return bool(self.kept) and self.kept[-1].data == 1

    @property
    def one_row(self) -> bool:
        """True if all terms of a result have the same statistics."""
        return all(not loop.row for loop in self.reduced)

    @property
    def one_param(self) -> bool:
        """True if all terms of a result have the same scale and bias."""
        return all(not loop.param for loop in self.reduced)

    @property
    def turns(self) -> int:
        """The number of reduced loops, rounded up to 1, 2 or 4, as the kernel's cursor counts them."""
        return next(n for n in (1, 2, 4) if len(self.reduced) <= n)

    def width(self, itemsize: int) -> int:
        """Return the number of elements in one access. If a team reads along a row, the elements and scales of an
        access belong to one turn of the innermost loop.

        If the innermost loop is kept, an access may continue through further kept loops without a gap, and each element
        has a separate index of its scale.
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
        """Return the loops with a separate result for each turn of the innermost loop, if this makes accesses longer.

        The columns of one row then become separate results, next to the columns of the next row. Examples of such
        columns are the pixels of 7 x 7 images, or the channels of a group if channels come last.
        """
        *outer, loop = self.reduced or (None,)
        if self.is_lanes or loop is None or loop.data != 1 or not self.kept or not all(each.row for each in self.kept):
            return self
        found = Loops((*self.kept, loop), tuple(outer))
        if len(self.kept) > 3 or found.terms < FEWEST_TERMS or not found.one_param:
            return self
        short = loop.count * itemsize < LINE
        return found if short or min(WIDE, found.width(itemsize)) > self.width(itemsize) else self

    def packed(self, index: np.dtype[Any], wanted: bool = True) -> Any:
        """Return the struct Loops of loops.cuh, which is passed by value. With wanted=False it has 0 results."""
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
    """Return the nest's loops of more than one turn, with their steps in the statistics. Kept loops come first."""
    steps = (nest.two_by_two[1].count, 1, 0, 0)
    return [Loop(*loop, row) for loop, row in zip(nest.two_by_two, steps, strict=True) if loop.count > 1]


def grouped(loops: Iterable[Loop], kept: Any) -> Loops:
    """Return Loops in which the loops with kept(loop) are kept and the others are reduced."""
    loops = list(loops)
    return Loops(tuple(loop for loop in loops if kept(loop)), tuple(loop for loop in loops if not kept(loop)))


def in_memory_order(loops: Iterable[Loop]) -> list[Loop]:
    return sorted(loops, key=lambda loop: -loop.data)


def size_of(nest: Nest) -> int:
    """Return an upper bound of all indices, both of elements and of the statistics' block with its four rows."""
    return max(nest.columns, 4) * nest.rows


def registers_of_an_index(nest: Nest) -> int:
    """Return 2 if the tensor is so large that indices need 64 bits, else 1. With 2, kernels keep fewer elements."""
    return index_type(size_of(nest)).itemsize // 4


def of_statistics(nest: Nest) -> Loops:
    """Return the loops with one result for each row of the nest."""
    return grouped(loops_of(nest), lambda loop: loop.row)


def of_parameters(nest: Nest) -> Loops:
    """Return the loops with one result for each element of scale and bias."""
    return grouped(in_memory_order(loops_of(nest)), lambda loop: loop.param)


class Walk(NamedTuple):
    """A grid whose teams go through all results, and through the terms of each result in chunks."""

    loops: Any  # the packed struct
    index: np.dtype[Any]  # type: ignore[assignment]  # hides tuple.index
    width: int
    form: str  # "rows" or "lanes", the end of the kernels' names
    team: bool | int  # WARP for rows, the number of threads side by side for lanes
    turns: int  # the number of reduced loops that a cursor counts: 1, 2 or 4
    ragged: bool  # True: lanes of an access belong to several turns of the loops outside the innermost kept loop
    grid: tuple[int, int]
    block: tuple[int]
    chunk: Any  # the number of terms of one chunk, in the index type
    results: int

    @property
    def chunks(self) -> int:
        return self.grid[1]

    @property
    def shape(self) -> tuple[Any, ...]:
        """The template arguments that come first in all kernels of this form."""
        return self.index, self.width, self.team, self.turns


def walk(
    loops: Loops,
    size: int,
    itemsize: int,
    aligned: bool,
    elementwise: bool = False,
    lanes_busy: int = FEW,
    computed: int = 4,
) -> Walk:
    """Return the grid that goes through all terms of all results. elementwise=True is for kernels without sums.

    `itemsize` is the number of bytes of a stored element, and `computed` that of an element in registers.
    """
    elements = loops.width(itemsize) if aligned else 1
    warp, lanes = False, LANES
    if loops.is_lanes:
        elements = min(elements, LANE_BYTES // computed)
        while lanes > FEWEST_LANES and lanes // 2 * elements >= loops.results:
            lanes //= 2
        step, block = BLOCK // lanes, BLOCK
        across = blocks(loops.results, lanes * elements)
    else:
        warp = -(-loops.terms // elements) <= SHORT
        step, block = (WARP if warp else BLOCK) * elements, WARP * 4 if warp else BLOCK
        across = blocks(loops.results, 4) if warp else loops.results
    batch = ELEMENTS_BATCH if elementwise else BATCH
    least = step * batch
    wanted = min(-(-(lanes_busy if loops.is_lanes else BUSY) // max(1, across)), SERIAL * SPLITS[-1])
    if loops.is_lanes and not elementwise:
        wanted = max(wanted, -(-loops.terms // (step * IN_FLOAT)))
    chunks = max(1, min(-(-loops.terms // least), wanted, 65535))
    whole = step * batch if loops.is_lanes and chunks > 1 else step  # each thread's last batch is whole too
    chunk = -(-loops.terms // (chunks * whole)) * whole
    chunks = max(1, -(-loops.terms // max(1, chunk)))
    form, team = ("lanes", lanes) if loops.is_lanes else ("rows", warp)
    ragged = loops.is_lanes and loops.kept[-1].count % elements != 0
    index = index_type(max(size, 0 if elementwise else 2 * chunks * loops.results))
    return Walk(
        loops.packed(index), index, elements, form, team, loops.turns, ragged, (max(1, across), chunks), (block,),
        index.type(chunk), loops.results,
    )  # fmt: skip


class Rows(NamedTuple):
    """A grid of teams that keep whole rows in their registers."""

    loops: Any
    index: np.dtype[Any]  # type: ignore[assignment]  # hides tuple.index
    width: int
    packs: int  # E of the kernels: the accesses of a thread to a row
    lanes: int  # the threads of a team that is part of a warp or a warp; 0 for a block
    turns: int  # as in Walk
    same: bool  # True: a whole row has one scale and one bias
    grid: tuple[int]
    block: tuple[int]


def rows(
    loops: Loops,
    size: int,
    itemsize: int,
    aligned: bool,
    most_packs: int,
    most_threads: int,
    together: bool = False,
    team_threads: int = TEAM_THREADS,
) -> Rows | None:
    """Return the grid, or None if a row does not fit into registers or neighbouring threads work on different rows.
    With together=True, each team adds up its results over several rows; all teams have up to `team_threads` threads.

    The team is the smallest one that holds a row with USUAL_PACKS accesses for each thread. The largest team may use up
    to `most_packs` accesses. With together=True, `most_packs` is tried first, since the sums take less of the time if
    each thread has more columns.
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
    teams = max(1, min(-(-loops.results // 4), team_threads // threads)) if together else loops.results
    grid = blocks(teams, teams_a_block)
    index = index_type(max(size, 2 * grid * loops.terms if together else 0, loops.results + teams))
    block = (threads * teams_a_block,)
    return Rows(loops.packed(index), index, elements, packs, lanes, loops.turns, loops.one_param, (grid,), block)


class Columns(NamedTuple):
    """A grid for rows that are too long for registers. Each thread keeps some columns and goes through the rows."""

    loops: Any
    index: np.dtype[Any]  # type: ignore[assignment]
    width: int
    grid: tuple[int, int]
    block: tuple[int]
    chunk: Any  # the number of rows of one chunk, in the index type

    @property
    def chunks(self) -> int:
        return self.grid[1]


def columns(nest: Nest, itemsize: int, aligned: bool) -> Columns | None:
    """Return the grid. If the columns do not each have a separate scale, or the rows are not one loop, return None."""
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
    """A grid that adds up the partial sums of each result; see merge.cuh."""

    splits: int  # the number of threads for each result
    grid: tuple[int]
    block: tuple[int]


def merge(results: int, parts: int) -> Merge:
    """Return a grid with few threads for each result, at most 128. A thread adds up at most SERIAL parts if 128 threads
    are enough for this. The sums of the threads are added pairwise.
    """
    splits = next((n for n in SPLITS if parts <= SERIAL * n), SPLITS[-1])
    side = 256 // splits if splits < 32 else 8 if splits < 128 else 4
    return Merge(splits, (blocks(results, side),), (splits * side,))


def team(terms: int, index: np.dtype[Any]) -> int:
    """Return how many threads add up `terms` parts of a run: the threads of a warp or of a block."""
    return next((threads for threads in (WARP, BLOCK) if terms <= SERIAL * threads), MOST_THREADS[index.itemsize])


def fits_param_columns(nest: Nest) -> bool:
    """Return True if each column has a separate scale, and this scale is the same for every row."""
    kept, reduced = of_statistics(nest)
    return all(not loop.param for loop in kept) and all(loop.param for loop in reduced) and nest.param_size > 1


def has_runs(nest: Nest) -> bool:
    """Return True if the scale is constant along a reduced loop."""
    loops = of_statistics(nest)
    return not loops.reduced or any(not loop.param for loop in loops.reduced)


class Runs(NamedTuple):
    """The loops that compute two sums in one pass over the data. `runs` adds up runs, and `to_rows` and `to_parameters`
    add up the sums of runs.
    """

    runs: Loops
    to_rows: Loops
    to_parameters: Loops

    def in_chunks(self, chunks: int) -> Runs:
        """Return loops for runs that were added up in chunks, so that the sums form an array (chunks, runs)."""
        if chunks == 1:
            return self
        chunk = Loop(chunks, self.runs.results, 0, 0)
        return self._replace(
            to_rows=self.to_rows._replace(reduced=(chunk, *self.to_rows.reduced)),
            to_parameters=self.to_parameters._replace(reduced=(chunk, *self.to_parameters.reduced)),
        )


def runs(nest: Nest, itemsize: int = 0) -> Runs:
    """Return the loops of runs. Within a run, the reduced loops along which scale and bias are constant go through all
    their turns, and the index of every other loop is fixed.

    If an itemsize is given, a run may be a single turn of the innermost of these reduced loops, next to the following
    run; see `side_by_side`.
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
