"""The protocol of a backend: seven functions on arrays, which are enough to compute every normalization.

A backend is a package with a module `norm` that has these functions, and with modules `conv`, `pool`, ... for other
families. `reference` is the executable specification, and `cpu` has compiled kernels; one parametrised test compares
them. `minorm.nn` layers also take any object with these functions as `backend=`.

Every function gets the nest (minorm/normalization/nest.py) first. `x`, `y`, `dy` and `dx` are gapless arrays of the
same float type, whose memory order is the nest's. `s` and `b` (scale and bias) are None, or arrays of `nest.param_size`
elements in the nest's order, of any float type. `dtype` is the type of the computation, float32 or float64; None means
float32 for the 16-bit types, and x's type otherwise. Elements are widened to the type of the computation; y and dx are
rounded once at the end, while ds and db stay in the type of the computation. Callers that want the default type do not
pass `dtype`. The letters are those of docs/maths.md:

    m       the number of elements behind a statistic, nest.columns
    k, d    shift and offset: mean = k + d, where k is a number in the type of the computation
    rstd    1 / sqrt(var + eps), see minorm/normalization/equation.py
    xhat    ((x - k) - d) * rstd
    g       dy * s

`mask` is None, or a gapless array of bools in x's shape and memory order. Statistics, ds and db are computed from the
elements where the mask is True, and m is the number of these elements in the row. Where the mask is False, y and dx are
0, and the numbers in x and dy, even NaN, affect no result. If a statistic has no elements, or a centred statistic has
only one element, then rstd = 0. Therefore y = b, and dx = ds = 0. A function gets `mask` only if the call has a mask,
and then the function gets no `running`. kernels/masked.py adds masks to backends that have no kernels for masks.

With `activation` = "relu", forward and apply return max(y + residual, 0). `residual` is an array like x, or None. The
functions round y to x's type before they add the residual, and round the sum again. So the result has the same bits as
three separate operations. backward gets this result as `y`, and sets dy to 0 where y <= 0, but keeps dy where y is NaN.
`dresidual` is None, or an array like x that backward fills with the changed dy. A function gets these arguments only if
the call has an activation, and then the function gets no mask. A backend that has kernels for activations lists their
names in its tuple `activations`; kernels/activated.py adds activations to other backends.

Statistics are float64 vectors of nest.rows elements, in the order of the keep loops. They are float64 for all types of
x, since a float32 variance overflows from |x| = 1e19 on. `x - k` is exact, or nearly exact, however far the data is
from 0. If the data is a million standard deviations away from 0, the mean rounded to x's type loses digits, and so does
the form `x*a + b`. With k and d, these digits are kept.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

Array = Any  # of the backend's kind: numpy.ndarray, cupy.ndarray


class Statistics:
    """k, d, var and rstd as the four rows of one float64 block, so that kernels need only one pointer.

    `count` is the number of elements of each row where the mask is True, or None if there was no mask.
    """

    __slots__ = ("block", "count")

    def __init__(self, block: Array, count: Array | None = None) -> None:
        self.block, self.count = block, count

    @classmethod
    def of(cls, k: Array, d: Array, var: Array, rstd: Array, xp: Any = np, count: Array | None = None) -> Statistics:
        """Return Statistics made from four vectors."""
        return cls(xp.stack([k, d, var, rstd]).astype(np.float64, copy=False), count)

    @classmethod
    def given(cls, mean: Array, var: Array, equation: Equation, dtype: Any) -> Statistics:
        """Return Statistics with a given mean and var: k is the mean rounded to `dtype`, and d is the rest."""
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
        """The part of the mean that is lost if k + d is rounded to one number."""
        return (self.block[0] - self.mean) + self.block[1]


class Running(Protocol):
    """The running statistics of normalization/running.py in a form for kernels; `forward` may update them.

        mean = mean * keep + batch_mean * share
        var = var * keep + batch_var * share_var

    mean, var   contiguous arrays of one float type, with nest.rows elements in the nest's order
    batches     None, or an int64 array of one element that counts batches
    skipped     None, or an int64 array of one element that counts skipped batches
    changed     a bool that the kernel sets to True when it writes the statistics

    Unless update_nonfinite is True, a batch is skipped for all rows if one of its statistics is not finite, or if a new
    running value would not fit into its type. This holds for kernels and for `update`. New values are computed in
    float64 and rounded once. They are written after everything that can fail, so an error leaves the old values
    unchanged.
    """

    mean: Array
    var: Array
    batches: Array | None
    skipped: Array | None
    update_nonfinite: bool
    changed: bool

    def rates(self, count: int) -> tuple[Any, Any, Any]:
        """Return keep, share and share_var for a batch with `count` (nest.columns) elements for each statistic."""

    def update(self, mean: Array, var: Array, count: int) -> None:
        """Update the running statistics in NumPy. This method is for backends that have no kernel for the update.

        The batch's mean and var have the same shape as the running statistics.
        """


class NormBackend(Protocol):
    """The signatures of the seven functions; reference/norm.py shows each in a few lines of NumPy."""

    def moments(
        self, nest: Nest, x: Array, centered: bool, dtype: Any = None, mask: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """Return k, d and var = mean((x - mean)^2). If not centered, k = d = 0 and var = mean(x^2)."""

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
        """Return y = xhat * s + b. With an activation, return the activation of y + residual."""

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
        """Return sum_g = sum(g) and sum_gx = sum(g * xhat) over the reduced loops, in float64."""

    def grad_params(
        self, nest: Nest, dy: Array, x: Array, stats: Statistics, dtype: Any = None, mask: Array | None = None
    ) -> tuple[Array, Array]:
        """Return ds = sum(dy * xhat) and db = sum(dy) over every loop along which the parameters do not vary."""

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
        """Return dx = rstd * (g - sum_g / m - xhat * sum_gx / m). A sum that is None counts as 0.

        With a mask, m is stats.count. If both sums are None, stats.count is not read.
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
        """Return y and the statistics: compute moments, rstd and apply in one call. If `running` is given, update it.

        A backend that a user passes to a layer never gets `running`, since kernels/checked.py does the update.
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
        """Return dx, ds and db in one call. needs[0] says whether dx is wanted, and needs[1] whether ds and db are
        wanted. Other gradients may be None.

        If forward had an activation, y is the result of forward. If dresidual is given, backward fills it.
        """
