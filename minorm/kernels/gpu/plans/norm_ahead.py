"""Plans norm_ahead.cu: the backward pass of rows whose columns have separate scales. The next row waits in shared
memory.

It needs blocks with as much shared memory as the devices of norm_cluster.py have. There it takes the place of
row_backward (norm_rows.cu), if a row takes a whole block.
"""

from __future__ import annotations

from typing import Any

from minorm.kernels.gpu import memory
from minorm.kernels.gpu.plans import cluster_plan, norm_cluster, norm_plan
from minorm.kernels.gpu.plans.norm_arguments import Array, Type, scalars, with_struct
from minorm.kernels.gpu.plans.norm_merges import merge_parts
from minorm.kernels.gpu.program import Program
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

ahead_program = Program("norm_ahead.cu")

TEAM_THREADS = 3 << 15  # threads of all blocks, as the registers of a large device allow: 80 for each thread
STAGES = 2  # rows in shared memory: this one and the next one


def rows(
    nest: Nest, storage: Type, aligned: bool, packs: int, most_threads: int, relu: bool
) -> tuple[norm_plan.Rows, int] | None:
    """Return the grid and the bytes of shared memory, or None if other kernels take these rows.

    A thread may keep twice the `packs` of row_backward, if the longest team is too short otherwise.
    """
    loops, size = norm_plan.of_statistics(nest), norm_plan.size_of(nest)
    if len(loops.kept) != 1 or not norm_cluster.available():
        return None
    for most in (packs, 2 * packs):
        found = norm_plan.rows(loops, size, storage.itemsize, aligned, most, most_threads, True, TEAM_THREADS)
        if found is None:
            continue
        access = found.width * storage.itemsize
        shared = STAGES * (2 + relu) * found.packs * access * found.block[0]
        if found.lanes or access < cluster_plan.COPIED or shared > cluster_plan.MOST:
            return None
        return found, shared
    return None


def backward(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    equation: Equation,
    rows: norm_plan.Rows,
    shared: int,
    relu: bool,
) -> Any:
    rows = with_struct(rows)
    shape = rows.index, rows.width, rows.packs, rows.turns, relu
    kernel = ahead_program.kernel("row_backward_ahead", storage, compute, parameter, *shape)
    launch = norm_cluster.launcher(kernel, rows.grid, rows.block, shared)
    merge = merge_parts(nest.columns, rows.grid[0], compute, compute, rows.index, None)
    rule = scalars(equation)

    def run(dy: Array, x: Array, y: Any, stats: Array, s: Any, dx: Array, both: Array, masked: Any) -> None:
        parts = memory.empty((2, rows.grid[0], nest.columns), compute)
        launch(x, (rows.loops, dy, x, y, stats, s, dx, masked, parts, *rule))
        merge(parts, None, both)

    return run
