"""Binds the functions of kernels/protocol.py to one nest, equation and type, so that calls pass only arrays.

A NormCall (minorm/normalization/call.py) binds them once, when it is made, since nest, equation and type are the same
at every call. `BoundBackend` binds any object that has the functions of the protocol, and passes these arguments on.
minorm's kernels do not use `BoundBackend`: kernels/cpu/norm.py and kernels/gpu/norm.py each have a faster function
`bind`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from minorm.devices import dtypes
from minorm.kernels.protocol import Statistics
from minorm.normalization.equation import Equation
from minorm.normalization.nest import Nest

Array = Any


def bound(norm: Any, nest: Nest, equation: Equation, stored: Any, dtype: Any = None) -> Any:
    """Return the functions of the backend `norm`, bound to `nest` and `equation`, for an x of type `stored`.

    The functions compute in `dtype`. If `dtype` is None, they compute in the usual type for x.
    """
    bind = getattr(norm, "bind", None) if isinstance(norm, ModuleType) else None  # a user's backend is no module
    return BoundBackend(norm, nest, equation, stored, dtype) if bind is None else bind(nest, equation, stored, dtype)


class BoundBackend:
    """Calls a backend's functions with the nest, the equation and the type that this object holds.

    Optional arguments (mask, running, activation with residual, y with dresidual) are passed by name, and only if the
    caller gives them. So a backend's functions need no parameters for options that no caller uses.
    """

    __slots__ = ("dtype", "equation", "nest", "norm", "stored")

    def __init__(self, norm: Any, nest: Nest, equation: Equation, stored: Any, dtype: Any = None) -> None:
        self.norm, self.nest, self.equation, self.stored = norm, nest, equation, stored
        self.dtype = {} if dtype is None else {"dtype": dtype}

    def forward(self, x: Array, s: Array | None, b: Array | None, **given: Any) -> tuple[Array, Statistics]:
        """Return y, the normalized x, and the statistics of x."""
        return self.norm.forward(self.nest, x, s, b, self.equation, **self.dtype, **given)

    def backward(
        self, dy: Array, x: Array, stats: Statistics, s: Array | None, needs: tuple[bool, bool], **given: Any
    ) -> tuple[Array | None, Array | None, Array | None]:
        """Return dx, ds and db, the gradients of x, of the scale s and of the bias b."""
        return self.norm.backward(self.nest, dy, x, stats, s, self.equation, needs, **self.dtype, **given)

    def moments(self, x: Array, **mask: Array) -> tuple[Array, Array, Array]:
        """Return k, d and var for each row of x: the mean is k + d, and var is the variance."""
        return self.norm.moments(self.nest, x, self.equation.centered, **self.dtype, **mask)

    def apply(self, x: Array, stats: Statistics, s: Array | None, b: Array | None, **given: Any) -> Array:
        """Return y: x normalized with the given statistics, scaled by s and shifted by b."""
        return self.norm.apply(self.nest, x, stats, s, b, **self.dtype, **given)

    def grad_sums(self, dy: Array, x: Array, stats: Statistics, s: Array | None, **mask: Array) -> tuple[Array, Array]:
        """Return sum_g and sum_gx: for each row, the sums of g = dy * s and of g * xhat."""
        return self.norm.grad_sums(self.nest, dy, x, stats, s, **self.dtype, **mask)

    def grad_params(self, dy: Array, x: Array, stats: Statistics, **mask: Array) -> tuple[Array, Array]:
        """Return ds and db, the gradients of the scale s and the bias b."""
        return self.norm.grad_params(self.nest, dy, x, stats, **self.dtype, **mask)

    def grad_input(
        self,
        dy: Array,
        x: Array,
        stats: Statistics,
        s: Array | None,
        sum_g: Array | None,
        sum_gx: Array | None,
        **mask: Array,
    ) -> Array:
        """Return dx, the gradient of x."""
        return self.norm.grad_input(self.nest, dy, x, stats, s, sum_g, sum_gx, **self.dtype, **mask)

    def statistics(self, mean: Array, var: Array) -> Statistics:
        """Return Statistics made from a given mean and var."""
        computed = self.dtype.get("dtype") or dtypes.compute_type(self.stored)
        return Statistics.given(mean, var, self.equation, computed)
