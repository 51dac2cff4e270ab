"""Plans of the forward pass. A plan is a function of arrays, made once for a nest and its types and kept by
BoundKernels.

Rows that fit into the registers of a warp or a block take one kernel (norm_rows.cu). So do short rows that do not begin
at multiples of 16 bytes (norm_short.cu), and rows that fit into the shared memory of a cluster (norm_cluster.cu). For
longer rows, kernels compute moments of chunks, merge them in a fixed order, and then make a pass over the elements.
The kernel that writes y also adds the residual and applies the ReLU if the call has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.kernels.gpu import memory
from minorm.kernels.gpu.launch import blocks, index_type
from minorm.kernels.gpu.plans import norm_cluster, norm_plan, relay_plan, short_plan
from minorm.kernels.gpu.plans.norm_arguments import Array, Type, no_running, scalars, with_struct
from minorm.kernels.gpu.plans.structs import constant
from minorm.kernels.gpu.program import Program
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

Run = Callable[..., Any]

rows_program, moments_program, apply_program, short_program = (
    Program(f"norm_{name}.cu") for name in ("rows", "moments", "apply", "short")
)

PACKS = 8  # the most accesses of a thread
KEPT = 128  # widened bytes of x that a thread keeps; half as many with a residual, and if double meets wide indices
GIVEN = 128  # threads of a block that makes given statistics
PLAIN, RELU, RESIDUAL_RELU = 0, 1, 2  # ending.cuh


def forward(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    running: Type,
    aligned: bool,
    equation: Equation,
    ending: int,
) -> Run:
    short = with_struct(short_plan.short(nest, storage.itemsize, aligned))
    if short is not None:
        types = storage, compute, parameter, short.index
        kernel = short_program.kernel("short_forward", *types, short.lanes, running, ending)
        return _in_one(kernel, short, equation)
    loops = norm_plan.of_statistics(nest)
    by_columns = aligned and loops.side_by_side(storage.itemsize) is not loops
    widened = compute.itemsize * (loops.width(storage.itemsize) if aligned else 1)
    index = 4 * norm_plan.registers_of_an_index(nest)
    share = (2 if ending == RESIDUAL_RELU else 1) * (2 if compute.itemsize == index == 8 else 1)
    packs, threads = min(PACKS, KEPT // share // widened), norm_plan.MOST_THREADS[max(compute.itemsize, index)]
    rows = norm_plan.rows(loops, norm_plan.size_of(nest), storage.itemsize, aligned, packs, threads)
    in_registers = rows is not None and not by_columns
    clusters = norm_cluster.forward_clusters(nest, storage, compute, aligned, ending == RESIDUAL_RELU, in_registers)
    if clusters is not None:
        return norm_cluster.forward(clusters, storage, compute, parameter, running, equation, ending)
    if rows is not None and not by_columns:
        rows = with_struct(rows)
        shape = rows.index, rows.width, rows.packs, rows.lanes, rows.turns, rows.same
        kernel = rows_program.kernel("row_forward", storage, compute, parameter, *shape, running, ending)
        return _in_one(kernel, rows, equation)
    find = moments(nest, storage, compute, aligned, equation)
    use = apply(nest, storage, compute, parameter, running, aligned, ending)
    relayed = _relayed(nest, storage, compute, parameter, aligned, equation, ending)

    def in_passes(x: Array, s: Any, b: Any, residual: Any, y: Array, stats: Array, kept: Any) -> None:
        if relayed is not None and kept is no_running():
            relayed(x, s, b, residual, y, stats)
            return
        find(x, stats)
        use(x, stats, s, b, residual, y, kept)

    return in_passes


def _in_one(kernel: Any, plan: Any, equation: Equation) -> Run:
    """Return the plan that launches one kernel for everything."""
    rule = scalars(equation)

    def run(x: Array, s: Any, b: Any, residual: Any, y: Array, stats: Array, kept: Any) -> None:
        kernel(plan.grid, plan.block, (plan.loops, x, s, b, residual, y, stats, *rule, kept))

    return run


def _relayed(
    nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool, equation: Equation, ending: int
) -> Run | None:
    """Return the plan that reads lanes twice in one launch, for calls without running statistics, or None."""
    loops, size = lanes_of(nest, storage, aligned), norm_plan.size_of(nest)
    plan = relay_plan.relay(loops, size, storage.itemsize, aligned, compute.itemsize, 1)
    if plan is None:
        return None
    walk, rule = with_struct(plan.walk), scalars(equation)
    types = storage, compute, parameter, *walk.shape, loops.one_param
    kernel = moments_program.kernel("relay_forward", *types, ending)
    sizes = walk.chunk, *map(np.int32, (walk.chunks, plan.lag, plan.columns))

    def run(x: Array, s: Any, b: Any, residual: Any, y: Array, stats: Array) -> None:
        partial, counters = memory.scratch(16 * walk.chunks * walk.results), memory.zeros(1 + plan.tiles)
        arrays = x, s, b, residual, y, stats, partial, counters
        kernel(plan.grid, walk.block, (walk.loops, *sizes, *arrays, *rule))

    return run


def lanes_of(nest: Nest, storage: Type, aligned: bool) -> norm_plan.Loops:
    """Return the loops of the statistics, with columns side by side where that makes accesses longer."""
    loops = norm_plan.of_statistics(nest)
    return loops.side_by_side(storage.itemsize) if aligned else loops


def moments(nest: Nest, storage: Type, compute: Type, aligned: bool, equation: Equation) -> Run:
    loops = lanes_of(nest, storage, aligned)
    size, computed = norm_plan.size_of(nest), compute.itemsize
    walk = norm_plan.walk(loops, size, storage.itemsize, aligned, lanes_busy=norm_plan.FEWEST, computed=computed)
    walk = with_struct(walk)
    kernel = moments_program.kernel(f"moments_{walk.form}", storage, compute, *walk.shape)
    plan = norm_plan.merge(nest.rows, walk.chunks * loops.columns)
    merge = moments_program.kernel("merge_moments", compute, walk.index, plan.splits)
    eps, centered, guard = scalars(equation)
    lengths = map(walk.index.type, (nest.rows, loops.columns, loops.terms))
    sizes = tuple(map(constant, (*lengths, walk.chunk, np.int32(walk.chunks))))

    def run(x: Array, stats: Array) -> None:
        partial = memory.scratch(16 * walk.chunks * walk.results)  # two numbers of float64 for each chunk of a result
        kernel(walk.grid, walk.block, (walk.loops, walk.chunk, x, partial, centered))
        merge(plan.grid, plan.block, (*sizes, partial, stats, eps, guard))

    return run


def apply(nest: Nest, storage: Type, compute: Type, parameter: Type, running: Type, aligned: bool, ending: int) -> Run:
    walk, shape = elementwise(nest, storage, compute, aligned)
    kernel = apply_program.kernel(f"apply_{walk.form}", storage, compute, parameter, *shape, running, ending)

    def run(x: Array, stats: Array, s: Any, b: Any, residual: Any, y: Array, kept: Any) -> None:
        kernel(walk.grid, walk.block, (walk.loops, walk.chunk, x, stats, s, b, residual, y, kept))

    return run


def elementwise(nest: Nest, storage: Type, compute: Type, aligned: bool) -> tuple[norm_plan.Walk, tuple[Any, ...]]:
    """Return the grid of norm_apply.cu, and the template arguments after the types."""
    loops = lanes_of(nest, storage, aligned)
    size, computed = norm_plan.size_of(nest), compute.itemsize
    walk = norm_plan.walk(loops, size, storage.itemsize, aligned, elementwise=True, computed=computed)
    return with_struct(walk), (*walk.shape, loops.one_param)


def given(nest: Nest, storage: Type, compute: Type, kind: Type, equation: Equation) -> Run:  # noqa: ARG001
    """Return the plan that computes statistics from a given mean and variance of type `kind`."""
    index, rule = index_type(4 * nest.rows), scalars(equation)
    kernel = moments_program.kernel("given_moments", compute, index, kind)
    grid = (blocks(nest.rows, GIVEN),)

    def run(mean: Array, var: Array, stats: Array) -> None:
        kernel(grid, (GIVEN,), (index.type(nest.rows), mean, var, rule[0], rule[2], stats))

    return run
