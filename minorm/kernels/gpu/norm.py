"""The normalization kernels on CuPy arrays: the functions of kernels/protocol.py.

Which kernels run, and with what arguments, is decided once for a nest and its types, by norm_forward.py and
norm_backward.py on the arithmetic of norm_plan.py; a call then costs little more than its launches.
"""

from __future__ import annotations

from typing import Any

import cupy

from minorm.devices import dtypes
from minorm.kernels.gpu.launch import is_aligned
from minorm.kernels.gpu.memory import owned
from minorm.kernels.gpu.plans import norm_backward, norm_forward, norm_plan
from minorm.kernels.gpu.plans.norm_arguments import Array, nobody, running_of, types_of
from minorm.kernels.protocol import Running, Statistics
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

activations = ("relu",)


def forward(
    nest: Nest,
    x: Array,
    s: Array | None,
    b: Array | None,
    equation: Equation,
    dtype: Any = None,
    running: Running | None = None,
    activation: str | None = None,
    residual: Array | None = None,
) -> tuple[Array, Statistics]:
    """y and the statistics; `running` is updated in the same launch."""
    compute, s, b, parameter = types_of(x, s, b, dtype)
    y, stats = cupy.empty_like(x), cupy.empty((4, nest.rows), dtypes.float64)
    kept, of_running = running_of(running, nest.columns)
    aligned, ending = is_aligned(x, s, b, residual), _ending(activation, residual)
    run = norm_forward.forward(nest, x.dtype, compute, parameter, of_running, aligned, equation, ending)
    run(x, s, b, residual, y, stats, kept)
    if running is not None:
        running.changed = True
    return y, Statistics(stats)


def moments(nest: Nest, x: Array, centered: bool, dtype: Any = None) -> tuple[Array, Array, Array]:
    """k, d, var."""
    compute = types_of(x, None, None, dtype)[0]
    stats = cupy.empty((4, nest.rows), dtypes.float64)
    rule = Equation(1.0, centered)
    norm_forward.moments(nest, x.dtype, compute, is_aligned(x), rule)(x, stats)
    return stats[0], stats[1], stats[2]


def apply(
    nest: Nest,
    x: Array,
    stats: Statistics,
    s: Array | None,
    b: Array | None,
    dtype: Any = None,
    activation: str | None = None,
    residual: Array | None = None,
) -> Array:
    """y = xhat * s + b, or max(y + residual, 0)."""
    compute, s, b, parameter = types_of(x, s, b, dtype)
    y = cupy.empty_like(x)
    aligned, ending = is_aligned(x, s, b, residual), _ending(activation, residual)
    run = norm_forward.apply(nest, x.dtype, compute, parameter, dtypes.float32, aligned, ending)
    run(x, stats.block, s, b, residual, y, nobody())
    return y


def _ending(activation: str | None, residual: Array | None) -> int:
    if activation is None:
        return norm_forward.PLAIN
    return norm_forward.RELU if residual is None else norm_forward.RESIDUAL_RELU


def backward(
    nest: Nest,
    dy: Array,
    x: Array,
    stats: Statistics,
    s: Array | None,
    equation: Equation,
    needs: tuple[bool, bool] = (True, True),
    dtype: Any = None,
    y: Array | None = None,
    dresidual: Array | None = None,
) -> tuple[Array | None, Array | None, Array | None]:
    """dx, ds, db."""
    compute, s, _, parameter = types_of(x, s, None, dtype)
    dx = cupy.empty_like(x) if needs[0] else None
    both = cupy.empty((2, nest.param_size), compute) if needs[1] else None
    aligned = is_aligned(x, dy, s, y, dresidual)
    run = norm_backward.backward(nest, x.dtype, compute, parameter, aligned, equation, *needs, y is not None)
    run(dy, x, y, stats.block, s, dx, both, dresidual)
    return (dx, None, None) if both is None else (dx, owned(both[1]), owned(both[0]))


def grad_sums(
    nest: Nest, dy: Array, x: Array, stats: Statistics, s: Array | None, dtype: Any = None
) -> tuple[Array, Array]:
    """sum_g, sum_gx."""
    compute, s, _, parameter = types_of(x, s, None, dtype)
    sums = cupy.empty((2, nest.rows), dtypes.float64)
    loops, aligned = norm_plan.of_statistics(nest), is_aligned(x, dy, s)
    run = norm_backward.sums_of(loops, nest, x.dtype, compute, parameter, aligned, None, dtypes.float64)
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
    compute, s, _, parameter = types_of(x, s, None, dtype)
    sums = None
    if sum_g is not None or sum_gx is not None:
        sums = cupy.zeros((2, nest.rows), dtypes.float64)
        for row, given in zip(sums, (sum_g, sum_gx), strict=True):
            if given is not None:
                row[...] = given
    dx = cupy.empty_like(x)
    run = norm_backward.grad_input(nest, x.dtype, compute, parameter, is_aligned(x, dy, s), False)
    run(dy, x, None, stats.block, sums, s, dx)
    return dx
