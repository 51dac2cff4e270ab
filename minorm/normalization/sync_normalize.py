"""Batch normalization over a batch that is split among ranks. Each rank has a part of the batch and needs the moments
of the whole batch.

The letters are the same as in docs/maths.md: s and b are scale and bias, g = dy * s, xhat = (x - mean) * rstd. Rank r
has m_r numbers of a channel, with mean_r = k_r + d_r and var_r. m is the sum of all m_r. One message in the forward
pass merges the moments in pairs (Chan, Golub and LeVeque 1979). One message in the backward pass adds up sum(g) and
sum(g * xhat). Every rank sends both messages, even if its part is empty, because the other ranks wait for both
messages.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices import namespace
from minorm.graph.graph import Function
from minorm.kernels.protocol import Statistics
from minorm.normalization.call import NormCall
from minorm.normalization.layout import same_order
from minorm.normalization.sync_gradient import FormAcross

Array = Any


class NormalizeAcross(Function):
    """y = (x - mean) * rstd * s + b, with mean and var over the x of all ranks.

    group  the connection to the other ranks: `size`, and `all_reduce(array, combine, label)`
    See `Normalize` for call and running. All ranks update `running` in the same way.
    """

    def forward(
        self,
        x: Array,
        scale: Array | None,
        bias: Array | None,
        *,
        call: NormCall,
        group: Any,
        running: Any = None,
    ) -> Array:
        self.scale, self.bias, self.group = scale, bias, group
        self.backend = call.backend  # keeps the backend alive until backward calls it
        call, x = self.call, self.x = call.arranged(x)
        layout, nest, xp = call.layout, call.nest, namespace(x)
        block = np.zeros_like(x, np.float64, shape=(4, nest.rows))
        if x.size:
            block[0] = nest.columns
            for row, part in enumerate(call.norm.moments(layout.data(x)), 1):
                block[row] = part
        block = xp.stack([layout.statistics(row) for row in block])  # the data of ranks may have different orders
        m, k, d, var = group.all_reduce(block, merge, "the statistics of batch_norm")
        self.count = count = int(m.reshape(-1)[0])
        if count == 1 and not (running is not None and running.is_part):
            raise ValueError(
                f"batch_norm: one value per channel on all {group.size} ranks together has no variance to normalize "
                f"with in training; x.shape is {x.shape} on this rank; expected more than one value per channel: a "
                "larger batch, or training=False"
            )
        total = k + d
        mean = total.astype(call.dtype).astype(np.float64)
        with np.errstate(divide="ignore"):
            rstd = call.equation.rstd(var)
        self.stats = Statistics(xp.stack([layout.flat(row) for row in (mean, (k - mean) + d, var, rstd)]))
        y = np.empty_like(x)
        if x.size:
            s, b = layout.parameter(scale), layout.parameter(bias)
            y = layout.result(call.norm.apply(layout.data(x), self.stats, s, b), x)
        if running is not None:  # last, so that an error before it leaves running statistics unchanged
            running.update(total, var, count, rest=(k - total) + d)
        return y

    def backward(self, dy: Array) -> tuple[Array | None, ...]:
        call, x, layout = self.call, self.x, self.call.layout
        data, s, empty = layout.data(x), layout.parameter(self.scale), x.size == 0
        dy = layout.data(same_order(dy, x))
        dx = ds = db = None
        if self.needs[0]:
            sums = np.zeros_like(x, np.float64, shape=(2, call.nest.rows))
            if not empty:
                sums[0], sums[1] = call.norm.grad_sums(dy, data, self.stats, s)
            sums = namespace(x).stack([layout.statistics(row) for row in sums])
            sums = self.group.all_reduce(sums, label="the sums of batch_norm's backward")
            dx = np.zeros_like(x)
            if not empty and not call.equation.is_constant(self.count):  # the kernel divides by this rank's m
                sum_g, sum_gx = (layout.flat(row) * (call.nest.columns / self.count) for row in sums)
                sum_gx = sum_gx * call.equation.slope(self.stats.var)
                dx = layout.result(call.norm.grad_input(dy, data, self.stats, s, sum_g, sum_gx), x)
        if empty:
            ds, db = (None if p is None else np.zeros_like(p) for p in (self.scale, self.bias))
        elif self.needs[1] or self.needs[2]:  # only this rank's part: parameter gradients are summed over ranks later
            ds, db = call.norm.grad_params(dy, data, self.stats)
            ds = layout.parameter_gradient(ds, self.scale) if self.needs[1] else None
            db = layout.parameter_gradient(db, self.bias) if self.needs[2] else None
        return dx, ds, db

    def gradient(self, dy: Any) -> tuple[Any, ...]:
        x = self.input(0, self.x, dy)
        scale = None if self.scale is None else self.input(1, self.scale, dy)
        form = FormAcross(self.call, dy, self.x, self.group, self.count)
        dx, of_scale, of_bias = form.gradients(dy, x, scale, self.stats.k)
        return (
            dx if self.needs[0] else None,
            form.summed(of_scale, self.scale) if self.needs[1] else None,
            form.summed(of_bias, self.bias) if self.needs[2] else None,
        )


def merge(a: Array, b: Array) -> Array:
    """Merge the moments (m, k, d, var) of two parts. A part without numbers changes nothing.

    The merged shift k is the shift of the first part that has numbers. The two differences ta = mean_a - k = d_a and
    tb = mean_b - k = (k_b - k) + d_b are small even if the data is far from 0, so no digits are lost. With h = m_b / m:

        d = ta + (tb - ta) * h        var = va * (1 - h) + vb * h + (tb - ta)^2 * h * (1 - h)
    """
    (ma, ka, da, va), (mb, kb, db, vb) = a, b
    m = ma + mb
    h = mb / np.maximum(m, 1)
    k = np.where(ma > 0, ka, kb)
    ta, tb = da, np.where(mb > 0, (kb - k) + db, da)
    return np.stack([m, k, ta + (tb - ta) * h, va * (1 - h) + vb * h + (tb - ta) ** 2 * (h * (1 - h))])


class PooledStats:
    """Averages InstanceNorm's statistics over the samples of all ranks, to update the running statistics."""

    def __init__(self, running: Any, x: Array) -> None:
        self.running, self.positions = running, math.prod(x.shape[2:])
        self.block = np.zeros_like(x, np.float64, shape=(3, x.shape[1]))  # samples, sums of means, sums of variances

    def __call__(self, mean: Array, var: Array, count: int) -> None:  # noqa: ARG002  as Normalize calls it
        """Store the statistics of this rank's samples. If the rank has no samples, the method is not called."""
        self.block[0], self.block[1], self.block[2] = len(mean), mean.sum(0), var.sum(0)

    def pool(self, group: Any) -> None:
        """Add up the stored statistics of all ranks in one message, and update the running statistics with the average
        over all samples.
        """
        samples, mean, var = group.all_reduce(self.block, label="the statistics of instance_norm")
        total = int(samples[0])
        if total:
            self.running.update(mean / total, var / total, self.positions, total)
