"""The normalization kernels on CuPy arrays: which kernels run, and with what arguments. See kernels/protocol.py.

The decisions are those of norm_plan.py. They are made once for a nest and its types and kept as a function of the
arrays alone, so that a call costs little more than the launch. Rows that fit into the registers of a warp or a block
take one kernel (norm_rows.cu); others take partial sums by chunks, which are merged in a fixed order, and a pass over
the elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from minorm import dtypes
from minorm.equation import Equation
from minorm.kernels.gpu import norm_plan
from minorm.kernels.gpu.launch import blocks, index_type, is_aligned
from minorm.kernels.gpu.memory import owned
from minorm.kernels.gpu.program import Program
from minorm.kernels.gpu.structs import Struct
from minorm.kernels.protocol import Running, Statistics
from minorm.nest import Nest

Array = Any
Type = np.dtype[Any]
Run = Callable[..., Any]

_rows, _moments = Program("norm_rows.cu"), Program("norm_moments.cu")
_apply, _grads = Program("norm_apply.cu"), Program("norm_grads.cu")
_cached = functools.lru_cache(maxsize=4096)
_float64 = dtypes.float64

THREADS, FORWARD_PACKS, BACKWARD_PACKS = 512, 8, 4  # the most that one row may take: registers
COLUMN_SUMS = 64  # bytes of a thread's sums for scale, and as many for bias
NONE, OF_ROW, OF_ELEMENTS = 0, 1, 2  # norm_rows.cu
RUNNING = np.dtype([("mean", "u8"), ("var", "u8"), ("batches", "u8"), ("rates", "f8", 3)])  # running.cuh


def forward(
    nest: Nest,
    x: Array,
    s: Array | None,
    b: Array | None,
    equation: Equation,
    dtype: Any = None,
    running: Running | None = None,
) -> tuple[Array, Statistics]:
    """y and the statistics; `running` is updated in the same launch."""
    compute, s, b, of_parameters = _types(x, s, b, dtype)
    y, stats = cupy.empty_like(x), cupy.empty((4, nest.rows), _float64)
    kept, of_running = _running(running, nest.columns)
    run = _forward(nest, x.dtype, compute, of_parameters, of_running, is_aligned(x), equation)
    run(x, s, b, y, stats, kept)
    if running is not None:
        running.changed = True
    return y, Statistics(stats)


def moments(nest: Nest, x: Array, centered: bool, dtype: Any = None) -> tuple[Array, Array, Array]:
    """k, d, var."""
    compute = _types(x, None, None, dtype)[0]
    stats = cupy.empty((4, nest.rows), _float64)
    run = _moments_of(nest, x.dtype, compute, dtypes.float32, is_aligned(x), Equation(1.0, centered))
    run(x, stats, _nobody())
    return stats[0], stats[1], stats[2]


def apply(nest: Nest, x: Array, stats: Statistics, s: Array | None, b: Array | None, dtype: Any = None) -> Array:
    """y = xhat * s + b."""
    compute, s, b, of_parameters = _types(x, s, b, dtype)
    y = cupy.empty_like(x)
    _apply_of(nest, x.dtype, compute, of_parameters, is_aligned(x))(x, stats.block, s, b, y)
    return y


def backward(
    nest: Nest,
    dy: Array,
    x: Array,
    stats: Statistics,
    s: Array | None,
    equation: Equation,
    needs: tuple[bool, bool] = (True, True),
    dtype: Any = None,
) -> tuple[Array | None, Array | None, Array | None]:
    """dx, ds, db."""
    compute, s, _, of_parameters = _types(x, s, None, dtype)
    dx = cupy.empty_like(x) if needs[0] else None
    both = cupy.empty((2, nest.param_size), compute) if needs[1] else None
    run = _backward(nest, x.dtype, compute, of_parameters, is_aligned(x, dy), equation, *needs)
    run(dy, x, stats.block, s, dx, both)
    return (dx, None, None) if both is None else (dx, owned(both[1]), owned(both[0]))


def grad_sums(
    nest: Nest, dy: Array, x: Array, stats: Statistics, s: Array | None, dtype: Any = None
) -> tuple[Array, Array]:
    """sum_g, sum_gx."""
    compute, s, _, of_parameters = _types(x, s, None, dtype)
    sums = cupy.empty((2, nest.rows), _float64)
    run = _sums(norm_plan.of_statistics(nest), nest, x.dtype, compute, of_parameters, is_aligned(x, dy), None, _float64)
    run(dy, x, stats.block, s, sums)
    return sums[0], sums[1]


def grad_params(nest: Nest, dy: Array, x: Array, stats: Statistics, dtype: Any = None) -> tuple[Array, Array]:
    """ds, db."""
    return backward(nest, dy, x, stats, None, Equation(), (False, True), dtype)[1:]


def grad_input(
    nest: Nest,
    dy: Array,
    x: Array,
    stats: Statistics,
    s: Array | None,
    sum_g: Array | None,
    sum_gx: Array | None,
    dtype: Any = None,
) -> Array:
    """dx = rstd * (g - sum_g / m - xhat * sum_gx / m)."""
    compute, s, _, of_parameters = _types(x, s, None, dtype)
    sums = None
    if sum_g is not None or sum_gx is not None:
        sums = cupy.zeros((2, nest.rows), _float64)
        for row, given in zip(sums, (sum_g, sum_gx), strict=True):
            if given is not None:
                row[...] = given
    dx = cupy.empty_like(x)
    run = _grad_input(nest, x.dtype, compute, of_parameters, is_aligned(x, dy))
    run(dy, x, stats.block, sums, s, dx)
    return dx


# Types and running statistics


def _types(x: Array, s: Array | None, b: Array | None, dtype: Any) -> tuple[Type, Array | None, Array | None, Type]:
    """The type computed in, scale and bias, and their one type: they are cast only where the two differ."""
    compute = dtypes.compute_type(x.dtype) if dtype is None else np.dtype(dtype)
    if s is None or b is None or s.dtype == b.dtype:
        one = b if s is None else s
        return compute, s, b, compute if one is None else one.dtype
    return compute, s.astype(compute), b.astype(compute), compute


def _scalars(equation: Equation | None) -> tuple[Any, Any, Any]:
    """eps, centered and guard as kernels take them."""
    equation = equation or Equation()
    return np.float64(equation.eps), np.bool_(equation.centered), np.bool_(equation.guard)


@functools.cache
def _nobody() -> Struct:
    """The struct Running of running.cuh with which nothing is updated."""
    return Struct(np.zeros((), RUNNING))


def _running(running: Running | None, count: int) -> tuple[Struct, Type]:
    """The struct Running, and the type that running statistics have."""
    if running is None:
        return _nobody(), dtypes.float32
    batches = 0 if running.batches is None else running.batches.data.ptr
    kept = _running_at(running.mean.data.ptr, running.var.data.ptr, batches, *running.rates(count))
    return kept, running.mean.dtype


@_cached
def _running_at(mean: int, var: int, batches: int, *rates: float) -> Struct:
    """The struct for these addresses: a layer's stay where they are from step to step."""
    return Struct(np.array((mean, var, batches, rates), RUNNING))


# Plans: each gives a function of arrays


def _with_struct(plan: Any) -> Any:
    """A plan of norm_plan.py with its loops as kernels take them."""
    return plan if plan is None else plan._replace(loops=Struct(plan.loops))


@_cached
def _forward(
    nest: Nest, storage: Type, compute: Type, parameter: Type, running: Type, aligned: bool, equation: Equation
) -> Run:
    loops, size = norm_plan.of_statistics(nest), nest.rows * nest.columns
    rows = _with_struct(norm_plan.rows(loops, size, storage.itemsize, aligned, FORWARD_PACKS, THREADS))
    if rows is not None:
        kernel = _rows.kernel(
            "row_forward", storage, compute, parameter, rows.index, rows.width, rows.packs, rows.warp, running
        )
        scalars = _scalars(equation)

        def in_one(x: Array, s: Array | None, b: Array | None, y: Array, stats: Array, kept: Any) -> None:
            kernel(rows.grid, rows.block, (rows.loops, x, s, b, y, stats, *scalars, kept))

        return in_one
    find = _moments_of(nest, storage, compute, running, aligned, equation)
    use = _apply_of(nest, storage, compute, parameter, aligned)

    def in_passes(x: Array, s: Array | None, b: Array | None, y: Array, stats: Array, kept: Any) -> None:
        find(x, stats, kept)
        use(x, stats, s, b, y)

    return in_passes


@_cached
def _moments_of(nest: Nest, storage: Type, compute: Type, running: Type, aligned: bool, equation: Equation) -> Run:
    loops, size = norm_plan.of_statistics(nest), nest.rows * nest.columns
    walk = _with_struct(norm_plan.walk(loops, size, storage.itemsize, aligned))
    kernel = _moments.kernel(f"moments_{walk.form}", storage, compute, walk.index, walk.width, walk.team)
    merge = _moments.kernel("merge_moments", compute, walk.index, running)
    grid = (blocks(nest.rows, norm_plan.BLOCK),)
    columns = walk.index.type(nest.columns)
    eps, centered, guard = _scalars(equation)
    rows, chunks = walk.index.type(nest.rows), np.int32(walk.chunks)

    def run(x: Array, stats: Array, kept: Any) -> None:
        partial = cupy.empty((2, walk.chunks, nest.rows), _float64)
        kernel(walk.grid, walk.block, (walk.loops, walk.chunk, x, partial, centered))
        merge(grid, (norm_plan.BLOCK,), (rows, columns, walk.chunk, chunks, partial, stats, eps, guard, kept))

    return run


@_cached
def _apply_of(nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool) -> Run:
    loops, size = norm_plan.of_statistics(nest), nest.rows * nest.columns
    walk = _with_struct(norm_plan.walk(loops, size, storage.itemsize, aligned, elementwise=True))
    kernel = _apply.kernel(f"apply_{walk.form}", storage, compute, parameter, walk.index, walk.width, walk.team)

    def run(x: Array, stats: Array, s: Array | None, b: Array | None, y: Array) -> None:
        kernel(walk.grid, walk.block, (walk.loops, walk.chunk, x, stats, s, b, y))

    return run


@_cached
def _grad_input(nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool) -> Run:
    loops, size = norm_plan.of_statistics(nest), nest.rows * nest.columns
    walk = _with_struct(norm_plan.walk(loops, size, storage.itemsize, aligned, elementwise=True))
    kernel = _apply.kernel(f"grad_input_{walk.form}", storage, compute, parameter, walk.index, walk.width, walk.team)

    def run(dy: Array, x: Array, stats: Array, sums: Array | None, s: Array | None, dx: Array) -> None:
        kernel(walk.grid, walk.block, (walk.loops, walk.chunk, dy, x, stats, sums, s, dx))

    return run


@_cached
def _backward(
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    aligned: bool,
    equation: Equation,
    of_input: bool,
    of_parameters: bool,
) -> Run:
    """Rows in registers where they fit, together with the gradients of scale and bias where their places allow it."""
    if not of_input:
        return _parameters_alone(nest, storage, compute, parameter, aligned)
    loops, size = norm_plan.of_statistics(nest), nest.rows * nest.columns
    sums = NONE
    if of_parameters:
        sums = OF_ELEMENTS if norm_plan.fits_param_columns(nest) else OF_ROW
    packs = BACKWARD_PACKS
    if sums == OF_ELEMENTS:
        packs = max(1, COLUMN_SUMS // compute.itemsize // (loops.width(storage.itemsize) if aligned else 1))
    row_scale = all(not loop.param for loop in loops.reduced)
    rows = None
    if sums != OF_ROW or row_scale:
        most = min(packs, BACKWARD_PACKS)
        rows = norm_plan.rows(loops, size, storage.itemsize, aligned, most, THREADS, together=sums == OF_ELEMENTS)
    if rows is not None:
        return _rows_backward(nest, storage, compute, parameter, equation, _with_struct(rows), sums)
    if norm_plan.has_runs(nest):
        return _runs_backward(nest, storage, compute, parameter, aligned, equation, of_parameters)
    return _separate_backward(nest, storage, compute, parameter, aligned, equation, of_parameters)


def _rows_backward(
    nest: Nest, storage: Type, compute: Type, parameter: Type, equation: Equation, rows: norm_plan.Rows, sums: int
) -> Run:
    kernel = _rows.kernel(
        "row_backward", storage, compute, parameter, rows.index, rows.width, rows.packs, rows.warp, sums
    )
    scalars = _scalars(equation)
    merge_rows = _merge(norm_plan.runs(nest).to_parameters, nest, 1, compute, compute, None) if sums == OF_ROW else None
    merge_columns = _grads.kernel("merge_columns", compute, rows.index) if sums == OF_ELEMENTS else None
    columns, teams = rows.index.type(nest.columns), rows.index.type(rows.teams)

    def run(dy: Array, x: Array, stats: Array, s: Array | None, dx: Array, both: Array | None) -> None:
        of_rows = cupy.empty((2, nest.rows), _float64) if merge_rows else None
        of_columns = cupy.empty((2, rows.teams, nest.columns), compute) if merge_columns else None
        kernel(rows.grid, rows.block, (rows.loops, dy, x, stats, s, dx, of_rows, of_columns, *scalars))
        if merge_rows:
            merge_rows(of_rows, None, None, both)
        if merge_columns:
            merge_columns((-(-nest.columns // 32), 2), (256,), (columns, teams, of_columns, both))

    return run


def _runs_backward(
    nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool, equation: Equation, of_parameters: bool
) -> Run:
    runs = norm_plan.runs(nest)
    find, walk = _partial_sums(runs.runs, nest, storage, compute, parameter, aligned)
    to_rows = _merge(runs.to_rows, nest, walk.chunks, parameter, _float64, equation)
    to_parameters = _merge(runs.to_parameters, nest, walk.chunks, compute, compute, None)
    use = _grad_input(nest, storage, compute, parameter, aligned)

    def run(dy: Array, x: Array, stats: Array, s: Array | None, dx: Array, both: Array | None) -> None:
        partial = find(dy, x, stats, None)
        sums = cupy.empty((2, nest.rows), _float64)
        to_rows(partial, s, stats, sums)
        if of_parameters:
            to_parameters(partial, None, None, both)
        use(dy, x, stats, sums, s, dx)

    return run


def _separate_backward(
    nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool, equation: Equation, of_parameters: bool
) -> Run:
    find = _sums(norm_plan.of_statistics(nest), nest, storage, compute, parameter, aligned, equation, _float64)
    use = _grad_input(nest, storage, compute, parameter, aligned)
    of_parameters_alone = _parameters_alone(nest, storage, compute, parameter, aligned)

    def run(dy: Array, x: Array, stats: Array, s: Array | None, dx: Array, both: Array | None) -> None:
        sums = cupy.empty((2, nest.rows), _float64)
        find(dy, x, stats, s, sums)
        use(dy, x, stats, sums, s, dx)
        if of_parameters:
            of_parameters_alone(dy, x, stats, s, None, both)

    return run


def _parameters_alone(nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool) -> Run:
    find = _sums(norm_plan.of_parameters(nest), nest, storage, compute, parameter, aligned, None, compute)

    def run(dy: Array, x: Array, stats: Array, s: Array | None, dx: None, both: Array) -> None:  # noqa: ARG001
        find(dy, x, stats, None, both)

    return run


@_cached
def _sums(
    loops: norm_plan.Loops,
    nest: Nest,
    storage: Type,
    compute: Type,
    parameter: Type,
    aligned: bool,
    equation: Equation | None,
    out: Type,
) -> Run:
    """The two sums over some loops, without a detour over runs."""
    find, walk = _partial_sums(loops, nest, storage, compute, parameter, aligned)
    kernel = _grads.kernel("merge_chunks", walk.index, out)
    results, chunks, scalars = walk.index.type(walk.results), np.int32(walk.chunks), _scalars(equation)
    grid = (blocks(walk.results, norm_plan.BLOCK),)

    def run(dy: Array, x: Array, stats: Array, s: Array | None, result: Array) -> None:
        of_rows = stats if equation else None
        arguments = (results, chunks, find(dy, x, stats, s), of_rows, *scalars, result)
        kernel(grid, (norm_plan.BLOCK,), arguments)

    return run


def _partial_sums(
    loops: norm_plan.Loops, nest: Nest, storage: Type, compute: Type, parameter: Type, aligned: bool
) -> tuple[Run, norm_plan.Walk]:
    walk = _with_struct(norm_plan.walk(loops, nest.rows * nest.columns, storage.itemsize, aligned))
    kernel = _grads.kernel(f"grads_{walk.form}", storage, compute, parameter, walk.index, walk.width, walk.team)
    rows = walk.index.type(nest.rows)

    def run(dy: Array, x: Array, stats: Array, s: Array | None) -> Array:
        partial = cupy.empty((2, walk.chunks, walk.results), _float64)
        kernel(walk.grid, walk.block, (walk.loops, rows, walk.chunk, dy, x, stats, s, partial))
        return partial

    return run, walk


def _merge(
    loops: norm_plan.Loops, nest: Nest, chunks: int, parameter: Type, out: Type, equation: Equation | None
) -> Run:
    index = index_type(nest.rows * nest.columns)
    kernel = _grads.kernel("merge_runs", parameter, index, out)
    packed, runs = Struct(loops.packed(index)), index.type(loops.results * loops.terms)
    scalars = _scalars(equation)
    grid, parts = (blocks(loops.results, 4),), np.int32(chunks)

    def run(partial: Array, s: Array | None, stats: Array | None, result: Array) -> None:
        kernel(grid, (128,), (packed, runs, parts, partial, s, stats, *scalars, result))

    return run
