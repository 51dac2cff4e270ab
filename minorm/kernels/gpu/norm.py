"""The normalization kernels on CuPy arrays: the functions of kernels/protocol.py.

norm_forward.py and norm_backward.py plan the kernels and their arguments once for a nest and its types; norm_plan.py
does the arithmetic. A BoundKernels keeps the plans for one nest, equation and type, so a call takes little more time
than its launches. The functions of the protocol are at the end; each calls a BoundKernels.
"""

from __future__ import annotations

import functools
from typing import Any

import cupy

from minorm.devices import dtypes
from minorm.kernels.gpu import launch, memory
from minorm.kernels.gpu.plans import norm_backward, norm_forward
from minorm.kernels.gpu.plans.norm_arguments import Array, no_running, running_of, types_of
from minorm.kernels.order import is_in_rows
from minorm.kernels.protocol import Running, Statistics
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

activations = ("relu",)
_FLOAT64 = dtypes.float64


class BoundKernels:
    """The functions of kernels/protocol.py, bound to one nest, equation and pair of types."""

    __slots__ = ("computed", "dtype", "equation", "nest", "plans", "stored")

    def __init__(self, nest: Nest, equation: Equation, stored: Any, dtype: Any = None) -> None:
        self.nest, self.equation, self.stored, self.dtype = nest, equation, stored, dtype
        self.computed = dtypes.compute_type(stored) if dtype is None else dtype
        self.plans: dict[Any, Any] = {}

    def _plan(self, make: Any, *how: Any) -> Any:
        """Return the plan that make(...) returns for this nest and these types. The plan is kept for the next call."""
        key = make, *how
        found = self.plans.get(key)
        if found is None:
            found = self.plans[key] = make(self.nest, self.stored, self.computed, *how)
        return found

    def forward(
        self,
        x: Array,
        s: Array | None,
        b: Array | None,
        running: Running | None = None,
        activation: str | None = None,
        residual: Array | None = None,
    ) -> tuple[Array, Statistics]:
        """Return y, the normalized x, and the statistics of x; update `running` in the same launches."""
        s, b, parameter = types_of(self.computed, s, b)
        y, stats = memory.empty_like(x), memory.empty((4, self.nest.rows), _FLOAT64)
        kept, of_running = running_of(running, self.nest.columns)
        aligned, ending = launch.is_aligned(x, s, b, residual), _ending(activation, residual)
        run = self._plan(norm_forward.forward, parameter, of_running, aligned, self.equation, ending)
        run(x, s, b, residual, y, stats, kept)
        if running is not None:
            running.changed = True
        return y, Statistics(stats)

    def moments(self, x: Array) -> tuple[Array, Array, Array]:
        """Return k, d and var for each row of x: the mean is k + d, and var is the variance."""
        stats = memory.empty((4, self.nest.rows), _FLOAT64)
        self._plan(norm_forward.moments, launch.is_aligned(x), self.equation)(x, stats)
        return stats[0], stats[1], stats[2]

    def apply(
        self,
        x: Array,
        stats: Statistics,
        s: Array | None,
        b: Array | None,
        activation: str | None = None,
        residual: Array | None = None,
    ) -> Array:
        """Return y = xhat * s + b, where xhat is the normalized x. With an activation, return max(y + residual, 0)."""
        s, b, parameter = types_of(self.computed, s, b)
        y = memory.empty_like(x)
        aligned, ending = launch.is_aligned(x, s, b, residual), _ending(activation, residual)
        run = self._plan(norm_forward.apply, parameter, dtypes.float32, aligned, ending)
        run(x, stats.block, s, b, residual, y, no_running())
        return y

    def backward(
        self,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        needs: tuple[bool, bool] = (True, True),
        y: Array | None = None,
        dresidual: Array | None = None,
    ) -> tuple[Array | None, Array | None, Array | None]:
        """Return dx, ds and db, the gradients of x, scale s and bias b; fill `dresidual` if it is given."""
        s, _, parameter = types_of(self.computed, s, None)
        dx = memory.empty_like(x) if needs[0] else None
        size = self.nest.param_size * self.computed.itemsize
        both = memory.scratch(2 * size) if needs[1] else None
        aligned = launch.is_aligned(x, dy, s, y, dresidual)
        run = self._plan(norm_backward.backward, parameter, aligned, self.equation, *needs, y is not None)
        run(dy, x, y, stats.block, s, dx, both, dresidual)
        if both is None:
            return dx, None, None
        db, ds = (memory.at(place, (self.nest.param_size,), self.computed) for place in (both, both + size))
        return dx, ds, db

    def grad_sums(self, dy: Array, x: Array, stats: Statistics, s: Array | None) -> tuple[Array, Array]:
        """Return sum_g and sum_gx: for each row, the sums of g = dy * s and of g * xhat."""
        s, _, parameter = types_of(self.computed, s, None)
        sums = memory.empty((2, self.nest.rows), _FLOAT64)
        run = self._plan(norm_backward.row_sums, parameter, launch.is_aligned(x, dy, s))
        run(dy, x, stats.block, s, sums)
        return sums[0], sums[1]

    def grad_params(self, dy: Array, x: Array, stats: Statistics) -> tuple[Array, Array]:
        """Return ds and db, the gradients of the scale s and the bias b."""
        return self.backward(dy, x, stats, None, (False, True))[1:]

    def grad_input(
        self,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        sum_g: Array | None,
        sum_gx: Array | None,
    ) -> Array:
        """Return dx = rstd * (g - sum_g / m - xhat * sum_gx / m), where g = dy * s and m is the length of a row."""
        s, _, parameter = types_of(self.computed, s, None)
        sums = None
        if sum_g is not None or sum_gx is not None:
            sums = cupy.zeros((2, self.nest.rows), _FLOAT64)
            for row, given in zip(sums, (sum_g, sum_gx), strict=True):
                if given is not None:
                    row[...] = given
        dx = memory.empty_like(x)
        run = self._plan(norm_backward.grad_input, parameter, launch.is_aligned(x, dy, s), False)
        run(dy, x, None, stats.block, sums, s, dx)
        return dx

    def statistics(self, mean: Array, var: Array) -> Statistics:
        """Return Statistics made from a given mean and var."""
        covered = mean.dtype in dtypes.FLOATS and var.dtype == mean.dtype
        if not (covered and is_in_rows(mean) and is_in_rows(var)):
            return Statistics.given(mean, var, self.equation, self.computed)
        stats = memory.empty((4, self.nest.rows), _FLOAT64)
        self._plan(norm_forward.given, mean.dtype, self.equation)(mean, var, stats)
        return Statistics(stats)


bind = functools.lru_cache(maxsize=4096)(BoundKernels)


def _ending(activation: str | None, residual: Array | None) -> int:
    if activation is None:
        return norm_forward.PLAIN
    return norm_forward.RELU if residual is None else norm_forward.RESIDUAL_RELU


# The protocol


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
    """Return y, the normalized x, and the statistics of x."""
    return bind(nest, equation, x.dtype, dtype).forward(x, s, b, running, activation, residual)


def moments(nest: Nest, x: Array, centered: bool, dtype: Any = None) -> tuple[Array, Array, Array]:
    """Return k, d and var for each row of x: the mean is k + d, and var is the variance."""
    return bind(nest, Equation(1.0, centered), x.dtype, dtype).moments(x)


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
    """Return y = xhat * s + b, where xhat is the normalized x. With an activation, return max(y + residual, 0)."""
    return bind(nest, Equation(), x.dtype, dtype).apply(x, stats, s, b, activation, residual)


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
    """Return dx, ds and db, the gradients of x, of the scale s and of the bias b."""
    return bind(nest, equation, x.dtype, dtype).backward(dy, x, stats, s, needs, y, dresidual)


def grad_sums(
    nest: Nest, dy: Array, x: Array, stats: Statistics, s: Array | None, dtype: Any = None
) -> tuple[Array, Array]:
    """Return sum_g and sum_gx: for each row, the sums of g = dy * s and of g * xhat."""
    return bind(nest, Equation(), x.dtype, dtype).grad_sums(dy, x, stats, s)


def grad_params(nest: Nest, dy: Array, x: Array, stats: Statistics, dtype: Any = None) -> tuple[Array, Array]:
    """Return ds and db, the gradients of the scale s and the bias b."""
    return bind(nest, Equation(), x.dtype, dtype).grad_params(dy, x, stats)


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
    """Return dx = rstd * (g - sum_g / m - xhat * sum_gx / m), where g = dy * s and m is the length of a row."""
    return bind(nest, Equation(), x.dtype, dtype).grad_input(dy, x, stats, s, sum_g, sum_gx)
