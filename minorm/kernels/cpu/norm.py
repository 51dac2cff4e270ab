"""The normalization kernels on NumPy arrays. This module chooses types and allocates the results that
minorm_ext/norm/norm.pyx fills.

The kernels read and write all four float types as they are stored, and compute in float32 or float64. The elements are
widened in registers, or in blocks of up to 4096 elements in the first-level cache, and results are rounded once. A ReLU
runs in the same pass if the elements are widened in registers. minorm/kernels/protocol.py describes each function.

`BoundKernels` computes the functions. It packs the loops, the equation and the types into one struct when it is made,
so that a call passes little more than arrays. The functions of the protocol look up a BoundKernels and call it.
"""

from __future__ import annotations

import functools
import struct
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
_COMPUTE, _GIVEN, _ABSENT = 0, 1, 2  # the origin of backward's sums
_NO_LIMIT = -1.0


class BoundKernels:
    """The functions of kernels/protocol.py, bound to one nest, equation and pair of types."""

    __slots__ = ("bits", "code", "computed", "equation", "nest", "pieces", "stored")

    def __init__(self, nest: Nest, equation: Equation, stored: Any, computed: Any = None) -> None:
        self.nest, self.equation, self.stored = nest, equation, stored
        self.computed = dtypes.compute_type(stored) if computed is None else computed
        self.code = _form(nest, equation, stored, self.computed)
        self.pieces = _form(nest, Equation(), stored, self.computed)  # used with given statistics and sums
        self.bits = stored.char not in "efd"  # bfloat16 has no buffer protocol, but uint16 has

    def is_one_pass(self) -> bool:
        """Return True if an activation runs in the same pass, which needs kernels that read x as it is stored. If the
        result is False, the activation is a second pass.
        """
        return _takes_activations(self.stored, self.computed)

    def forward(
        self,
        x: Array,
        s: Array | None,
        b: Array | None,
        running: Running | None = None,
        mask: Array | None = None,
        activation: str | None = None,
        residual: Array | None = None,
    ) -> tuple[Array, Statistics]:
        """Return y, the normalized x, and the statistics of x; update `running` with the statistics."""
        if activation is not None and not self.is_one_pass():
            y, stats = self.forward(x, s, b, running)
            return _activated(y, residual), stats
        rows = self.nest.rows
        y, block = empty_like(x), empty((4, rows), _FLOAT64)
        count = None if mask is None else empty((rows,), _FLOAT64)
        self._fill(self.code, x, s, b, y, block, True, None if mask is None else (mask, count), activation, residual)
        if running is not None:
            _blend(running, block, self.nest)
        return y, Statistics(block, count)

    def backward(
        self,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        needs: tuple[bool, bool] = (True, True),
        mask: Array | None = None,
        y: Array | None = None,
        dresidual: Array | None = None,
    ) -> tuple[Array | None, Array | None, Array | None]:
        """Return dx, ds and db, the gradients of x, scale s and bias b; fill `dresidual` if it is given."""
        if y is not None and (not self.is_one_pass() or (dresidual is not None and not needs[0])):
            dy, y = elementwise.relu_grad(dy, y), None
            if dresidual is not None:
                dresidual[...] = dy
        relu = None if y is None else (self._raw(y), self._raw(dresidual))
        origin = _COMPUTE if needs[0] else _ABSENT
        return self._gradients(self.code, dy, x, stats, s, None, needs, origin, mask, relu)

    def moments(self, x: Array, mask: Array | None = None) -> tuple[Array, Array, Array]:
        """Return k, d and var for each row of x: the mean is k + d, and var is the variance."""
        block = np.empty((4, self.nest.rows), _FLOAT64)
        masked = None if mask is None else (mask, np.empty(self.nest.rows))
        self._fill(self.code, x, None, None, None, block, True, masked)
        return block[0], block[1], block[2]

    def apply(
        self,
        x: Array,
        stats: Statistics,
        s: Array | None,
        b: Array | None,
        mask: Array | None = None,
        activation: str | None = None,
        residual: Array | None = None,
    ) -> Array:
        """Return y = xhat * s + b, where xhat is the normalized x. With an activation, return max(y + residual, 0)."""
        if activation is not None and not self.is_one_pass():
            return _activated(self.apply(x, stats, s, b), residual)
        y, masked = empty_like(x), None if mask is None else (mask, None)
        self._fill(self.pieces, x, s, b, y, stats.block, False, masked, activation, residual)
        return y

    def grad_sums(
        self, dy: Array, x: Array, stats: Statistics, s: Array | None, mask: Array | None = None
    ) -> tuple[Array, Array]:
        """Return sum_g and sum_gx: for each row, the sums of g = dy * s and of g * xhat."""
        sums = np.empty((2, self.nest.rows), _FLOAT64)
        self._gradients(self.pieces, dy, x, stats, s, sums, (False, False), _COMPUTE, mask)
        return sums[0], sums[1]

    def grad_params(self, dy: Array, x: Array, stats: Statistics, mask: Array | None = None) -> tuple[Array, Array]:
        """Return ds and db, the gradients of the scale s and the bias b."""
        return self._gradients(self.pieces, dy, x, stats, None, None, (False, True), _ABSENT, mask)[1:]

    def grad_input(
        self,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        sum_g: Array | None,
        sum_gx: Array | None,
        mask: Array | None = None,
    ) -> Array:
        """Return dx = rstd * (g - sum_g / m - xhat * sum_gx / m), where g = dy * s and m is the length of a row."""
        if sum_g is None and sum_gx is None:
            return self._gradients(self.pieces, dy, x, stats, s, None, (True, False), _ABSENT, mask)[0]
        zero = np.zeros(self.nest.rows)
        sums = np.stack([zero if sum_g is None else sum_g, zero if sum_gx is None else sum_gx])
        return self._gradients(self.pieces, dy, x, stats, s, sums, (True, False), _GIVEN, mask)[0]

    def statistics(self, mean: Array, var: Array) -> Statistics:
        """Return Statistics made from a given mean and var."""
        kind = mean.dtype
        wide = var.dtype is kind and (kind is _FLOAT32 or kind is _FLOAT64)
        if not (wide and mean.flags.carray and var.flags.carray):
            return Statistics.given(mean, var, self.equation, self.computed)
        block = empty((4, self.nest.rows), _FLOAT64)
        _kernels.given(self.code, mean, var, STORAGE[kind], block, self.nest.rows)
        return Statistics(block)

    def _fill(
        self,
        code: bytes,
        x: Array,
        s: Array | None,
        b: Array | None,
        y: Array | None,
        block: Array,
        moments: bool,
        masked: tuple[Array, Array | None] | None,
        activation: str | None = None,
        residual: Array | None = None,
    ) -> None:
        """Fill y. If `moments` is True, compute the block of statistics too; otherwise the block is given."""
        computed = self.computed
        if s is not None and s.dtype is not computed:
            s = s.astype(computed, copy=False)
        if b is not None and b.dtype is not computed:
            b = b.astype(computed, copy=False)
        if self.bits:
            x, y, residual = self._raw(x), self._raw(y), self._raw(residual)
        _kernels.forward(code, x, s, b, y, block, moments, _threads(), masked, activation is not None, residual)

    def _gradients(
        self,
        code: bytes,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        sums: Array | None,
        needs: tuple[bool, bool],
        origin: int,
        mask: Array | None,
        relu: tuple[Array, Array | None] | None = None,
    ) -> tuple[Array, Array, Array]:
        """Return dx, ds and db. A gradient that is not needed is None. `origin` says whether backward's sums are
        computed, given or absent.
        """
        computed, masked = self.computed, None
        dx = empty_like(x) if needs[0] else None
        ds = db = None
        if needs[1]:
            ds, db = np.empty(self.nest.param_size, computed), np.empty(self.nest.param_size, computed)
        if s is not None and s.dtype is not computed:
            s = s.astype(computed, copy=False)
        if mask is not None:
            count = stats.count if needs[0] and origin != _ABSENT else None
            masked = mask, None if count is None else count.astype(_FLOAT64, copy=False)
        results = (self._raw(dx), ds, db) if self.bits else (dx, ds, db)
        if self.bits:
            dy, x = self._raw(dy), self._raw(x)
        _kernels.backward(code, dy, x, stats.block, s, sums, results, origin, empty, _threads(), masked, relu)
        return dx, ds, db

    def _raw(self, array: Array | None) -> Array | None:
        """Return the array in the form that the kernels read."""
        return array.view(np.uint16) if self.bits and array is not None else array


bind = functools.lru_cache(maxsize=4096)(BoundKernels)


def _form(nest: Nest, equation: Equation, stored: Any, computed: Any) -> bytes:
    """Return the struct Form of minorm_ext/norm/nest.pxd."""
    numbers = STORAGE[stored], computed == _FLOAT32, equation.centered, equation.guard
    return nest.code + struct.pack("4qd", *numbers, equation.eps)


# The protocol


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
    return bind(nest, equation, x.dtype, dtype).forward(x, s, b, running, mask, activation, residual)


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
    return bind(nest, equation, x.dtype, dtype).backward(dy, x, stats, s, needs, mask, y, dresidual)


def moments(
    nest: Nest, x: Array, centered: bool, dtype: Any = None, mask: Array | None = None
) -> tuple[Array, Array, Array]:
    """Return k, d and var for each row of x: the mean is k + d, and var is the variance."""
    return bind(nest, Equation(1.0, centered), x.dtype, dtype).moments(x, mask)


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
    return bind(nest, Equation(), x.dtype, dtype).apply(x, stats, s, b, mask, activation, residual)


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
    return bind(nest, Equation(), x.dtype, dtype).grad_sums(dy, x, stats, s, mask)


def grad_params(
    nest: Nest, dy: Array, x: Array, stats: Statistics, dtype: Any = None, mask: Array | None = None
) -> tuple[Array, Array]:
    """Return ds and db, the gradients of the scale s and the bias b."""
    return bind(nest, Equation(), x.dtype, dtype).grad_params(dy, x, stats, mask)


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
    return bind(nest, Equation(), x.dtype, dtype).grad_input(dy, x, stats, s, sum_g, sum_gx, mask)


def plan_of(nest: Nest, stored: Any, computed: Any, scale: bool = True, other: bool = True) -> dict[str, Any]:
    """Return the kernels' plan for the loops of `nest`, which `minorm.explain` prints.

    The plan is the struct Plan of minorm_ext/norm/plan.pxd.

    `scale` is True if there is a scale. `other` is True if there is a bias, or if backward computes both ds and db.
    """
    return _kernels.plan(_form(nest, Equation(), stored, computed), False, scale, other, _threads())


def is_one_pass(x: Array, dtype: Any = None) -> bool:
    """Return True if an activation runs in the same pass as the normalization."""
    return _takes_activations(x.dtype, dtypes.compute_type(x.dtype) if dtype is None else dtype)


def _takes_activations(stored: Any, computed: Any) -> bool:
    return bool(_kernels.takes_activations(STORAGE[stored], computed == _FLOAT32))


def _blend(running: Running, block: Array, nest: Nest) -> None:
    """Update the running statistics, by the kernel if the batch's statistics are not too large, otherwise in NumPy."""
    mean, var = running.mean, running.var
    limit = _NO_LIMIT if running.update_nonfinite else _limit(mean.dtype)
    rates = running.rates(nest.columns)
    if _kernels.blend(mean, var, running.batches, STORAGE[mean.dtype], block, nest.rows, rates, limit):
        running.changed = True
    else:
        running.update((block[0] + block[1]).reshape(mean.shape), block[2].reshape(mean.shape), nest.columns)


@functools.cache
def _limit(dtype: Any) -> float:
    """Return a limit for the sum of squares of k, d and var.

    Below this limit, the running values certainly stay finite.
    """
    return (min(float(dtypes.finfo(dtype).max), 1e150) / 4) ** 2


def _activated(y: Array, residual: Array | None) -> Array:
    return elementwise.relu(y if residual is None else elementwise.add(y, residual))
