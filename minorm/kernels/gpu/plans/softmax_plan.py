"""Distributes the rows of a softmax over teams of threads. This module needs neither a device nor an array.

A team is a warp if its registers hold a row, else a block. `packs` is the number of accesses that a thread keeps in
registers, or 0 if the row is too long for any block. With four accesses for each thread, enough bytes are loaded at the
same time.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu import launch

WARPS = 4  # the rows of a block whose teams are warps
LONGEST = 512  # the most threads of a block with one row
REGISTERS = 128  # the most bytes of a row that a thread keeps
USUAL_PACKS = 4


class Plan(NamedTuple):
    """A grid of teams of threads. Each team computes rows of a softmax."""

    integer: np.dtype[Any]  # the type of indices
    width: int
    packs: int
    warp: bool
    grid: tuple[int]
    block: tuple[int]


def columns_index(outer: int, n: int, inner: int) -> np.dtype[Any]:
    """Return the index type for a kernel in which each thread has a row with steps of `inner`. The largest index is one
    step beyond the last row.
    """
    return launch.index_type((outer * n + 1) * inner)


@functools.lru_cache(maxsize=4096)
def rows(count: int, n: int, storage: np.dtype[Any], aligned: bool, inputs: int) -> Plan:
    """Plan a launch for `count` rows of n elements.

    Registers hold the rows of `inputs` arrays. If `inputs` is 0, a row is read only once, and registers hold no row.
    """
    width = launch.width(storage.itemsize, n) if aligned else 1
    integer = launch.index_type(count * n)
    accesses = -(-n // width)
    kept = dtypes.compute_type(storage).itemsize * width * max(1, inputs)
    most = max(1, min(8, REGISTERS // kept))
    usual = min(most, USUAL_PACKS)
    warp = accesses <= launch.WARP * usual
    threads = launch.WARP
    while not warp and threads * usual < accesses and threads < LONGEST:
        threads *= 2
    packs = 1
    while packs * threads < accesses:
        packs *= 2
    if packs > most or not inputs:
        packs = 0
    teams = WARPS if warp else 1
    return Plan(integer, width, packs, warp, (launch.blocks(count, teams),), (threads * teams,))
