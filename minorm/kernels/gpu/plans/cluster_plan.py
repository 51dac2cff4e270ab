"""Plans the kernels of norm_cluster.cu, which keep a row in the shared memory of a cluster of blocks. This module needs
neither a device nor an array.

A cluster has the smallest number of blocks whose parts of a row let four blocks share a multiprocessor: while one block
waits for its data or for its neighbours, the others keep the memory busy. If no number does, it has eight blocks, the
most that every device with clusters runs together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minorm.kernels.gpu.launch import WARP, index_type
from minorm.kernels.gpu.plans import norm_plan
from minorm.normalization.nest import Nest

BLOCKS = (1, 2, 4, 8)  # of a cluster
MOST = 224 << 10  # bytes that the kernels of a device with clusters may ask for, beside 3 KB of named variables
FEW = 54 << 10  # the most bytes of four blocks on a multiprocessor, which has 228 KB, and takes 1 KB for each block
FULL = 128  # blocks that keep a large device busy
LONG = 32 << 10  # bytes of a row that would take all registers of a multiprocessor, or half of them
SHORT = 8 << 10  # the fewest bytes of all arrays of a row, if it does not fit into registers
OF_THREAD, FEWEST = 256, 64  # bytes that a thread keeps, and the fewest threads of a block
COPIED = 4  # the fewest bytes that a thread can copy without waiting
GROUPS = 4  # norm_cluster.cu
PAIR = 16  # bytes of two sums


class Clusters(NamedTuple):
    """A grid of clusters that keep whole rows."""

    loops: Any  # the packed struct
    index: np.dtype[Any]  # type: ignore[assignment]  # hides tuple.index
    width: int
    blocks: int  # of a cluster
    turns: int  # the number of reduced loops that a cursor counts
    one_param: bool  # True: a whole row has one scale and one bias
    runs: bool  # True: scale and bias are constant along runs, and each run is the data of one block
    grid: tuple[int]
    block: tuple[int]
    cut: Any  # the struct Cut of norm_cluster.cu
    entries: int  # pairs of sums that a block keeps beside the data
    shared: int  # bytes that the launch asks for
    results: int  # runs of all rows


def forward(nest: Nest, itemsize: int, aligned: bool, residual: bool, most: int, in_registers: bool) -> Clusters | None:
    """Return the grid, or None if the other kernels are better. in_registers: does a row fit into registers?"""
    loops = norm_plan.of_statistics(nest)
    if in_registers and loops.terms * itemsize < LONG:
        return None
    return _clusters(nest, loops, itemsize, aligned, 1 + residual, most, False)


def backward(nest: Nest, itemsize: int, aligned: bool, relu: bool, most: int, in_registers: bool) -> Clusters | None:
    """Return the grid, or None if the other kernels are better, or if scale or bias vary within a run."""
    loops = norm_plan.of_statistics(nest)
    arrays, least = 2 + relu, LONG if in_registers else SHORT
    varying = tuple(loop for loop in loops.reduced if loop.param)
    if loops.terms * itemsize * (1 if in_registers else arrays) < least:
        return None
    if varying:
        loop = loops.reduced[-1]
        if len(loops.reduced) != 2 or loop.param or loop.data != 1:
            return None
    outer = [*loops.kept, *varying]
    if outer != norm_plan.in_memory_order(outer):
        return None  # norm_plan.runs would number them otherwise
    return _clusters(nest, loops, itemsize, aligned, arrays, most, bool(varying))


def _clusters(
    nest: Nest, loops: norm_plan.Loops, itemsize: int, aligned: bool, arrays: int, most: int, runs: bool
) -> Clusters | None:
    elements = loops.width(itemsize) if aligned else 1
    apart = aligned and loops.side_by_side(itemsize) is not loops
    if loops.is_lanes or apart or not loops.terms or elements * itemsize < COPIED:
        return None
    every = loops.results * (loops.reduced[0].count if runs else 1)
    index = index_type(max(norm_plan.size_of(nest), 2 * every))
    most = min(most, norm_plan.MOST_THREADS[index.itemsize])
    unit = loops.reduced[-1].count if runs else elements  # what is not divided among blocks
    number, found = loops.terms // unit, None
    for blocks in BLOCKS:
        of_block = -(-number // blocks)
        if -(-number // of_block) < blocks or loops.results * blocks < FULL:
            continue
        data, threads = of_block * unit * itemsize * arrays, FEWEST
        while threads * OF_THREAD < data and threads < most:
            threads *= 2
        team = _team(of_block, unit // elements, threads) if runs else threads
        entries = (of_block if runs else 1) * team // WARP
        shared = entries * PAIR + data
        if shared <= MOST:
            found = blocks, of_block, threads, team, entries, shared
        if shared <= FEW:
            break
    if found is None:
        return None
    blocks, of_block, threads, team, entries, shared = found
    packs, turns = -(-of_block // threads), GROUPS
    if runs:
        packs, turns = -(-unit // (elements * team)), -(-of_block // (threads // team))
    else:
        packs = -(-packs // GROUPS)
    fields = [("part", index), *[(name, "i4") for name in ("runs", "team", "packs", "turns", "together")]]
    values = of_block * unit, of_block if runs else 1, team, packs, turns, -(-turns // GROUPS)
    cut = np.array(values, np.dtype(fields, align=True))
    return Clusters(
        loops.packed(index), index, elements, blocks, 1 if runs else loops.turns, loops.one_param, runs,
        (loops.results * blocks,), (threads,), cut, entries, shared, every,
    )  # fmt: skip


def _team(runs: int, accesses: int, threads: int) -> int:
    """Return how many of a block's threads work on a run together, so that the slowest has the fewest accesses."""
    teams = [threads // 2**n for n in range(threads.bit_length()) if threads // 2**n >= WARP]
    return min(reversed(teams), key=lambda team: -(-runs // (threads // team)) * -(-accesses // team))
