"""Computes the variance by other formulas, which deployed models use, to reproduce and show their rounding errors.

    None       minorm's formula: sums of x - k with a shift k near the mean, in float64 where necessary; shows no error
    two_pass   mean = sum(x) / m, then sum((x - mean)^2) / m. Shows the effect of rounding the mean to the type: if the
               data is a million standard deviations from 0, xhat has an error, and the variance's error is its square
    welford    one pass, element by element: d = x - mean, mean += d / i, M2 += d * (x - mean), var = M2 / m.
               Shows how rounding errors of a running mean add up over a long row
    onnx       E[x^2] - E[x]^2, the formula of the function body of ONNX's MeanVarianceNormalization, and of fused
               kernels that read x once. Shows cancellation: for a mean of 1e4 and a standard deviation of 1, float32
               holds no digit of the variance, which may be 0 or negative; y is NaN where var + eps < 0

All formulas compute in the type of the computation, which is float32 for float32 and the 16-bit types. NumPy adds up
the sums pairwise. The steps after the moments are the usual ones, so the gradients follow docs/maths.md with this mean
and variance. The formulas are tools for study and are slow: they use NumPy instead of kernels, and welford takes one
step of Python for each element of a row.

Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance"; Welford 1962.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.kernels.partial import PartialBackend
from minorm.kernels.protocol import Statistics
from minorm.kernels.reference import norm
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

Array = Any


def two_pass(rows: Array) -> tuple[Array, Array]:
    """Return mean and mean((x - mean)^2) of each row, in the rows' type."""
    mean = rows.mean(1)
    return mean, np.square(rows - mean[:, None]).mean(1)


def welford(rows: Array) -> tuple[Array, Array]:
    """Return the mean and the variance of each row by Welford's formula, which reads one element after the other."""
    mean, m2 = np.zeros_like(rows[:, 0]), np.zeros_like(rows[:, 0])
    for i in range(rows.shape[1]):
        x = rows[:, i]
        d = x - mean
        mean = mean + d / rows.dtype.type(i + 1)
        m2 = m2 + d * (x - mean)
    return mean, m2 / rows.dtype.type(rows.shape[1])


def onnx(rows: Array) -> tuple[Array, Array]:
    """Return mean and mean(x^2) - mean^2 of each row."""
    mean = rows.mean(1)
    return mean, np.square(rows).mean(1) - np.square(mean)


FORMULAS: dict[str, Callable[[Array], tuple[Array, Array]]] = {"two_pass": two_pass, "welford": welford, "onnx": onnx}


class VarianceBackend(PartialBackend):
    """The reference's functions, but with moments computed by one of FORMULAS."""

    def __init__(self, name: str) -> None:
        super().__init__(moments=self.by_formula)
        self.name = name

    def by_formula(self, nest: Nest, x: Array, centered: bool, dtype: Any = None) -> tuple[Array, Array, Array]:
        """Return k = mean, d = 0 and var. d is 0, since the mean is one number in the type of the computation."""
        if not centered:
            return norm.moments(nest, x, centered, dtype)
        rows = norm.four(nest, x).reshape(nest.rows, nest.columns)
        rows = rows.astype(dtypes.compute_type(x.dtype) if dtype is None else dtype, order="C")  # sums by rows
        with np.errstate(all="ignore"):
            mean, var = FORMULAS[self.name](rows)
        return mean.astype(np.float64), np.zeros_like(x, np.float64, shape=(nest.rows,)), var.astype(np.float64)

    def forward(
        self, nest: Nest, x: Array, s: Array | None, b: Array | None, equation: Equation, **dtype: Any
    ) -> tuple[Array, Statistics]:
        """Run the forward pass without warnings about the NaN of a negative variance."""
        with np.errstate(invalid="ignore"):
            return super().forward(nest, x, s, b, equation, **dtype)

    def backward(self, *args: Any, **options: Any) -> tuple[Array | None, Array | None, Array | None]:
        """Run the backward pass without warnings about the NaN of a negative variance."""
        with np.errstate(invalid="ignore"):
            return super().backward(*args, **options)


_BACKENDS = {name: VarianceBackend(name) for name in FORMULAS}


def backend_of(operation: str, variance: Any, backend: Any) -> Any:
    """Return the backend for the formula named `variance`, or the user's `backend`.

    Raises ValueError if both `variance` and `backend` are given, or if the name is unknown.
    """
    if variance is None:
        return backend
    if not isinstance(variance, str) or variance not in FORMULAS:
        names = ", ".join(map(repr, FORMULAS))
        raise ValueError(f"{operation}: variance={variance!r}; expected None, {names}")
    if backend is not None:
        raise ValueError(
            f"{operation}: variance={variance!r} and a backend are given; expected only one, because a backend "
            "computes the variance itself"
        )
    return _BACKENDS[variance]
