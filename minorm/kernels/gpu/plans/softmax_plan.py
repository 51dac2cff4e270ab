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
SEVERAL = 256  # threads of a block of which a multiprocessor runs several, so that some read while others add up
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
def rows(count: int, n: int, storage: np.dtype[Any], aligned: bool, inputs: int, once: bool = False) -> Plan:
    """Plan a launch for `count` rows of n elements, where registers hold the rows of `inputs` arrays.

    once: the kernel reads every row once, so a block need not keep its row. One thread of a team does the last step, so
    few threads are best. Other kernels write a row, which many threads do better.
    """
    width = launch.width(storage.itemsize, n) if aligned else 1
    integer = launch.index_type(count * n)
    accesses = -(-n // width)
    most = _most(storage, width, inputs)
    usual = most if once else min(most, USUAL_PACKS)
    if accesses <= launch.WARP * most:
        lanes = 1
        while lanes < launch.WARP and lanes * usual < accesses:
            lanes *= 2
        grid = (launch.blocks(count, THREADS // lanes),)
        return Plan(integer, width, -(-accesses // lanes), lanes, grid, (THREADS,))
    threads, longest = 2 * launch.WARP, SEVERAL if once else LONGEST
    while threads * usual < accesses and threads < longest:
        threads *= 2
    packs = -(-accesses // threads)
    return Plan(integer, width, 0 if once or packs > most else packs, 0, (count,), (threads,))


@functools.lru_cache(maxsize=4096)
def pieces(count: int, n: int, storage: np.dtype[Any], aligned: bool) -> Plan:
    """Do the same for a kernel that needs no sums. A row that is too long for a block is cut into pieces, whose number
    is the second number of the grid.
    """
    plan = rows(count, n, storage, aligned, 1)
    if plan.packs:
        return plan._replace(grid=(*plan.grid, 1))
    packs, threads = _most(storage, plan.width, 1), SEVERAL
    number = -(-n // (plan.width * packs * threads))
    return plan._replace(packs=packs, grid=(count, min(number, MOST_PIECES)), block=(threads,))
