"""NormCall holds the decisions of a normalization that depend on the form of its input, but not on the input's numbers.

    form of input     its shape and type, its kind of array, and which of parameters, mask and activation are present
    decisions         the loops for the axes (nest.py), the form of arrays (layout.py), the backend, the type

minorm/functional/norm makes a NormCall after the checks of the arguments, and keeps the NormCall for the next input of
the same form. The Functions in this folder get the NormCall as an argument. A NormCall never holds an array: arrays are
arguments.

    call, x = call.arranged(x)                        x in the form that the loops take
    y, stats = call.norm.forward(x, s, b)             the backend's functions know the nest, the equation and the types
    dx, ds, db = call.norm.backward(dy, x, stats, s, needs)
"""

from __future__ import annotations

from copy import copy
from typing import Any

from minorm.devices import dtypes
from minorm.kernels.bound import bound
from minorm.kernels.checked import CheckedBackend, resolve_backend
from minorm.normalization.equation import Equation
from minorm.normalization.layout import Layout, arrange, is_plain, layout_of

Array = Any
MOST_ORDERS = 64  # the most orders in memory that a call keeps; arrays have few


class NormCall:
    """The plan for normalizing inputs of one shape, type and kind of array.

    axes, num_groups, param  as in `nest.plan`
    equation                 eps, centered and guard
    compute_dtype            the type to compute in, or None for the kernels' own choice: see kernels/protocol.py
    backend                  an object with the functions of kernels/protocol.py; if None, the kind of array decides
    masked                   True if there is a mask
    activation               the activation of y: "relu", or None

    The constructor derives from these:

    layout, nest             the form of arrays for the loops, and the loops
    norm                     the backend's functions for these loops (kernels/bound.py)
    handed_in                the caller's backend with a check of its results (kernels/checked.py), or None
    dtype                    the type to compute in, never None
    constant                 True if y is constant, because each mean is taken over a single number
    """

    __slots__ = (
        "activation", "axes", "compute_dtype", "constant", "dtype", "equation", "handed_in", "layout", "masked", "nest",
        "norm", "num_groups", "orders", "param", "shape", "stored",
    )  # fmt: skip

    def __init__(
        self,
        x: Array,
        equation: Equation,
        axes: tuple[int, ...],
        param: tuple[int, ...] = (),
        num_groups: int = 1,
        *,
        compute_dtype: Any = None,
        backend: Any = None,
        masked: bool = False,
        activation: str | None = None,
    ) -> None:
        self.shape, self.stored = x.shape, x.dtype
        self.equation, self.axes, self.num_groups, self.param = equation, axes, num_groups, param
        self.compute_dtype = compute_dtype
        self.handed_in = None if backend is None else CheckedBackend(backend)
        self.masked, self.activation = masked, activation
        self.dtype = dtypes.compute_type(x.dtype) if compute_dtype is None else compute_dtype
        self.orders: dict[Layout, NormCall] = {}
        self._lay_out(x, layout_of(x.shape, None, axes, num_groups, param))

    @property
    def backend(self) -> Any:
        """The backend that the caller passed, or None."""
        return None if self.handed_in is None else self.handed_in.checked()

    def arranged(self, x: Array) -> tuple[NormCall, Array]:
        """Return (call, x) for the order of x in memory. If x has gaps, a copy of x is returned. If x is row-major, the
        call is this call itself.
        """
        if x.shape != self.shape or (x.dtype is not self.stored and x.dtype != self.stored):
            raise ValueError(
                f"NormCall: x is {x.dtype}{x.shape}; expected {self.stored}{self.shape}, the type and shape for which "
                "the call was made"
            )
        if is_plain(x):
            return self, x
        layout, x = arrange(x, self.axes, self.num_groups, self.param)
        return (self if layout is self.layout else self._with(x, layout)), x

    def _with(self, x: Array, layout: Layout) -> NormCall:
        """Return a copy of this call for another order in memory, such as channels-last."""
        call = self.orders.get(layout)
        if call is None:
            call = copy(self)
            call.orders = {}
            call._lay_out(x, layout)
            if len(self.orders) >= MOST_ORDERS:
                self.orders.clear()
            self.orders[layout] = call
        return call

    def _lay_out(self, x: Array, layout: Layout) -> None:
        """Set the loops to the loops of `layout`, and bind the backend's functions to these loops."""
        self.layout, self.nest = layout, layout.nest
        self.constant = self.equation.is_constant(layout.nest.columns)
        norm = resolve_backend(x, self.handed_in, self.masked, self.activation)
        self.norm = bound(norm, layout.nest, self.equation, x.dtype, self.compute_dtype)
