"""What a backend promises: seven functions on arrays, in which every normalization can be written.

A backend is a package with a module `norm` that has these functions (and modules `conv`, `pool`, ... of other
families). `reference` is the executable specification, `cpu` the compiled one; one parametrised test holds them
together. `minorm.nn` layers also take any object with these functions as `backend=`.

Every function gets the nest (minorm/normalization/nest.py) first. `x`, `y`, `dy` and `dx` are gapless arrays of one
float type whose memory order is the nest's; `s` and `b` (scale and bias) are arrays of `nest.param_size` elements in
the nest's order, of any float type, or None. `dtype` is the type computed in, float32 or float64; None is float32 for
the 16-bit types and x's own otherwise. Elements are widened to it, and y and dx rounded once at the end; ds and db stay
in it. Where no caller asked for another type, `dtype` is not passed at all. The letters are those of docs/maths.md:

    m       number of elements a statistic is taken over, nest.columns
    k, d    shift and offset: mean = k + d, where k is a number of the type that is computed in
    rstd    1 / sqrt(var + eps), see minorm/normalization/equation.py
    xhat    ((x - k) - d) * rstd
    g       dy * s

`mask` is a bool array of x's elements in the memory order of x, gapless, or None. Where it is False there is no
element: statistics, ds and db are those of the others, m is the number of these in the row, y and dx are 0, and what x
and dy hold there, NaN too, reaches nothing. A statistic that says nothing has rstd = 0: of no element, or centred of
one; so y = b, and dx = ds = 0. A function gets `mask` only where there is one, and then no `running`. Backends without
such kernels are given it by kernels/masked.py.

`activation` is "relu": forward and apply return max(y + residual, 0), with y rounded to x's type before a residual is
added, and the sum rounded again, so that the result has the bits of three operations one after the other. `residual` is
an array like x, or None. backward is then given that result as `y`, and takes 0 for dy where y <= 0: NaN keeps its
gradient. `dresidual` is an array like x to be filled with this dy, or None. A function gets these only where there is
an activation, and then no mask. A backend with such kernels has `activations`, a tuple of the names that it takes;
others are given it by kernels/activated.py.

Statistics are float64 vectors of nest.rows elements, in the order of the keep loops, whatever the type of x: a float32
variance overflows from |x| = 1e19 on. `x - k` is exact, or nearly so, however far the data lies from 0; subtracting
mean as one number of x's type, or folding `x*a + b`, loses at an offset of a million standard deviations what is
carried here to full precision.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

Array = Any  # of the backend's kind: numpy.ndarray, cupy.ndarray


class Statistics:
    """k, d, var and rstd: the four rows of one float64 block, so that kernels need one pointer.

    count: how many elements each row was taken over, where a mask decided that; else None.
    """

    __slots__ = ("block", "count")

    def __init__(self, block: Array, count: Array | None = None) -> None:
        self.block, self.count = block, count

    @classmethod
    def of(cls, k: Array, d: Array, var: Array, rstd: Array, xp: Any = np, count: Array | None = None) -> Statistics:
        """Put four vectors together."""
        return cls(xp.stack([k, d, var, rstd]).astype(np.float64, copy=False), count)

    @classmethod
    def given(cls, mean: Array, var: Array, equation: Equation, dtype: Any) -> Statistics:
        """What moments would have found: mean split into k, a number of the type computed in, and the rest."""
        block = np.empty_like(mean, np.float64, shape=(4, mean.size))
        block[0] = mean.astype(dtype, copy=False)
        block[1] = 0 if mean.dtype == dtype else mean - block[0]
        block[2] = var
        with np.errstate(divide="ignore"):
            block[3] = equation.rstd(block[2])
        return cls(block)

    @property
    def k(self) -> Array:
        return self.block[0]

    @property
    def d(self) -> Array:
        return self.block[1]

    @property
    def var(self) -> Array:
        return self.block[2]

    @property
    def rstd(self) -> Array:
        return self.block[3]

    @property
    def mean(self) -> Array:
        return self.block[0] + self.block[1]

    @property
    def rest(self) -> Array:
        """What rounding k + d to one number has dropped."""
        return (self.block[0] - self.mean) + self.block[1]


class Running(Protocol):
    """The running statistics that `forward` may update: those of normalization/running.py, in a form for kernels.

        mean = mean * keep + batch_mean * share
        var = var * keep + batch_var * share_var

    mean, var   contiguous arrays of one float type, with nest.rows elements in the nest's order
    batches     an int64 array of one element, to be counted up; or None
    skipped     the same for batches that are left out
    changed     to be set when they are written

    A batch with a statistic that is not finite, or with which a value would not fit its type, is left out for all rows,
    unless update_nonfinite; `update` does that too.
    Both are blended in float64 and rounded once. They are written when nothing can fail any more: an error leaves them
    as they were.
    """

    mean: Array
    var: Array
    batches: Array | None
    skipped: Array | None
    update_nonfinite: bool
    changed: bool

    def rates(self, count: int) -> tuple[Any, Any, Any]:
        """keep, share and share_var for a batch of `count` elements a statistic, nest.columns."""

    def update(self, mean: Array, var: Array, count: int) -> None:
        """The same in NumPy, for a backend without a kernel for it; the batch's mean and var have the shape of ours."""


class NormBackend(Protocol):
    """The signatures; reference/norm.py shows each in a few lines of NumPy."""

    def moments(
        self, nest: Nest, x: Array, centered: bool, dtype: Any = None, mask: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """k, d and var = mean((x - mean)^2); not centered: k = d = 0 and var = mean(x^2)."""

    def apply(
        self,
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
        """y = xhat * s + b, or what the activation makes of y + residual."""

    def grad_sums(
        self,
        nest: Nest,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        dtype: Any = None,
        mask: Array | None = None,
    ) -> tuple[Array, Array]:
        """sum_g = sum(g) and sum_gx = sum(g * xhat) over the reduced loops, float64."""

    def grad_params(
        self, nest: Nest, dy: Array, x: Array, stats: Statistics, dtype: Any = None, mask: Array | None = None
    ) -> tuple[Array, Array]:
        """ds = sum(dy * xhat) and db = sum(dy) over every loop along which the parameters do not vary."""

    def grad_input(
        self,
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
        """dx = rstd * (g - sum_g / m - xhat * sum_gx / m); sums that are None count as 0.

        With a mask m is stats.count, which is not asked for where both sums are None.
        """

    def forward(
        self,
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
        """moments, rstd and apply in one go: y and the statistics, which are blended into `running` if it is given.

        A backend that is handed to a layer never gets `running`: kernels/checked.py updates it there.
        """

    def backward(
        self,
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
        """dx, ds and db in one go. needs: is dx wanted? are ds and db wanted? What is not wanted may be None.

        y is what forward returned, where it had an activation; dresidual is filled then, if it is given.
        """
