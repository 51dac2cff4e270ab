"""The normalization kernels on NumPy arrays: allocate what minorm_ext fills, and look after types.

float32 and float64 run in minorm_ext/norm.pyx. The 16-bit types are widened to float32 first and rounded once at the
end. See minorm/kernels/protocol.py for what each function computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import minorm_ext
from minorm import dtypes
from minorm.equation import Equation
from minorm.kernels.cpu.memory import empty, empty_like
from minorm.kernels.protocol import Statistics
from minorm.nest import Nest

Array = Any
_kernels = minorm_ext.kernels("norm")
_threads = minorm_ext.get_num_threads
_FLOAT64 = np.dtype(np.float64)
_COMPUTE, _GIVEN, _ABSENT = 0, 1, 2  # where backward gets its sums from


def forward(nest: Nest, x: Array, s: Array | None, b: Array | None, equation: Equation) -> tuple[Array, Statistics]:
    """y and the statistics."""
    half = x.dtype in dtypes.HALVES
    if half:
        dtype = x.dtype
        x, s, b = _wide(x), _wide(s), _wide(b)
    y = empty_like(x)
    block = empty((4, nest.rows), _FLOAT64)
    _kernels.forward(nest.code, x, s, b, y, block, equation.eps, equation.centered, equation.guard, True, _threads())
    return (y.astype(dtype) if half else y), Statistics(block)


def backward(
    nest: Nest,
    dy: Array,
    x: Array,
    stats: Statistics,
    s: Array | None,
    equation: Equation,
    needs: tuple[bool, bool] = (True, True),
) -> tuple[Array | None, Array | None, Array | None]:
    """dx, ds, db."""
    return _backward(nest, dy, x, stats, s, None, needs, equation, _COMPUTE if needs[0] else _ABSENT)


def form(nest: Nest) -> tuple[str, int]:
    """The inner loop that these loops take, and how many statistics advance together in it; `minorm.explain` asks."""
    return _kernels.form(nest.code)


def moments(nest: Nest, x: Array, centered: bool) -> tuple[Array, Array, Array]:
    """k, d, var."""
    block = np.empty((4, nest.rows), _FLOAT64)
    _kernels.forward(nest.code, _wide(x), None, None, None, block, 1.0, centered, False, True, _threads())
    return block[0], block[1], block[2]


def apply(nest: Nest, x: Array, stats: Statistics, s: Array | None, b: Array | None) -> Array:
    """y = xhat * s + b."""
    dtype = x.dtype
    x, s, b = _wide(x), _wide(s), _wide(b)
    y = empty_like(x)
    _kernels.forward(nest.code, x, s, b, y, stats.block, 0.0, True, False, False, _threads())
    return y.astype(dtype, copy=False)


def grad_sums(nest: Nest, dy: Array, x: Array, stats: Statistics, s: Array | None) -> tuple[Array, Array]:
    """sum_g, sum_gx."""
    sums = np.empty((2, nest.rows), _FLOAT64)
    _backward(nest, dy, x, stats, s, sums, (False, False), Equation(), _COMPUTE)
    return sums[0], sums[1]


def grad_params(nest: Nest, dy: Array, x: Array, stats: Statistics) -> tuple[Array, Array]:
    """ds, db."""
    return _backward(nest, dy, x, stats, None, None, (False, True), Equation(), _ABSENT)[1:]


def grad_input(
    nest: Nest, dy: Array, x: Array, stats: Statistics, s: Array | None, sum_g: Array | None, sum_gx: Array | None
) -> Array:
    """dx = rstd * (g - sum_g / m - xhat * sum_gx / m)."""
    if sum_g is None and sum_gx is None:
        return _backward(nest, dy, x, stats, s, None, (True, False), Equation(), _ABSENT)[0]
    zero = np.zeros(nest.rows)
    sums = np.stack([zero if sum_g is None else sum_g, zero if sum_gx is None else sum_gx])
    return _backward(nest, dy, x, stats, s, sums, (True, False), Equation(), _GIVEN)[0]


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
) -> tuple[Array, Array, Array]:
    half = x.dtype in dtypes.HALVES
    if half:
        dtype = x.dtype
        dy, x, s = _wide(dy), _wide(x), _wide(s)
    dx = empty_like(x) if needs[0] else None
    ds = db = None
    if needs[1]:
        ds, db = np.empty(nest.param_size, x.dtype), np.empty(nest.param_size, x.dtype)
    _kernels.backward(
        nest.code, dy, x, stats.block, s, sums, dx, ds, db,
        equation.eps, equation.centered, equation.guard, origin, _threads(),
    )  # fmt: skip
    if half:
        dx, ds, db = (None if array is None else array.astype(dtype) for array in (dx, ds, db))
    return dx, ds, db


def _wide(array: Array | None) -> Array | None:
    """The 16-bit types as float32."""
    return array.astype(np.float32) if array is not None and array.dtype in dtypes.HALVES else array
