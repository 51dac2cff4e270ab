"""The gradient of a normalization as a Function. backward with `create_graph=True` adds this Function to the graph.

dx, ds, db = NormalizeGradient(dy, x, s)        the kernels' backward pass
backward                                        the formulas of second_derivative.py
gradient                                        tensor_form.py, for the third derivative and above
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.graph.expressions import constants
from minorm.graph.graph import Function
from minorm.graph.recorded import expressed
from minorm.normalization.call import NormCall
from minorm.normalization.layout import mask_like, same_order
from minorm.normalization.second_derivative import SecondDerivative
from minorm.normalization.tensor_form import TensorForm

Array = Any


class NormalizeGradient(Function):
    """Computes dx, ds and db of `Normalize`, and returns a tuple of the wanted gradients.

    call    the NormCall for x's memory order
    stats   the statistics of x
    like    arrays with the shapes and types of ds and db; None if there is no such parameter
    wanted  three bools, for dx, ds and db
    """

    def forward(
        self,
        dy: Array,
        x: Array,
        scale: Array | None,
        mask: Array | None = None,
        *,
        call: NormCall,
        stats: Any,
        like: tuple[Array | None, Array | None],
        wanted: tuple[bool, ...],
    ) -> tuple[Array, ...]:
        self.dy, self.scale, self.mask = dy, scale, mask
        self.stats, self.like, self.wanted = stats, like, wanted
        self.backend = call.backend  # keeps the backend alive until backward calls it
        call, x = self.call, self.x = call.arranged(x)
        if x.size == 0:
            return tuple([np.zeros_like(a) for a, one in zip((x, *like), wanted, strict=True) if one])
        layout = call.layout
        self.masked = {} if mask is None else {"mask": layout.data(mask_like(mask, x))}
        given = layout.data(same_order(dy, x)), layout.data(x), stats, layout.parameter(scale)
        dx, ds, db = call.norm.backward(*given, (wanted[0], wanted[1] or wanted[2]), **self.masked)
        if wanted[0] and call.constant:
            dx[...] = dx * 0 + 0  # NaN stays
        results = [layout.result(dx, x)] if wanted[0] else []
        for total, form, one in zip((ds, db), like, wanted[1:], strict=True):
            if one:
                results.append(layout.parameter_gradient(total, form))
        return tuple(results)

    def backward(self, *weights: Array | None) -> tuple[Array | None, ...]:
        v, vs, vb = self._by_result(weights)
        if self.x.size == 0:
            zeros = (None if a is None else np.zeros_like(a) for a in (self.dy, self.x, self.scale))
            return (*zeros, None)[: len(self.needs)]
        second = SecondDerivative(self.call, self.x, self.dy, self.scale, self.stats, self.masked)
        of_dy, of_x, of_s = [], [], None
        if v is not None:
            first, elements, of_s = second.of_dx(v)
            of_dy.append(first)
            of_x.append(elements)
        if vs is not None:
            first, elements = second.of_ds(vs)
            of_dy.append(first)
            of_x.append(elements)
        if vb is not None:
            of_dy.append(second.of_db(vb))
        return (
            second.elements(sum(of_dy[1:], of_dy[0])) if self.needs[0] else None,
            second.elements(sum(of_x[1:], of_x[0])) if self.needs[1] and of_x else None,
            second.parameter(of_s) if self.needs[2] and of_s is not None else None,
            None,
        )[: len(self.needs)]

    def gradient(self, *weights: Any) -> tuple[Any, ...]:
        if self.x.size == 0:
            return constants(self, *weights)
        like = next(v for v in weights if v is not None)
        inputs = [self.input(0, self.dy, like), self.input(1, self.x, like)]
        inputs.append(None if self.scale is None else self.input(2, self.scale, like))
        return (*expressed(self.expression, inputs, weights), None)[: len(self.needs)]

    def expression(self, dy: Any, x: Any, scale: Any) -> tuple[Any, ...]:
        """Compute the same as `forward`, but with Tensors."""
        form = TensorForm(self.call, dy, self.mask, self.x)
        dx, *products = form.gradients(dy, x, scale, self.stats.k)
        results = [dx] if self.wanted[0] else []
        for terms, a, one in zip(products, self.like, self.wanted[1:], strict=True):
            if one:
                results.append(form.summed(terms, a))
        return tuple(results)

    def _by_result(self, weights: tuple[Array | None, ...]) -> list[Array | None]:
        """Return the gradients of dx, ds and db as a list of three. `weights` holds only the gradients of the wanted
        results. In the list, the gradient of an unwanted result is None.
        """
        found = iter(weights)
        return [next(found) if one else None for one in self.wanted]


def gradient_of(
    call: NormCall,
    dy: Any,
    x: Any,
    scale: Any,
    mask: Any,
    stats: Any,
    like: tuple[Array | None, Array | None],
    wanted: tuple[bool, ...],
) -> list[Any]:
    """Return dx, ds and db as Tensors of the graph. An unwanted gradient is None."""
    if not any(wanted):
        return [None, None, None]
    mask = () if mask is None else (dy.from_array(mask),)
    found = iter(NormalizeGradient.apply(dy, x, scale, *mask, call=call, stats=stats, like=like, wanted=wanted))
    return [next(found) if one else None for one in wanted]
