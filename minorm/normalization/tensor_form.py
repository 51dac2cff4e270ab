"""The normalization equation with Tensors, for third and higher derivatives, and for given statistics.

Here a normalization is the formula of docs/maths.md, applied to axes instead of loops. x has the axes after the group
split. Statistics have length 1 along the reduced axes, and parameters have length 1 along the axes where they do not
vary. The formula first subtracts k, the shift that the kernels found, so that no digits are lost far from 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.normalization.call import NormCall
from minorm.normalization.layout import mask_like

Array = Any


class TensorForm:
    """Holds the axes of a call, and computes the formulas. It makes new Tensors by calling methods of the Tensor
    `like`.
    """

    def __init__(self, call: NormCall, like: Any, mask: Array | None, x: Array) -> None:
        axes = call.layout.origin.axes
        self.call, self.like, self.equation = call, like, call.equation
        self.shape = tuple([axis.count for axis in axes])
        self.kept_shape = tuple([1 if axis.reduced else axis.count for axis in axes])
        self.reduced = tuple([i for i, axis in enumerate(axes) if axis.reduced])
        self.varying = tuple([axis.count if axis.varies else 1 for axis in axes])
        self.shared = tuple([i for i, axis in enumerate(axes) if not axis.varies])
        self.mask = None if mask is None else np.ascontiguousarray(mask_like(mask, x)).reshape(self.shape)

    def normalized(self, x: Any, k: Array) -> tuple[Any, Any, Any]:
        """Return xhat, rstd and slope with the statistics of x. k holds a number close to the mean for each row."""
        equation, t = self.equation, self.split(x)
        if equation.centered:
            t = self.counted(t - self.constant(self.row(k)))
            t = self.counted(t - self.mean(t))
        var = self.mean(t * t)
        if not equation.guard:
            rstd, slope = (var + equation.eps) ** -0.5, None
        else:
            zero = self.constant(var.array == 0)
            std = var.masked_fill(zero, 1.0).sqrt()
            rstd, slope = (1 / (std + equation.eps)).masked_fill(zero, 0.0), ((std + equation.eps) / std)
            slope = slope.masked_fill(zero, 0.0)
        if self.mask is not None:
            rstd = rstd.masked_fill(self.constant(self.count() <= (1 if equation.centered else 0)), 0.0)
        return t * rstd, rstd, slope

    def gradients(self, dy: Any, x: Any, scale: Any, k: Array) -> tuple[Any, Any, Any]:
        """Return dx in the form of x, and the products whose sums are ds and db."""
        xhat, rstd, slope = self.normalized(x, k)
        dy = self.split(dy)
        g = dy if scale is None else dy * self.parameter(scale)
        inner = self.mean(g * xhat) if slope is None else self.mean(g * xhat) * slope
        centred = g - self.mean(g) if self.equation.centered else g
        return self.joined(rstd * (centred - xhat * inner), x), dy * xhat, dy

    def with_statistics(self, x: Any, mean: Any, var: Any, scale: Any, bias: Any) -> Any:
        """Return y for given statistics mean and var."""
        t = self.split(x) - mean.to(self.call.dtype).reshape(self.kept_shape)
        y = t * (var.to(self.call.dtype).reshape(self.kept_shape) + self.equation.eps) ** -0.5
        if scale is not None:
            y = y * self.parameter(scale)
        return self.joined(y if bias is None else y + self.parameter(bias), x)

    def summed(self, products: Any, like: Array) -> Any:
        """Return ds or db, which is the sum of these products, in the shape and type of `like`."""
        return products.sum(self.shared, keepdim=True).reshape(like.shape).to(like.dtype)

    def split(self, x: Any) -> Any:
        """Return x after the group split, in the compute type, and with 0 where the mask is False."""
        return self.counted(x.to(self.call.dtype).reshape(self.shape))

    def joined(self, y: Any, x: Any) -> Any:
        return self.counted(y).reshape(x.shape).to(x.dtype)

    def counted(self, a: Any) -> Any:
        return a if self.mask is None else a.masked_fill(self.constant(~self.mask), 0.0)

    def count(self) -> Any:
        """Return the number of elements in each row. If there is a mask, the result is an array, else one number."""
        if self.mask is None:
            return self.call.nest.columns
        return self.mask.sum(axis=self.reduced, keepdims=True)

    def mean(self, a: Any) -> Any:
        total, count = a.sum(self.reduced, keepdim=True), np.maximum(self.count(), 1)
        return total / (int(count) if self.mask is None else self.constant(count.astype(self.call.dtype)))

    def row(self, flat: Array) -> Array:
        """Return statistics in loop order as an array that broadcasts, in the compute type."""
        return self.call.layout.statistics(flat).reshape(self.kept_shape).astype(self.call.dtype)

    def parameter(self, s: Any) -> Any:
        return s.to(self.call.dtype).reshape(self.varying)

    def constant(self, array: Array) -> Any:
        return self.like.from_array(array)
