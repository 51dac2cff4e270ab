"""Plans of the backward pass. A plan is a function of arrays, made once for a nest and its types; BoundKernels keeps
the plan.

    short     short rows that do not begin at multiples of 16 bytes: one kernel for dx and the sums of runs; 3 passes
    rows      rows fit into registers: one kernel for dx, and also for ds and db if the parameters' layout allows it
    ahead     the same for rows of a block with one scale for each column, on devices with much shared memory
    clusters  rows fit into the shared memory of a cluster: one kernel for dx and the sums of runs; 3 passes
    relay     rows lie within tiles of lanes: one kernel reads each tile twice, once from the cache; 3 passes
    columns   longer rows, one scale for each column: row sums, then dx and the sums of columns together; 5 passes
    runs      scale and bias are constant along a reduced loop: one pass for all sums, then dx; 5 passes
    separate  all other nests: sums for dx, then dx, then sums for scale and bias; 7 passes

After a ReLU, dy counts as 0 where y <= 0. Only `columns` and `separate` need one more pass for this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.gpu import memory
from minorm.kernels.gpu.elementwise import relu_grad
from minorm.kernels.gpu.plans import norm_ahead, norm_cluster, norm_merges, norm_plan, relay_plan, short_plan
from minorm.kernels.gpu.plans.norm_arguments import Array, Type, scalars, with_struct
from minorm.kernels.gpu.plans.norm_forward import Run, apply_program, elementwise, lanes_of, rows_program, short_program
from minorm.kernels.gpu.plans.norm_merges import merge_given_runs, merge_parts, merge_runs
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

THREADS, PACKS = 512, 4  # the most threads of a row, and the most accesses of x and of dy that a thread keeps
KEPT = 128  # widened bytes of x, and of dy, in registers; half as many with y, or with sums for scale and bias
NONE, OF_ROW, OF_ELEMENTS = 0, 1, 2  # norm_rows.cu


def backward(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    aligned: bool,
    equation: Equation,
    of_input: bool,
    of_parameters: bool,
    relu: bool,
) -> Run:
    types = storage, compute, parameter, aligned
    if not of_input:
        return _after_relu(_parameters_alone(nest, *types), relu)
    short = with_struct(short_plan.short(nest, storage.itemsize, aligned))
    if short is not None:
        return _short(nest, storage, compute, parameter, equation, short, of_parameters, relu)
    loops = norm_plan.of_statistics(nest)
    sums = NONE
    if of_parameters:
        sums = OF_ELEMENTS if norm_plan.fits_param_columns(nest) else OF_ROW
    widened = compute.itemsize * (loops.width(storage.itemsize) if aligned else 1)
    share = (2 if relu else 1) * (2 if sums == OF_ELEMENTS else 1) * norm_plan.registers_of_an_index(nest)
    packs = min(PACKS, max(1, KEPT // share // widened))
    rows = None
    if sums != OF_ROW or all(not loop.param for loop in loops.reduced):
        size = norm_plan.size_of(nest)
        rows = norm_plan.rows(loops, size, storage.itemsize, aligned, packs, THREADS, together=sums == OF_ELEMENTS)
    if sums != OF_ELEMENTS:
        clusters = norm_cluster.backward_clusters(nest, storage, compute, aligned, relu, rows is not None)
        if clusters is not None:
            return _clusters(nest, storage, compute, parameter, equation, clusters, of_parameters, relu)
    if sums == OF_ELEMENTS:
        ahead = norm_ahead.rows(nest, storage, compute, aligned, packs, THREADS, relu)
        if ahead is not None:
            return norm_ahead.backward(nest, storage, compute, parameter, equation, *ahead, relu)
    if rows is not None:
        return _rows(nest, storage, compute, parameter, equation, with_struct(rows), sums, relu)
    relayed = _relayed(nest, *types, equation, of_parameters, relu)
    if relayed is not None:
        return relayed
    if norm_plan.has_runs(nest):
        return _runs(nest, *types, equation, of_parameters, relu)
    columns = norm_plan.columns(nest, storage.itemsize, aligned) if of_parameters else None
    if columns is not None:
        return _after_relu(_columns(nest, *types, equation, with_struct(columns)), relu)
    return _after_relu(_separate(nest, *types, equation, of_parameters), relu)


def _after_relu(plain: Run, relu: bool) -> Run:
    """Return the plan for a normalization with a ReLU, made from a plan without ReLU."""
    if not relu:
        return plain

    def run(dy: Array, x: Array, y: Array, stats: Array, s: Any, dx: Any, both: Any, masked: Any) -> None:
        dy = relu_grad(dy, y)
        if masked is not None:
            masked[...] = dy
        plain(dy, x, None, stats, s, dx, both, None)

    return run


def _short(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    equation: Equation,
    short: short_plan.Short,
    of_parameters: bool,
    relu: bool,
) -> Run:
    kernel = short_program.kernel("short_backward", storage, compute, parameter, short.index, short.lanes, relu)
    rule, merge = scalars(equation), None
    if of_parameters:
        merge = merge_given_runs(nest, short.runs, parameter, compute, short.index)

    def run(dy: Array, x: Array, y: Any, stats: Array, s: Any, dx: Array, both: Any, masked: Any) -> None:
        of_runs = memory.scratch(16 * short.runs) if merge else None
        kernel(short.grid, short.block, (short.loops, dy, x, y, stats, s, dx, masked, of_runs, *rule))
        if merge:
            merge(of_runs, None, None, None, both)

    return run


def _rows(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    equation: Equation,
    rows: norm_plan.Rows,
    sums: int,
    relu: bool,
) -> Run:
    shape = rows.index, rows.width, rows.packs, rows.lanes, rows.turns, rows.same
    kernel = rows_program.kernel("row_backward", storage, compute, parameter, *shape, sums, relu)
    rule, parts_of, merge, of_columns = scalars(equation), rows.grid[0], None, None
    size_of_parts = 2 * parts_of * nest.columns * compute.itemsize
    if sums == OF_ELEMENTS:
        of_columns = merge_parts(nest.columns, parts_of, compute, compute, rows.index, None)
    elif sums == OF_ROW and nest.param_size != nest.rows:
        merge = merge_given_runs(nest, nest.rows, parameter, compute, rows.index)

    def run(dy: Array, x: Array, y: Any, stats: Array, s: Any, dx: Array, both: Any, masked: Any) -> None:
        of_rows = memory.scratch(16 * nest.rows) if merge else None  # two numbers of float64 for each row
        parts = memory.scratch(size_of_parts) if of_columns else None if merge else both
        kernel(rows.grid, rows.block, (rows.loops, dy, x, y, stats, s, dx, masked, of_rows, parts, *rule))
        if merge:
            merge(of_rows, None, None, None, both)
        if of_columns:
            of_columns(parts, None, both)

    return run


def _clusters(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    equation: Equation,
    clusters: Any,
    of_parameters: bool,
    relu: bool,
) -> Run:
    use, merge = norm_cluster.backward(clusters, storage, compute, parameter, equation, relu), None
    if of_parameters and (clusters.runs or nest.param_size != nest.rows):
        merge = merge_given_runs(nest, clusters.results, parameter, compute, clusters.index)

    def run(dy: Array, x: Array, y: Any, stats: Array, s: Any, dx: Array, both: Any, masked: Any) -> None:
        of_runs = memory.scratch(16 * clusters.results) if merge else None
        use(dy, x, y, stats, s, dx, masked, of_runs, None if merge else both)
        if merge:
            merge(of_runs, None, None, None, both)

    return run


def _columns(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    aligned: bool,
    equation: Equation,
    columns: norm_plan.Columns,
) -> Run:
    find = sums_of(norm_plan.of_statistics(nest), nest, storage, compute, parameter, aligned, equation, dtypes.float64)
    kernel = apply_program.kernel("grad_input_columns", storage, compute, parameter, columns.index, columns.width)
    merge = merge_parts(nest.columns, columns.chunks, compute, compute, columns.index, None)

    def run(dy: Array, x: Array, y: None, stats: Array, s: Any, dx: Array, both: Array, masked: None) -> None:  # noqa: ARG001
        sums = memory.scratch(16 * nest.rows)
        find(dy, x, stats, s, sums)
        partial = memory.scratch(2 * columns.chunks * nest.columns * compute.itemsize)
        kernel(columns.grid, columns.block, (columns.loops, columns.chunk, dy, x, stats, sums, s, dx, partial))
        merge(partial, None, both)

    return run


def _runs(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    aligned: bool,
    equation: Equation,
    of_parameters: bool,
    relu: bool,
) -> Run:
    runs = norm_plan.runs(nest, storage.itemsize if aligned else 0)
    find, walk = _partial_sums(runs.runs, nest, storage, compute, parameter, aligned, relu)
    merge = merge_runs(
        runs.in_chunks(walk.chunks), walk.chunks * walk.results, parameter, compute, walk.index, equation, of_parameters
    )
    use = grad_input(nest, storage, compute, parameter, aligned, False)
    use_masked = grad_input(nest, storage, compute, parameter, aligned, True) if relu else use

    def run(dy: Array, x: Array, y: Any, stats: Array, s: Any, dx: Array, both: Any, masked: Any) -> None:
        sums = memory.scratch(16 * nest.rows)
        merge(find(dy, x, y, stats, None, masked), s, stats, sums, both)
        if masked is None:
            use_masked(dy, x, y, stats, sums, s, dx)
        else:
            use(masked, x, None, stats, sums, s, dx)

    return run


def _relayed(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    aligned: bool,
    equation: Equation,
    of_parameters: bool,
    relu: bool,
) -> Run | None:
    loops, runs = lanes_of(nest, storage, aligned), norm_plan.runs(nest, storage.itemsize if aligned else 0)
    plan = relay_plan.relay(loops, norm_plan.size_of(nest), storage.itemsize, aligned, compute.itemsize, 2 + relu)
    if plan is None or loops != runs.runs:
        return None
    walk, rule, merge = with_struct(plan.walk), scalars(equation), None
    types = storage, compute, parameter, *walk.shape, loops.one_param
    kernel = norm_merges.grads_program.kernel("relay_backward", *types, relu)
    sizes = walk.chunk, *map(np.int32, (walk.chunks, plan.lag, plan.columns))
    if of_parameters:
        parts = runs.in_chunks(walk.chunks)
        merge = merge_runs(parts, walk.chunks * walk.results, parameter, compute, walk.index)

    def run(dy: Array, x: Array, y: Any, stats: Array, s: Any, dx: Array, both: Any, masked: Any) -> None:
        partial, sums = memory.scratch(16 * walk.chunks * walk.results), memory.scratch(16 * nest.rows)
        arrays = dy, x, y, stats, s, dx, masked, sums, partial, memory.zeros(1 + plan.tiles)
        kernel(plan.grid, walk.block, (walk.loops, *sizes, *arrays, *rule))
        if merge:
            merge(partial, None, None, None, both)

    return run


def _separate(
    nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool, equation: Equation, of_parameters: bool
) -> Run:
    types = storage, compute, parameter, aligned
    find = sums_of(norm_plan.of_statistics(nest), nest, *types, equation, dtypes.float64)
    use = grad_input(nest, *types, False)
    parameters = _parameters_alone(nest, *types)

    def run(dy: Array, x: Array, y: None, stats: Array, s: Any, dx: Array, both: Any, masked: None) -> None:
        sums = memory.scratch(16 * nest.rows)
        find(dy, x, stats, s, sums)
        use(dy, x, None, stats, sums, s, dx)
        if of_parameters:
            parameters(dy, x, y, stats, s, None, both, masked)

    return run


def _parameters_alone(nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool) -> Run:
    find = sums_of(norm_plan.of_parameters(nest), nest, storage, compute, parameter, aligned, None, compute)

    def run(dy: Array, x: Array, y: None, stats: Array, s: Any, dx: None, both: Array, masked: None) -> None:  # noqa: ARG001
        find(dy, x, stats, None, both)

    return run


def grad_input(nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool, relu: bool) -> Run:
    walk, shape = elementwise(nest, storage, compute, aligned)
    kernel = apply_program.kernel(f"grad_input_{walk.form}", storage, compute, parameter, *shape, relu)

    def run(dy: Array, x: Array, y: Any, stats: Array, sums: Any, s: Any, dx: Array) -> None:
        kernel(walk.grid, walk.block, (walk.loops, walk.chunk, dy, x, y, stats, sums, s, dx))

    return run


def row_sums(nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool) -> Run:
    """Return the plan for sum_g and sum_gx of each row. The sums are not yet multiplied by the factors for dx."""
    loops = norm_plan.of_statistics(nest)
    return sums_of(loops, nest, storage, compute, parameter, aligned, None, dtypes.float64)


def sums_of(
    loops: norm_plan.Loops,
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    aligned: bool,
    equation: Equation | None,
    out: Type,
) -> Run:
    """Return the plan that computes the two sums of backward over `loops` directly, without adding up runs first."""
    find, walk = _partial_sums(loops, nest, storage, compute, parameter, aligned, False)
    merge = merge_parts(walk.results, walk.chunks, dtypes.float64, out, walk.index, equation)

    def run(dy: Array, x: Array, stats: Array, s: Any, result: Array) -> None:
        merge(find(dy, x, None, stats, s, None), stats if equation else None, result)

    return run


def _partial_sums(
    loops: norm_plan.Loops, nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool, relu: bool
) -> tuple[Run, norm_plan.Walk]:
    size, computed = norm_plan.size_of(nest), compute.itemsize
    walk = with_struct(norm_plan.walk(loops, size, storage.itemsize, aligned, computed=computed))
    shape = *walk.shape, loops.one_row, *[walk.ragged] * (walk.form == "lanes")
    kernel = norm_merges.grads_program.kernel(f"grads_{walk.form}", storage, compute, parameter, *shape, relu)
    rows = walk.index.type(nest.rows)

    def run(dy: Array, x: Array, y: Any, stats: Array, s: Any, masked: Any) -> Array:
        partial = memory.scratch(16 * walk.chunks * walk.results)
        kernel(walk.grid, walk.block, (walk.loops, rows, walk.chunk, dy, x, y, stats, s, partial, masked))
        return partial

    return run, walk
