"""Builds a backend from a few of your functions; the reference supplies the others.

    nn.BatchNorm2d(8, backend=PartialBackend(moments=mine))

The functions are those of minorm/kernels/protocol.py. The forward of PartialBackend calls moments and apply; its
backward calls grad_sums, grad_input and grad_params. If you pass your own forward, training calls your forward instead
of moments and apply. If you pass your own backward, training calls your backward instead of grad_sums, grad_input and
grad_params. The functions get `dtype` only if the user gave a layer or a function a compute_dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.kernels.protocol import Statistics
from minorm.kernels.reference import norm
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

Array = Any
NAMES = ("moments", "apply", "grad_sums", "grad_params", "grad_input", "forward", "backward")


class PartialBackend:
    """A backend for normalization layers. A name that is not a function of the protocol raises TypeError."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        for name, function in functions.items():
            if name not in NAMES:
                raise TypeError(
                    f"PartialBackend: there is no function {name!r} in the protocol; expected {', '.join(NAMES)}"
                )
            if not callable(function):
                raise TypeError(f"PartialBackend: {name} is a {type(function).__name__}; expected a function")
        for name in NAMES[:5]:
            setattr(self, name, functions.get(name, getattr(norm, name)))
        for name in NAMES[5:]:
            if name in functions:
                setattr(self, name, functions[name])

    moments: Callable[..., Any]
    apply: Callable[..., Any]
    grad_sums: Callable[..., Any]
    grad_params: Callable[..., Any]
    grad_input: Callable[..., Any]

    def forward(
        self, nest: Nest, x: Array, s: Array | None, b: Array | None, equation: Equation, **dtype: Any
    ) -> tuple[Array, Statistics]:
        """Call moments, compute rstd, and call apply."""
        found = self.moments(nest, x, equation.centered, **dtype)
        if not isinstance(found, (tuple, list)) or len(found) != 3:
            got = f"{len(found)} things" if isinstance(found, (tuple, list)) else f"{type(found).__name__}"
            raise TypeError(f"backend.moments: it returns {got}; expected 3: k, d, var")
        k, d, var = found
        with np.errstate(divide="ignore"):
            stats = Statistics.of(k, d, var, equation.rstd(var))
        return self.apply(nest, x, stats, s, b, **dtype), stats

    def backward(
        self,
        nest: Nest,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        equation: Equation,
        needs: tuple[bool, bool] = (True, True),
        **dtype: Any,
    ) -> tuple[Array | None, Array | None, Array | None]:
        """Call grad_sums and grad_input for dx, then grad_params for ds and db."""
        dx = ds = db = None
        if needs[0]:
            sum_g, sum_gx = self.grad_sums(nest, dy, x, stats, s, **dtype)
            slope = equation.slope(stats.var)
            sum_g = sum_g if equation.centered else None
            dx = self.grad_input(nest, dy, x, stats, s, sum_g, sum_gx * slope, **dtype)
        if needs[1]:
            ds, db = self.grad_params(nest, dy, x, stats, **dtype)
        return dx, ds, db
