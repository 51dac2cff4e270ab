"""Batch renormalization. r and d, which have no gradient, correct the batch's statistics towards the running
statistics.

    y = (xhat * r + d) * s + b = xhat * (r * s) + (d * s + b)

This is a batch normalization with the scale r * s and the bias d * s + b, in the same passes. If dS and dB are the
gradients of this scale and bias, then ds = dS * r + dB * d and db = dB. dx depends only on the scale r * s.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.graph.expressions import constants
from minorm.graph.graph import Function
from minorm.kernels.protocol import Statistics
from minorm.normalization.call import NormCall
from minorm.normalization.layout import same_order
from minorm.normalization.normalize_gradient import gradient_of

Array = Any


class Renormalize(Function):
    """y = (xhat * r + d) * s + b, with xhat and std of the batch, and with r and d from the old running statistics.

        r = clip(std / old_std, 1 / rmax, rmax)        d = clip((mean - old_mean) / old_std, -dmax, dmax)

    old      the running mean and variance as arrays, read before `running` is updated
    See `Normalize` for call and running. Scale and bias vary along the kept axes.
    """

    def forward(
        self,
        x: Array,
        scale: Array | None,
        bias: Array | None,
        *,
        call: NormCall,
        old: tuple[Array, Array],
        rmax: float,
        dmax: float,
        running: Any,
    ) -> Array:
        self.scale, self.bias = scale, bias
        self.backend = call.backend  # keeps the backend alive until backward calls it
        call, x = self.call, self.x = call.arranged(x)
        if x.size == 0:
            return np.empty_like(x)
        layout, equation, data = call.layout, call.equation, call.layout.data(x)
        k, d, var = call.norm.moments(data)
        with np.errstate(divide="ignore"):
            self.stats = Statistics(np.stack([k, d, var, equation.rstd(var)]))
        mean, var = layout.statistics(self.stats.mean), layout.statistics(var)
        old_mean, old_rstd = old[0].astype(np.float64), equation.rstd(old[1].astype(np.float64))
        self.r = np.clip((var + equation.eps) ** 0.5 * old_rstd, 1 / rmax, rmax)
        self.d = np.clip((mean - old_mean) * old_rstd, -dmax, dmax)
        s, b = self.r, self.d
        if scale is not None:
            s, b = s * scale, b * scale
        if bias is not None:
            b = b + bias
        self.s = layout.parameter(s.astype(call.dtype))
        y = call.norm.apply(data, self.stats, self.s, layout.parameter(b.astype(call.dtype)))
        # last, so that an error before it leaves running statistics unchanged
        running.update(mean, var, call.nest.columns, rest=layout.statistics(self.stats.rest))
        return layout.result(y, x)

    def backward(self, dy: Array) -> tuple[Array | None, ...]:
        call, x, layout = self.call, self.x, self.call.layout
        if x.size == 0:
            return tuple(None if a is None else np.zeros_like(a) for a in (x, self.scale, self.bias))
        needs = self.needs[0], self.needs[1] or self.needs[2]
        dx, ds, db = call.norm.backward(layout.data(same_order(dy, x)), layout.data(x), self.stats, self.s, needs)
        if self.needs[0] and call.constant:
            dx[...] = dx * 0 + 0  # NaN stays
        if self.needs[1] or self.needs[2]:
            ds, db = (layout.parameter_gradient(p, self.r) for p in (ds, db))
        return (
            layout.result(dx, x) if self.needs[0] else None,
            None if self.scale is None or not self.needs[1] else (ds * self.r + db * self.d).astype(self.scale.dtype),
            None if self.bias is None or not self.needs[2] else db.astype(self.bias.dtype),
        )

    def gradient(self, dy: Any) -> tuple[Any, ...]:
        if self.x.size == 0:
            return constants(self, dy)
        call, x, needs = self.call, self.input(0, self.x, dy), self.needs
        r, d = dy.from_array(self.r), dy.from_array(self.d)
        scale = r if self.scale is None else r * self.input(1, self.scale, dy).to(self.r.dtype)
        wanted = needs[0], needs[1], needs[1] or needs[2]
        like = (self.r, self.r)
        dx, ds, db = gradient_of(call, dy, x, scale.to(call.dtype), None, self.stats, like, wanted)
        return (
            dx,
            None if self.scale is None or not needs[1] else (ds * r + db * d).to(self.scale.dtype),
            None if self.bias is None or not needs[2] else db.to(self.bias.dtype),
        )
