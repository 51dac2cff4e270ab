"""Plans the copy of elements between two arrays: merges the loops over both arrays, and chooses a launch for them.

    x (2, 64, 56, 56) in rows, y with the channels last
    loops      2 times: 200704 apart in y, 200704 apart in x
            3136 times:     64 apart in y,      1 apart in x        the columns of a tile
              64 times:      1 apart in y,   3136 apart in x        its rows

The plan depends only on shapes and steps, counted in elements, so this module needs neither a device nor an array.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu import launch

BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}  # itemsize -> a type with the same bits
THREADS = 256
MOST = 6  # the most loops in a launch
SHORT = 8  # the fewest rows and columns for a transposition through shared memory
NARROW = 32  # the most rows or columns for a tile that is long in the other direction

Ints = tuple[int, ...]


class Loop(NamedTuple):
    """A loop: the number of turns, and the steps in the written array and in the read array."""

    times: int
    to: int
    source: int


class Plan(NamedTuple):
    """The launch of a kernel that copies elements from one array to another."""

    turned: bool  # True: the kernel `turn`, else `move`
    widths: Ints  # elements of an access: in both arrays for `turn`, in the written array for `move`
    rows: int  # the rows of a tile of `turn`
    integer: np.dtype[Any]  # the type of indices
    axes: Any  # the struct Axes: counts, steps in the written array, steps in the read array
    sizes: Ints  # the kernel's arguments after the struct
    whole: bool  # True for `move`: an access of the written array is also one access of the read array
    grid: tuple[int]


@functools.lru_cache(maxsize=4096)
def loops(shape: Ints, to: Ints, source: Ints) -> tuple[Loop, ...]:
    """Return the loops, from the outermost to the innermost in the written array. Two neighbouring loops become one if
    a single loop with one step reaches the same elements in both arrays.
    """
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
    """Return the launch, or None if there are too many loops. `sizes` are the bytes of an element in the written array
    and in the read array.

    Both arrays start at a multiple of `alignment` bytes. They have at least one element, and no step is negative.
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
    if last.source == 1:  # an access of the written array is also one of the read array
        steps += [loop.source for loop in outer]
    # The width is counted in the wider type, so the accesses of neighbouring threads are neighbours in both arrays.
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
    """Return the struct Axes for the loops `found`.

    If there are fewer than `most` loops, loops of one turn come first.
    """
    filled = [Loop(1, 0, 0)] * (most - len(found)) + found
    return np.array(filled, integer).T.copy()
