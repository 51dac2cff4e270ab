"""The normalization kernels on NumPy arrays: allocate what minorm_ext/norm/norm.pyx fills, and say in which types.

All four float types are read and written as they are stored, and computed in float32 or float64: a kernel widens them
in registers, or up to 4096 at a time in the innermost cache, and rounds them once. A ReLU is in the same pass where
they are widened in registers. See minorm/kernels/protocol.py for what each function computes.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.cpu import elementwise
from minorm.kernels.cpu.memory import empty, empty_like
from minorm.kernels.cpu.operands import STORAGE
from minorm.kernels.protocol import Running, Statistics
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

Array = Any
_kernels = minorm_ext.kernels("norm")
_threads = minorm_ext.get_num_threads
_FLOAT32, _FLOAT64 = dtypes.float32, dtypes.float64
activations: tuple[str, ...] = ("relu",)
_COMPUTE, _GIVEN, _ABSENT = 0, 1, 2  # where backward gets its sums from


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
    """y and the statistics; `running` is updated when they are there."""
    if activation is not None and not is_one_pass(x, dtype):
        y, stats = forward(nest, x, s, b, equation, dtype, running)
        return _activated(y, residual), stats
    y = empty_like(x)
    block = empty((4, nest.rows), _FLOAT64)
    count = None if mask is None else empty((nest.rows,), _FLOAT64)
    rule = equation.eps, equation.centered, equation.guard
    _forward(nest, x, s, b, y, block, rule, True, dtype, mask, count, activation is not None, residual)
    if running is not None and not (running.update_nonfinite or _are_small(block, running.mean.dtype, x.dtype)):
        shape = running.mean.shape
        running.update((block[0] + block[1]).reshape(shape), block[2].reshape(shape), nest.columns)
    elif running is not None:
        rates = running.rates(nest.columns)
        _kernels.blend(running.mean, running.var, STORAGE[running.mean.dtype], block, nest.rows, *rates)
        if running.batches is not None:
            running.batches[...] = running.batches.item() + 1  # NumPy's own += of one number takes 0.7 us
        running.changed = True
    return y, Statistics(block, count)


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
    """dx, ds, db; and dresidual, if it is given."""
    if y is not None and (not is_one_pass(x, dtype) or (dresidual is not None and not needs[0])):
        dy, y = elementwise.relu_grad(dy, y), None
        if dresidual is not None:
            dresidual[...] = dy
    origin, others = _COMPUTE if needs[0] else _ABSENT, (y, None if y is None else dresidual)
    return _backward(nest, dy, x, stats, s, None, needs, equation, origin, dtype, mask, *others)


def plan_of(nest: Nest, stored: Any, computed: Any, scale: bool = True, other: bool = True) -> dict[str, Any]:
    """How the kernels would take these loops: Plan in minorm_ext/norm/plan.pxd, which `minorm.explain` prints.

    scale: is there one; other: is there a bias, or does backward fill the gradients of both.
    """
    return _kernels.plan(nest.code, STORAGE[stored], computed == _FLOAT32, False, scale, other, _threads())


def _are_small(block: Array, running: Any, stored: Any) -> bool:
    """Are the statistics finite, and so far from the largest number of the type that the running ones stay finite?"""
    found = block[:3].reshape(-1)
    if stored is not _FLOAT64:
        return bool(found.dot(found) < _limit(running))
    with np.errstate(over="ignore"):  # only there can squares overflow; asking for this takes longer than the sum
        return bool(found.dot(found) < _limit(running))


@functools.cache
def _limit(dtype: Any) -> float:
    """The limit of their sum of squares; if the sum itself overflows, that says only that they are large."""
    return (min(float(dtypes.finfo(dtype).max), 1e150) / 4) ** 2


def is_one_pass(x: Array, dtype: Any = None) -> bool:
    """Is an activation in the same pass? Where the loops take x as it lies; else it is an operation of its own."""
    computed = dtypes.compute_type(x.dtype) if dtype is None else dtype
    return bool(_kernels.takes_activations(STORAGE[x.dtype], computed == _FLOAT32))


def moments(
    nest: Nest, x: Array, centered: bool, dtype: Any = None, mask: Array | None = None
) -> tuple[Array, Array, Array]:
    """k, d, var."""
    block = np.empty((4, nest.rows), _FLOAT64)
    count = None if mask is None else np.empty(nest.rows)
    _forward(nest, x, None, None, None, block, (1.0, centered, False), True, dtype, mask, count)
    return block[0], block[1], block[2]


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
    """y = xhat * s + b, or max(y + residual, 0)."""
    if activation is not None and not is_one_pass(x, dtype):
        return _activated(apply(nest, x, stats, s, b, dtype), residual)
    y, relu = empty_like(x), activation is not None
    _forward(nest, x, s, b, y, stats.block, (0.0, True, False), False, dtype, mask, None, relu, residual)
    return y


def grad_sums(
    nest: Nest,
    dy: Array,
    x: Array,
    stats: Statistics,
    s: Array | None,
    dtype: Any = None,
    mask: Array | None = None,
) -> tuple[Array, Array]:
    """sum_g, sum_gx."""
    sums = np.empty((2, nest.rows), _FLOAT64)
    _backward(nest, dy, x, stats, s, sums, (False, False), Equation(), _COMPUTE, dtype, mask)
    return sums[0], sums[1]


def grad_params(
    nest: Nest, dy: Array, x: Array, stats: Statistics, dtype: Any = None, mask: Array | None = None
) -> tuple[Array, Array]:
    """ds, db."""
    return _backward(nest, dy, x, stats, None, None, (False, True), Equation(), _ABSENT, dtype, mask)[1:]


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
    """dx = rstd * (g - sum_g / m - xhat * sum_gx / m)."""
    if sum_g is None and sum_gx is None:
        return _backward(nest, dy, x, stats, s, None, (True, False), Equation(), _ABSENT, dtype, mask)[0]
    zero = np.zeros(nest.rows)
    sums = np.stack([zero if sum_g is None else sum_g, zero if sum_gx is None else sum_gx])
    return _backward(nest, dy, x, stats, s, sums, (True, False), Equation(), _GIVEN, dtype, mask)[0]


def _forward(
    nest: Nest,
    x: Array,
    s: Array | None,
    b: Array | None,
    y: Array | None,
    block: Array,
    equation: tuple[float, bool, bool],
    moments: bool,
    dtype: Any,
    mask: Array | None = None,
    count: Array | None = None,
    relu: bool = False,
    residual: Array | None = None,
) -> None:
    others = mask, count, relu, _raw(residual)
    if x.dtype is _FLOAT32 and dtype is None and _is(s, _FLOAT32) and _is(b, _FLOAT32):  # nearly always
        _kernels.forward(nest.code, 2, True, x, s, b, y, block, *equation, moments, _threads(), *others)
        return
    dtype = dtypes.compute_type(x.dtype) if dtype is None else dtype
    _kernels.forward(
        nest.code, STORAGE[x.dtype], dtype == _FLOAT32, _raw(x), _in(s, dtype), _in(b, dtype), _raw(y), block,
        *equation, moments, _threads(), *others,
    )  # fmt: skip


def _backward(
    nest: Nest,
    dy: Array,
    x: Array,
    stats: Statistics,
    s: Array | None,
    sums: Array | None,
    needs: tuple[bool, bool],
    equation: Equation,
    origin: int,
    dtype: Any,
    mask: Array | None,
    y: Array | None = None,
    dresidual: Array | None = None,
) -> tuple[Array, Array, Array]:
    dtype = dtypes.compute_type(x.dtype) if dtype is None else dtype
    dx = empty_like(x) if needs[0] else None
    ds = db = None
    if needs[1]:
        ds, db = np.empty(nest.param_size, dtype), np.empty(nest.param_size, dtype)
    count = None
    if mask is not None and needs[0] and origin != _ABSENT:
        assert stats.count is not None
        count = stats.count.astype(_FLOAT64, copy=False)
    _kernels.backward(
        nest.code, STORAGE[x.dtype], dtype == _FLOAT32, _raw(dy), _raw(x), stats.block, _in(s, dtype), sums, _raw(dx),
        ds, db, equation.eps, equation.centered, equation.guard, origin, empty, _threads(), mask, count, _raw(y),
        _raw(dresidual),
    )  # fmt: skip
    return dx, ds, db


def _activated(y: Array, residual: Array | None) -> Array:
    return elementwise.relu(y if residual is None else elementwise.add(y, residual))


def _is(array: Array | None, dtype: Any) -> bool:
    return array is None or array.dtype is dtype


def _in(array: Array | None, dtype: Any) -> Array | None:
    """A parameter in the type computed in."""
    return array if array is None or array.dtype is dtype else array.astype(dtype, copy=False)


def _raw(array: Array | None) -> Array | None:
    """bfloat16 has no buffer protocol: its bits have."""
    return array if array is None or array.dtype.char in "efd" else array.view(np.uint16)
