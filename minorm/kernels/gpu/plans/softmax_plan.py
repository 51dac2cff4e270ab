"""Distributes the rows of a softmax over teams of threads. This module needs neither a device nor an array.

A team is some lanes of a warp, or a block if the row is too long for a warp's registers. `packs` is the number of
accesses that a thread keeps in registers, or 0 if the row is too long for any block.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.gpu import launch

THREADS = 128  # threads in a block whose teams are lanes of a warp
LONGEST = 512  # the most threads of a block with one row
REGISTERS = 128  # the most bytes of its rows that a thread keeps
MOST_PACKS = 8  # the most accesses that a thread keeps of a row
USUAL_PACKS = 4  # enough bytes on their way
MOST_PIECES = 65535  # of a grid along y


class Plan(NamedTuple):
    """A grid of teams of threads. Each team computes a row, or a piece of it."""

    integer: np.dtype[Any]  # the type of indices
    width: int
    packs: int
    lanes: int  # the threads of a team within a warp; 0 if a team is a block
    grid: tuple[int, ...]
    block: tuple[int]


def _most(storage: np.dtype[Any], width: int, inputs: int) -> int:
    return max(1, min(MOST_PACKS, REGISTERS // (storage.itemsize * width * inputs)))


@functools.lru_cache(maxsize=4096)
def rows(count: int, n: int, storage: np.dtype[Any], aligned: bool, inputs: int, usual: int = USUAL_PACKS) -> Plan:
    """Plan a launch for `count` rows of n elements, where registers hold the rows of `inputs` arrays.

    A team gets more threads before a thread gets more than `usual` accesses, up to a warp, and then from a block on.
    Few threads are best for a kernel whose last step is done by one thread of a team; many of them write rows better.
    """
    width = launch.width(storage.itemsize, n) if aligned else 1
    integer = launch.index_type(count * n)
    accesses = -(-n // width)
    most = _most(storage, width, inputs)
    usual = min(most, usual)
    if accesses <= launch.WARP * most:
        lanes = 1
        while lanes < launch.WARP and lanes * usual < accesses:
            lanes *= 2
        grid = (launch.blocks(count, THREADS // lanes),)
        return Plan(integer, width, -(-accesses // lanes), lanes, grid, (THREADS,))
    threads = 2 * launch.WARP
    while threads * min(usual, USUAL_PACKS) < accesses and threads < LONGEST:
        threads *= 2
    packs = -(-accesses // threads)
    return Plan(integer, width, packs if packs <= most else 0, 0, (count,), (threads,))


@functools.lru_cache(maxsize=4096)
def pieces(count: int, n: int, storage: np.dtype[Any], aligned: bool) -> Plan:
    """Do the same for a kernel that needs no sums. A row that is too long for a block is cut into pieces, whose number
    is the second number of the grid.
    """
    plan = rows(count, n, storage, aligned, 1)
    if plan.packs:
        return plan._replace(grid=(*plan.grid, 1))
    packs, threads = _most(storage, plan.width, 1), LONGEST // 2
    number = -(-n // (plan.width * packs * threads))
    return plan._replace(packs=packs, grid=(count, min(number, MOST_PIECES)), block=(threads,))
