"""The two normalizations. Normalize uses the statistics of x, and NormalizeWith uses given statistics.

The letters are the same as in docs/maths.md: s and b are scale and bias, g = dy * s, xhat = (x - mean) * rstd. Both
Functions can also compute max(y + residual, 0) in the same pass. In this case backward needs y, and sets dy to 0 where
y <= 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.graph.expressions import LinearMap, constants
from minorm.graph.graph import Function
from minorm.graph.recorded import expressed
from minorm.kernels.activated import activation_grad
from minorm.kernels.select import backend as backend_of
from minorm.normalization.call import NormCall
from minorm.normalization.layout import mask_like, same_order
from minorm.normalization.normalize_gradient import gradient_of
from minorm.normalization.tensor_form import TensorForm

Array = Any


class Normalize(Function):
    """y = (x - mean) * rstd * s + b, with mean and var of x over the axes that the call reduces.

    mask      an array of bools that broadcasts to x, or None; where False, y is 0 and x is left out of the statistics
    residual  an array like x that is added to y before the activation, or None
    call      the NormCall for x, mask and activation
    running   the RunningStats to update after y is computed, or None
    observe   a function that is called with (mean, var, count) after y is computed: mean and var have the shape of the
              kept axes; count is one number, or an array of this shape if there is a mask
    """

    fresh: tuple[int, ...] = (0, 4)  # the inputs x and residual

    def forward(
        self,
        x: Array,
        scale: Array | None,
        bias: Array | None,
        mask: Array | None = None,
        residual: Array | None = None,
        *,
        call: NormCall,
        running: Any = None,
        observe: Callable[[Array, Array, Any], None] | None = None,
    ) -> Array:
        self.scale, self.bias, self.y = scale, bias, None
        if call.handed_in is not None:  # the caller's backend may keep results, and must live until backward
            self.fresh, self.backend = (), call.backend
        call, x = self.call, self.x = call.arranged(x)
        if x.size == 0:
            return np.empty_like(x)
        layout, tell = call.layout, None
        self.mask = mask  # the input array itself, so that a change in place is noticed
        given = self.masked = _NOTHING if mask is None else _masked(call, x, mask)
        if call.activation is not None:
            given = _activated(call, x, residual, given)
        if running is not None:
            if mask is not None:
                tell = running.update_counted
            elif layout.in_order and running.is_kernel_ready(call.nest.rows):
                given = {**given, "running": running}
            else:
                tell = running.update
        y, self.stats = call.norm.forward(layout.data(x), layout.parameter(scale), layout.parameter(bias), **given)
        y = layout.result(y, x)
        if call.activation is not None:
            self.y = y
        if tell is not None or observe is not None:  # last: after an error they are unchanged
            count = call.nest.columns if mask is None else layout.statistics(self.stats.count)
            found = layout.statistics(self.stats.mean), layout.statistics(self.stats.var), count
            if observe is not None:
                observe(*found)
            if tell is not None:
                tell(*found, rest=layout.statistics(self.stats.rest))
        return y

    def backward(self, dy: Array) -> tuple[Array | None, ...]:
        call, x, layout, needs = self.call, self.x, self.call.layout, self.needs
        if x.size == 0:
            zeros = [None if a is None else np.zeros_like(a) for a in (x, self.scale, self.bias)]
            return (*zeros, None, np.zeros_like(x))[: len(needs)]
        given, dresidual = self.masked, None
        if self.y is not None:
            given = {**given, "y": layout.data(same_order(self.y, x))}
            if needs[4:] == (True,):
                given["dresidual"] = dresidual = backend_of(x).memory.empty_like(layout.data(x))
        wanted = needs[0], needs[1] or needs[2]
        data, s = layout.data(x), layout.parameter(self.scale)
        dx, ds, db = call.norm.backward(layout.data(same_order(dy, x)), data, self.stats, s, wanted, **given)
        if needs[0] and call.constant:
            dx[...] = dx * 0 + 0  # NaN stays
        gradients = (
            layout.result(dx, x) if needs[0] else None,
            layout.parameter_gradient(ds, self.scale) if needs[1] else None,
            layout.parameter_gradient(db, self.bias) if needs[2] else None,
        )
        dresidual = None if dresidual is None else layout.result(dresidual, x)
        return (*gradients, None, dresidual)[: len(needs)]  # the mask has no gradient

    def gradient(self, dy: Any) -> tuple[Any, ...]:
        needs = self.needs
        if self.x.size == 0:
            return constants(self, dy)
        x = self.input(0, self.x, dy)
        scale = None if self.scale is None else self.input(1, self.scale, dy)
        dy, dresidual = _before_activation(self, dy)
        found = gradient_of(self.call, dy, x, scale, self.mask, self.stats, (self.scale, self.bias), needs[:3])
        return (*found, None, dresidual)[: len(needs)]


class NormalizeWith(Function):
    """y = (x - mean) / sqrt(var + eps) * s + b, with given mean and var, as in evaluation.

    mean and var may have any float type, and hold one number for each combination of indices of the kept axes. x, mean,
    var, s and b get gradients. The statistics do not depend on x here, so dx = g * rstd. See `Normalize` for mask,
    residual and call.
    """

    def forward(
        self,
        x: Array,
        mean: Array,
        var: Array,
        scale: Array | None,
        bias: Array | None,
        mask: Array | None = None,
        residual: Array | None = None,
        *,
        call: NormCall,
    ) -> Array:
        self.mean, self.var, self.scale, self.bias, self.y = mean, var, scale, bias, None
        self.backend = call.backend  # keeps the backend alive until backward calls it
        call, x = self.call, self.x = call.arranged(x)
        if x.size == 0:
            return np.empty_like(x)
        layout = call.layout
        self.mask = mask
        given = self.masked = _NOTHING if mask is None else _masked(call, x, mask)
        if call.activation is not None:
            given = _activated(call, x, residual, given)
        self.stats = call.norm.statistics(layout.flat(mean), layout.flat(var))
        s, b = layout.parameter(scale), layout.parameter(bias)
        y = layout.result(call.norm.apply(layout.data(x), self.stats, s, b, **given), x)
        if call.activation is not None:
            self.y = y
        return y

    def backward(self, dy: Array) -> tuple[Array | None, ...]:
        x, layout, norm, needs = self.x, self.call.layout, self.call.norm, self.needs
        inputs = (x, self.mean, self.var, self.scale, self.bias)
        if x.size == 0:
            zeros = [None if a is None else np.zeros_like(a) for a in inputs]
            return (*zeros, None, np.zeros_like(x))[: len(needs)]
        dresidual = None
        if self.y is not None:
            dy = dresidual = activation_grad(dy, self.y)
        data, dy = layout.data(x), layout.data(same_order(dy, x))
        s = layout.parameter(self.scale)
        dx = dmean = dvar = ds = db = None
        if needs[0]:
            dx = layout.result(norm.grad_input(dy, data, self.stats, s, None, None, **self.masked), x)
        if needs[1] or needs[2]:
            sum_g, sum_gx = norm.grad_sums(dy, data, self.stats, s, **self.masked)
            dmean = self._statistic(-sum_g * self.stats.rstd, self.mean)
            dvar = self._statistic(-0.5 * sum_gx * self.stats.rstd**2, self.var)
        if needs[3] or needs[4]:
            ds, db = norm.grad_params(dy, data, self.stats, **self.masked)
            ds = layout.parameter_gradient(ds, self.scale) if needs[3] else None
            db = layout.parameter_gradient(db, self.bias) if needs[4] else None
        return (dx, dmean, dvar, ds, db, None, dresidual)[: len(needs)]

    def gradient(self, dy: Any) -> tuple[Any, ...]:
        if self.x.size == 0:
            return constants(self, dy)
        inputs = [
            None if a is None else self.input(i, a, dy)
            for i, a in enumerate((self.x, self.mean, self.var, self.scale, self.bias))
        ]
        dy, dresidual = _before_activation(self, dy)
        form = TensorForm(self.call, dy, self.mask, self.x)
        found = expressed(form.with_statistics, inputs, [dy])
        return (*found, None, dresidual)[: len(self.needs)]

    def _statistic(self, flat: Array, like: Array) -> Array:
        return self.call.layout.statistics(flat).reshape(like.shape).astype(like.dtype)


_NOTHING: dict[str, Any] = {}


def _before_activation(function: Any, dy: Any) -> tuple[Any, Any]:
    """Return the gradients of the normalization's result and of the residual. If there is no activation, they are dy
    and None.
    """
    if function.y is None:
        return dy, None

    def through(g: Any) -> Any:
        return activation_grad(g, function.y)

    found: Any = LinearMap.apply(dy, of=function, there=through, back=through)
    return found, found


def _masked(call: NormCall, x: Array, mask: Array) -> dict[str, Array]:
    """Return the mask as a keyword argument of a backend's functions."""
    return {"mask": call.layout.data(mask_like(mask, x))}


def _activated(call: NormCall, x: Array, residual: Array | None, given: dict[str, Array]) -> dict[str, Any]:
    """Return `given`, the keyword arguments of a backend's forward and apply, with the activation and the residual
    added.
    """
    data = None if residual is None else call.layout.data(same_order(residual, x))
    return {**given, "activation": call.activation, "residual": data}
