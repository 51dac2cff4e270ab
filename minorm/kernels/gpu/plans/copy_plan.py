"""How elements move from one array to another: loops over both, put together where they can be, and a launch for them.

    x (2, 64, 56, 56) in rows, y with the channels last
    loops      2 times: 200704 apart in y, 200704 apart in x
            3136 times:     64 apart in y,      1 apart in x        the columns of a tile
              64 times:      1 apart in y,   3136 apart in x        its rows

Arithmetic on shapes and steps, both in elements; there is no device here, and no array.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu import launch

BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}  # by size: what moves as it is
THREADS = 256
MOST = 6  # loops that a launch takes
SHORT = 8  # rows and columns from which on a tile is worth its turn through shared memory
NARROW = 32  # rows or columns up to which a tile is long in the other direction

Ints = tuple[int, ...]


class Loop(NamedTuple):
    """How often, and how far apart in the array that is written and in the one that is read."""

    times: int
    to: int
    source: int


class Plan(NamedTuple):
    """One launch."""

    turned: bool  # kernel turn, else move
    widths: Ints  # of an access: of both arrays of `turn`, of the one that is written by `move`
    rows: int  # of a tile of `turn`
    integer: np.dtype[Any]  # of indices
    axes: Any  # the struct Axes: counts, steps in what is written, steps in what is read
    sizes: Ints  # what the kernel takes behind it
    whole: bool  # `move`: an access of what is written is one of what is read
    grid: tuple[int]


@functools.lru_cache(maxsize=4096)
def loops(shape: Ints, to: Ints, source: Ints) -> tuple[Loop, ...]:
    """The loops from the outermost to the innermost of what is written; neighbours that one step walks are one loop."""
    axes = [Loop(n, a, b) for n, a, b in zip(shape, to, source, strict=True) if n != 1]
    found: list[Loop] = []
    for loop in sorted(axes, key=lambda loop: (-loop.to, -loop.source)):
        if found and found[-1].to == loop.to * loop.times and found[-1].source == loop.source * loop.times:
            found[-1] = loop._replace(times=loop.times * found[-1].times)
        else:
            found.append(loop)
    return tuple(found) or (Loop(1, 1, 1),)


@functools.lru_cache(maxsize=4096)
def plan(shape: Ints, to: Ints, source: Ints, sizes: tuple[int, int], alignment: int) -> Plan | None:
    """The launch; sizes: bytes of an element that is written and of one that is read. None: more loops than it takes.

    alignment: both arrays begin at a multiple of so many bytes. There is at least one element, and no step is below 0.
    """
    found = loops(shape, to, source)
    if len(found) > MOST:
        return None
    extents = [sum((loop.times - 1) * loop[side] for loop in found) for side in (1, 2)]
    integer = launch.index_type(max(*extents, *(loop.times for loop in found)) + 1)
    rows = found[-1]
    columns = next((loop for loop in found[:-1] if loop.source == 1 and loop.times >= SHORT), None)
    if rows.to == 1 and rows.source > 1 and rows.times >= SHORT and columns is not None:
        return _turn(found, columns, sizes, alignment >= launch.ACCESS, integer)
    return _move(found, sizes, alignment, integer)


def _move(found: tuple[Loop, ...], sizes: tuple[int, int], alignment: int, integer: Any) -> Plan:
    *outer, last = found
    steps = [last.times, *(loop.to for loop in outer)]
    if last.source == 1:  # an access of what is written is one of what is read
        steps += [loop.source for loop in outer]
    # Counted in the wider type: so the accesses of neighbouring threads are neighbours in both arrays.
    width = max(1, min(launch.ACCESS, alignment) // max(sizes))
    while any(step % width for step in steps):
        width //= 2
    if last.to != 1:
        width = 1
    whole = width > 1 and last.source == 1
    across = [*outer, Loop(last.times // width, last.to * width, last.source * width)]
    accesses = 1
    for loop in across:
        accesses *= loop.times
    if accesses >= 2**31 - 2**24:
        integer = dtypes.int64
    grid = (launch.blocks(accesses, THREADS),)
    given = accesses, last.source
    return Plan(False, (width,), 0, integer, _struct(across, MOST, integer), given, whole, grid)


def _turn(found: tuple[Loop, ...], columns: Loop, sizes: tuple[int, int], aligned: bool, integer: Any) -> Plan:
    rows = found[-1]
    outer = [loop for loop in found[:-1] if loop is not columns]
    write, read = (launch.ACCESS // size for size in sizes)
    if not aligned or any(n % read for n in (columns.times, rows.source, *(loop.source for loop in outer))):
        read = 1
    if not aligned or any(n % write for n in (rows.times, columns.to, *(loop.to for loop in outer))):
        write = 1
    lines = 256 if columns.times <= NARROW < rows.times else 16 if rows.times <= NARROW else 64
    size = 2048 if sizes[1] > 4 else 4096
    tiles = launch.blocks(rows.times, lines), launch.blocks(columns.times, size // lines)
    blocks = tiles[0] * tiles[1]
    for loop in outer:
        blocks *= loop.times
    given = rows.times, columns.times, rows.source, columns.to, *tiles
    return Plan(True, (read, write), lines, integer, _struct(outer, MOST - 2, integer), given, True, (blocks,))


def _struct(found: list[Loop], most: int, integer: Any) -> Any:
    """The struct Axes, filled up with loops that turn once."""
    filled = [Loop(1, 0, 0)] * (most - len(found)) + found
    return np.array(filled, integer).T.copy()
