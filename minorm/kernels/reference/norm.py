"""The specification of the normalization kernels: it views the data as four loops and writes the formula.

`four(nest, x)` is a view of x with the axes (keep, keep, reduce, reduce). Statistics have the shape (keep, keep, 1, 1),
and parameters have length 1 along axes where they do not vary, so both broadcast. Elements are computed in `dtype`, and
sums in float64. With a mask, sums are taken over the elements where the mask is True, and m is the number of these
elements. Where the mask is False, the results are 0. An activation follows as a separate operation.
minorm/kernels/protocol.py explains the letters.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.protocol import Running, Statistics
from minorm.kernels.reference.elementwise import relu, relu_grad
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Loop, Nest

Array = Any
activations: tuple[str, ...] = ("relu",)
REDUCED = (2, 3)


def plan_of(*_: Any) -> dict[str, Any]:
    """Return the plan that `mn.explain` shows if the reference runs instead of the kernels. It contains no choices."""
    return {"strategy": "reference"}


def is_one_pass(*_: Any) -> bool:
    """Return False, since the reference computes an activation in a separate pass."""
    return False


def moments(
    nest: Nest, x: Array, centered: bool, dtype: Any = None, mask: Array | None = None
) -> tuple[Array, Array, Array]:
    """Return k, d and var for each row of x: the mean is k + d, and var is the variance.

    The first pass over x computes the mean, and the second pass subtracts the mean.
    """
    x4 = _in_computed_type(four(nest, x), dtype)
    if not centered:
        zero = np.zeros_like(x, np.float64, shape=(nest.rows,))
        return zero, zero, _mean(nest, np.square(_zero_where_masked(nest, x4, mask), dtype=np.float64), mask)
    k = _mean(nest, x4, mask).astype(x4.dtype)
    t = _zero_where_masked(nest, x4, mask) - kept(nest, k)
    d = _mean(nest, t, mask)
    return k.astype(np.float64), d, _mean(nest, np.square(t - kept(nest, d)), mask)


def apply(
    nest: Nest,
    x: Array,
    stats: Statistics,
    s: Array | None,
    b: Array | None,
    dtype: Any = None,
    mask: Array | None = None,
    activation: str | None = None,
    residual: Array | None = None,
) -> Array:
    """Return y = xhat * s + b, where xhat is the normalized x. With an activation, return max(y + residual, 0)."""
    y = _xhat(nest, x, stats, dtype, mask)
    if s is not None:
        y = y * parameters(nest, s).astype(y.dtype, copy=False)
    if b is not None:
        y = y + parameters(nest, b).astype(y.dtype, copy=False)
    y = like(nest, _zero_where_masked(nest, y, mask), x)
    if residual is not None:
        y = y + residual
    return y if activation is None else relu(y)


def grad_sums(
    nest: Nest,
    dy: Array,
    x: Array,
    stats: Statistics,
    s: Array | None,
    dtype: Any = None,
    mask: Array | None = None,
) -> tuple[Array, Array]:
    """Return sum_g and sum_gx: for each row, the sums of g = dy * s and of g * xhat."""
    g = _g(nest, dy, s, dtype, mask)
    return _sum(g), _sum(g * _xhat(nest, x, stats, dtype, mask))


def grad_params(
    nest: Nest, dy: Array, x: Array, stats: Statistics, dtype: Any = None, mask: Array | None = None
) -> tuple[Array, Array]:
    """Return ds and db, the gradients of the scale s and the bias b."""
    dy4 = _g(nest, dy, None, dtype, mask)
    ds, db = parameter_sums(nest, dy4 * _xhat(nest, x, stats, dtype, mask)), parameter_sums(nest, dy4)
    return ds.astype(dy4.dtype), db.astype(dy4.dtype)


def grad_input(
    nest: Nest,
    dy: Array,
    x: Array,
    stats: Statistics,
    s: Array | None,
    sum_g: Array | None,
    sum_gx: Array | None,
    dtype: Any = None,
    mask: Array | None = None,
) -> Array:
    """Return dx = rstd * (g - sum_g / m - xhat * sum_gx / m), where g = dy * s and m is the length of a row."""
    m = np.maximum(nest.columns if mask is None else counts(nest, mask), 1)
    dx = _g(nest, dy, s, dtype, mask)
    if sum_g is not None:
        dx = dx - kept(nest, sum_g / m)
    if sum_gx is not None:
        dx = dx - _xhat(nest, x, stats, dtype, mask) * kept(nest, sum_gx / m)
    return like(nest, _zero_where_masked(nest, dx * kept(nest, stats.rstd), mask), x)


def forward(
    nest: Nest,
    x: Array,
    s: Array | None,
    b: Array | None,
    equation: Equation,
    dtype: Any = None,
    running: Running | None = None,
    mask: Array | None = None,
    activation: str | None = None,
    residual: Array | None = None,
) -> tuple[Array, Statistics]:
    """Return y, the normalized x, and the statistics of x; update `running` with the statistics."""
    k, d, var = moments(nest, x, equation.centered, dtype, mask)
    count = None if mask is None else counts(nest, mask)
    with np.errstate(divide="ignore"):
        stats = Statistics.of(k, d, var, equation.rstd(var, count), count=count)
    y = apply(nest, x, stats, s, b, dtype, mask, activation, residual)
    if running is not None:
        update(running, nest, stats)
    return y, stats


def update(running: Running, nest: Nest, stats: Statistics) -> None:
    """Set running = running * momentum + batch * (1 - momentum)."""
    shape = running.mean.shape
    running.update(stats.mean.reshape(shape), stats.var.reshape(shape), nest.columns)


def backward(
    nest: Nest,
    dy: Array,
    x: Array,
    stats: Statistics,
    s: Array | None,
    equation: Equation,
    needs: tuple[bool, bool] = (True, True),
    dtype: Any = None,
    mask: Array | None = None,
    y: Array | None = None,
    dresidual: Array | None = None,
) -> tuple[Array | None, Array | None, Array | None]:
    """Return dx, ds and db, the gradients of x, scale s and bias b; fill `dresidual` if it is given."""
    dx = ds = db = None
    if y is not None:
        dy = relu_grad(dy, y)
    if dresidual is not None:
        dresidual[...] = dy
    if needs[0]:
        sum_g, sum_gx = grad_sums(nest, dy, x, stats, s, dtype, mask)
        slope = equation.slope(stats.var)
        dx = grad_input(nest, dy, x, stats, s, sum_g if equation.centered else None, sum_gx * slope, dtype, mask)
    if needs[1]:
        ds, db = grad_params(nest, dy, x, stats, dtype, mask)
    return dx, ds, db


# Masks


def counts(nest: Nest, mask: Array) -> Array:
    """Return, for each row, the number of elements where the mask is True."""
    return four(nest, mask).sum(axis=REDUCED, dtype=np.int64).reshape(-1)


def _zero_where_masked(nest: Nest, values: Array, mask: Array | None) -> Array:
    """Return values on the four loop axes. Where the mask is False, a value is replaced by 0, even if it is NaN."""
    return values if mask is None else np.where(four(nest, mask), values, values.dtype.type(0))


# Views: arrays as loops


def four(nest: Nest, x: Array) -> Array:
    """Return x as a view with the axes (keep outer, keep inner, reduce outer, reduce inner)."""
    return _as_loops(x.reshape(nest.shape).transpose(nest.order), nest.two_by_two)


def parameters(nest: Nest, s: Array) -> Array:
    """Return s or b as a view with the four loop axes. An axis along which the parameter does not vary has length 1."""
    return _as_loops(s, _parameter_loops(nest))


def parameter_sums(nest: Nest, terms: Array) -> Array:
    """Sum over the loop axes along which the parameters do not vary; return the sums as a flat array like s and b."""
    shared = tuple(axis for axis, loop in enumerate(nest.two_by_two) if loop.param == 0)
    total = terms.sum(axis=shared, dtype=np.float64, keepdims=True)
    return _from_loops(total, _parameter_loops(nest)).reshape(-1)


def _parameter_loops(nest: Nest) -> tuple[Loop, ...]:
    return tuple(Loop(loop.count if loop.param else 1, loop.data, loop.param) for loop in nest.two_by_two)


def _as_loops(gapless: Array, loops: tuple[Loop, ...]) -> Array:
    """Return an array without gaps as a view with one axis for each loop. In memory, the loops are sorted from the
    longest step to the shortest; the view has the axes in the order of `loops`.
    """
    order = _by_step(loops)
    return gapless.reshape([loops[i].count for i in order]).transpose([order.index(i) for i in range(4)])


def _from_loops(y4: Array, loops: tuple[Loop, ...]) -> Array:
    """Return an array of four loop axes as an array in memory order. This is the inverse of `_as_loops`."""
    return y4.transpose(_by_step(loops))


def _by_step(loops: tuple[Loop, ...]) -> list[int]:
    return sorted(range(4), key=lambda i: -loops[i].data)


def like(nest: Nest, y4: Array, x: Array) -> Array:
    """Return the elements of an array with four loop axes as an array of x's shape, type and memory order."""
    y = np.empty_like(x)
    four(nest, y)[...] = y4
    return y


def _in_computed_type(values: Array, dtype: Any = None) -> Array:
    """Return values in `dtype`. If `dtype` is None, return 16-bit values in float32, and all others in their type."""
    return values.astype(dtypes.compute_type(values.dtype) if dtype is None else dtype, copy=False)


def kept(nest: Nest, statistic: Array) -> Array:
    """Return a statistic with one number for each row in a shape that broadcasts against the four loop axes."""
    return statistic.reshape(nest.two_by_two[0].count, nest.two_by_two[1].count, 1, 1)


def _xhat(nest: Nest, x: Array, stats: Statistics, dtype: Any, mask: Array | None = None) -> Array:
    x4 = _zero_where_masked(nest, _in_computed_type(four(nest, x), dtype), mask)
    k, d, rstd = (kept(nest, v.astype(x4.dtype, copy=False)) for v in (stats.k, stats.d, stats.rstd))
    return ((x4 - k) - d) * rstd


def _g(nest: Nest, dy: Array, s: Array | None, dtype: Any, mask: Array | None = None) -> Array:
    g = _zero_where_masked(nest, _in_computed_type(four(nest, dy), dtype), mask)
    return g if s is None else g * parameters(nest, s).astype(g.dtype, copy=False)


def _mean(nest: Nest, terms: Array, mask: Array | None) -> Array:
    if mask is None:
        return terms.mean(axis=REDUCED, dtype=np.float64).reshape(-1)
    return _sum(_zero_where_masked(nest, terms, mask)) / np.maximum(counts(nest, mask), 1)


def _sum(terms: Array) -> Array:
    return terms.sum(axis=REDUCED, dtype=np.float64).reshape(-1)
