"""The two normalizations: with the statistics of x itself, and with statistics that are given.

Letters as in docs/maths.md: s and b are scale and bias, g = dy * s, xhat = (x - mean) * rstd. Either may go on to
max(y + residual, 0) in the same pass: backward then needs y, and dy is 0 where y <= 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.graph import Function
from minorm.kernels.activated import activation_grad
from minorm.kernels.checked import resolve_backend
from minorm.kernels.protocol import Statistics
from minorm.kernels.select import backend as backend_of
from minorm.normalization.equation import Equation
from minorm.normalization.layout import Layout, arrange, mask_like, same_order

Array = Any


class Normalize(Function):
    """y = (x - mean) * rstd * s + b, with mean and var of x over `axes` (and over the channels of a group).

    mask                     bool, broadcasts to x: where it is False there is no element, and y is 0; or None
    residual                 an array like x that is added to y before the activation; or None
    activation               "relu", or None, which takes no residual
    axes, num_groups, param  as in `nest.plan`
    running                  RunningStats, updated when y is done
    observe                  called as observe(mean, var, count) then, the statistics in the kept axes' shape; count is
                             one number, with a mask as many as they
    compute_dtype            the type to compute in, or None for the kernels' own choice: see kernels/protocol.py
    backend                  an object with the functions of kernels/protocol.py; None chooses by the array
    """

    fresh: tuple[int, ...] = (0, 4)  # of x and of the residual

    def forward(
        self,
        x: Array,
        scale: Array | None,
        bias: Array | None,
        mask: Array | None = None,
        residual: Array | None = None,
        *,
        axes: tuple[int, ...],
        num_groups: int = 1,
        param: tuple[int, ...] = (),
        equation: Equation,
        running: Any = None,
        observe: Callable[[Array, Array, Any], None] | None = None,
        compute_dtype: Any = None,
        backend: Any = None,
        activation: str | None = None,
    ) -> Array:
        self.scale, self.bias, self.equation, self.y = scale, bias, equation, None
        if backend is not None:  # which may keep what it returns
            self.fresh = ()
        self.options = {} if compute_dtype is None else {"dtype": compute_dtype}
        self.norm = resolve_backend(x, backend, mask is not None, activation)
        self.layout, self.x = layout, x = arrange(x, axes, num_groups, param)
        if x.size == 0:
            return np.empty_like(x)
        if mask is not None:
            self.mask = mask  # the array itself, so that it is watched
            self.options["mask"] = layout.data(mask_like(mask, x))
        options, tell = self.options, None
        if running is not None:
            if mask is not None:
                tell = running.update_counted
            elif layout.in_order and running.is_kernel_ready(layout.nest.rows):
                options = {**options, "running": running}
            else:
                tell = running.update
        if activation is not None:
            options = {**options, **_activation(layout, x, activation, residual)}
        y, self.stats = self.norm.forward(
            layout.nest, layout.data(x), layout.parameter(scale), layout.parameter(bias), equation, **options
        )
        y = layout.result(y, x)
        if activation is not None:
            self.y = y
        if tell is not None or observe is not None:  # last: an error before it leaves running statistics as they were
            count = layout.nest.columns if mask is None else layout.statistics(self.stats.count)
            found = layout.statistics(self.stats.mean), layout.statistics(self.stats.var), count
            if observe is not None:
                observe(*found)
            if tell is not None:
                tell(*found, rest=layout.statistics(self.stats.rest))
        return y

    def backward(self, dy: Array) -> tuple[Array | None, ...]:
        x, layout = self.x, self.layout
        if x.size == 0:
            zeros = [None if a is None else np.zeros_like(a) for a in (x, self.scale, self.bias)]
            return (*zeros, None, np.zeros_like(x))[: len(self.needs)]
        options, dresidual = self.options, None
        if self.y is not None:
            options = {**options, "y": layout.data(same_order(self.y, x))}
            if self.needs[4:] == (True,):
                options["dresidual"] = dresidual = backend_of(x).memory.empty_like(layout.data(x))
        dx, ds, db = self.norm.backward(
            layout.nest,
            layout.data(same_order(dy, x)),
            layout.data(x),
            self.stats,
            layout.parameter(self.scale),
            self.equation,
            (self.needs[0], self.needs[1] or self.needs[2]),
            **options,
        )
        if self.needs[0] and self.equation.is_constant(layout.nest.columns):
            dx[...] = dx * 0 + 0  # NaN stays
        gradients = (
            layout.result(dx, x) if self.needs[0] else None,
            layout.parameter_gradient(ds, self.scale) if self.needs[1] else None,
            layout.parameter_gradient(db, self.bias) if self.needs[2] else None,
        )
        dresidual = None if dresidual is None else layout.result(dresidual, x)
        return (*gradients, None, dresidual)[: len(self.needs)]  # none for a mask


class NormalizeWith(Function):
    """y = (x - mean) / sqrt(var + eps) * s + b, with mean and var given: what evaluation does.

    mean and var have one number for each combination of the kept axes, of any float type. All five inputs have
    gradients: x appears in nothing but itself here, so dx = g * rstd. mask and the options are those of `Normalize`.
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
        axes: tuple[int, ...],
        param: tuple[int, ...] = (),
        equation: Equation,
        compute_dtype: Any = None,
        backend: Any = None,
        activation: str | None = None,
    ) -> Array:
        self.options = {} if compute_dtype is None else {"dtype": compute_dtype}
        self.mean, self.var, self.scale, self.bias, self.y = mean, var, scale, bias, None
        self.norm = resolve_backend(x, backend, mask is not None, activation)
        self.layout, self.x = layout, x = arrange(x, axes, 1, param)
        if x.size == 0:
            return np.empty_like(x)
        if mask is not None:
            self.mask = mask
            self.options["mask"] = layout.data(mask_like(mask, x))
        dtype = dtypes.compute_type(x.dtype) if compute_dtype is None else compute_dtype
        self.stats = given_statistics(layout.flat(mean), layout.flat(var), equation, dtype)
        s, b = layout.parameter(scale), layout.parameter(bias)
        options = self.options
        if activation is not None:
            options = {**options, **_activation(layout, x, activation, residual)}
        y = layout.result(self.norm.apply(layout.nest, layout.data(x), self.stats, s, b, **options), x)
        if activation is not None:
            self.y = y
        return y

    def backward(self, dy: Array) -> tuple[Array | None, ...]:
        x, layout, needs = self.x, self.layout, self.needs
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
            dx = self.norm.grad_input(layout.nest, dy, data, self.stats, s, None, None, **self.options)
            dx = layout.result(dx, x)
        if needs[1] or needs[2]:
            sum_g, sum_gx = self.norm.grad_sums(layout.nest, dy, data, self.stats, s, **self.options)
            dmean = self._statistic(-sum_g * self.stats.rstd, self.mean)
            dvar = self._statistic(-0.5 * sum_gx * self.stats.rstd**2, self.var)
        if needs[3] or needs[4]:
            ds, db = self.norm.grad_params(layout.nest, dy, data, self.stats, **self.options)
            ds = layout.parameter_gradient(ds, self.scale) if needs[3] else None
            db = layout.parameter_gradient(db, self.bias) if needs[4] else None
        return (dx, dmean, dvar, ds, db, None, dresidual)[: len(needs)]

    def _statistic(self, flat: Array, like: Array) -> Array:
        return self.layout.statistics(flat).reshape(like.shape).astype(like.dtype)


def _activation(layout: Layout, x: Array, activation: str, residual: Array | None) -> dict[str, Any]:
    """What kernels are told of it."""
    data = None if residual is None else layout.data(same_order(residual, x))
    return {"activation": activation, "residual": data}


def given_statistics(mean: Array, var: Array, equation: Equation, dtype: Any) -> Statistics:
    """What moments would have returned: mean split into k, a number of the type computed in, and the rest."""
    block = np.empty_like(mean, np.float64, shape=(4, mean.size))
    block[0] = mean.astype(dtype, copy=False)
    block[1] = 0 if mean.dtype == dtype else mean - block[0]
    block[2] = var
    with np.errstate(divide="ignore"):
        block[3] = equation.rstd(block[2])
    return Statistics(block)
