"""Launches norm_ahead.cu, the backward pass of rows whose columns have separate scales. ahead_plan.py does the
arithmetic.

It needs blocks with as much shared memory as the devices of norm_cluster.py have. There it takes the place of
row_backward (norm_rows.cu), if a row takes a whole block.
"""

from __future__ import annotations

from typing import Any

from minorm.kernels.gpu import memory
from minorm.kernels.gpu.plans import ahead_plan, norm_cluster, norm_plan
from minorm.kernels.gpu.plans.norm_arguments import Array, Type, scalars, with_struct
from minorm.kernels.gpu.plans.norm_merges import merge_parts
from minorm.kernels.gpu.program import Program
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

ahead_program = Program("norm_ahead.cu")


def rows(*how: Any) -> tuple[norm_plan.Rows, int] | None:
    """Return what ahead_plan.rows returns, or None if a block of this machine's devices has too little memory."""
    return ahead_plan.rows(*how) if norm_cluster.available() else None


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
        parts = memory.scratch(2 * rows.grid[0] * nest.columns * compute.itemsize)
        launch(x, (rows.loops, dy, x, y, stats, s, dx, masked, parts, *rule))
        merge(parts, None, both)

    return run
