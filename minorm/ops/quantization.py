"""Quantization: floats as small integers q with a scale and a zero point, and back: x ~ (q - zero) * scale.

Rounding has no slope. Quantize lets the gradient through as if it did not round (straight-through: Bengio et al. 2013,
arXiv:1308.3432), and none where q is cut off at the ends of its type; with Dequantize behind it the scale gets the
gradient of Esser et al. 2020, arXiv:1902.08153.

A scale is one number; or one for each place along an axis; or, with a block, one for each `block` places.
"""

from __future__ import annotations

import numpy as np

from minorm.devices import dtypes
from minorm.graph.graph import Function
from minorm.ops.elementwise import sum_to

# Types of ml_dtypes that a file may store integers and floats in, an element a byte.
_NAMES = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn",
          "int4", "uint4", "int2", "uint2")  # fmt: skip
NARROW = frozenset(np.dtype(getattr(dtypes.ml_dtypes, name)) for name in _NAMES if hasattr(dtypes.ml_dtypes, name))


def spread(parameter, shape, axis, block):
    """A scale or zero point as it broadcasts to x of this shape."""
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    if not block:
        return parameter.reshape(tuple(n if i == axis else 1 for i, n in enumerate(shape)))
    index = (slice(None),) * axis + (slice(0, shape[axis]),)
    return parameter.repeat(_length(block, shape[axis]), axis)[index]


def _length(block, n):
    """Of a block: no longer than the axis, so that a file cannot ask for a huge one."""
    return max(1, min(block, n))


def gathered(gradient, parameter, axis, block):
    """The gradient of x's shape summed to that of the scale."""
    if parameter.size == 1 and parameter.ndim <= 1:
        return gradient.sum().reshape(parameter.shape)
    if not block:
        shape = tuple(n if i == axis else 1 for i, n in enumerate(gradient.shape))
        return sum_to(gradient, shape).reshape(parameter.shape)
    count, n = parameter.shape[axis], gradient.shape[axis]
    block = _length(block, n)
    whole = np.zeros_like(gradient, shape=(*gradient.shape[:axis], count * block, *gradient.shape[axis + 1 :]))
    whole[(slice(None),) * axis + (slice(0, n),)] = gradient
    return whole.reshape((*gradient.shape[:axis], count, block, *gradient.shape[axis + 1 :])).sum(axis + 1)


class Quantize(Function):
    """round(x / scale) + zero, cut off at the ends of `dtype`; half way goes to the even one. As floats."""

    def forward(self, x, scale, zero, *, dtype, axis, block):
        self.x, self.scale, self.axis, self.block = x, scale, axis, block
        self.wide = dtypes.compute_type(scale.dtype)
        s = spread(scale, x.shape, axis, block)
        q = x.astype(self.wide) / s.astype(self.wide)
        floats = dtype in NARROW and "float" in dtype.name
        q = q if floats else np.rint(q)
        if zero is not None:
            q = q + spread(zero, x.shape, axis, block).astype(self.wide)
        ends = (dtypes.finfo if floats else dtypes.iinfo)(dtype)
        low, high = float(ends.min), float(ends.max)
        self.inside = (q >= low) & (q <= high)
        q = np.clip(np.nan_to_num(q, nan=0), low, high)
        return (q.astype(dtype) if floats else q).astype(self.wide)

    def backward(self, dq):
        s = spread(self.scale, self.x.shape, self.axis, self.block).astype(self.wide)
        slope = dq * self.inside / s
        dx = slope.astype(self.x.dtype) if self.needs[0] else None
        if not self.needs[1]:
            return dx, None, None
        ds = gathered(-slope * self.x.astype(self.wide) / s, self.scale, self.axis, self.block)
        return dx, ds.astype(self.scale.dtype), None


class Dequantize(Function):
    """(q - zero) * scale, in the type of the scale or in `dtype`; q are integers, or whole numbers of Quantize."""

    def forward(self, q, scale, zero, *, dtype, axis, block):
        self.scale, self.axis, self.block, self.given = scale, axis, block, q.dtype
        self.wide = dtypes.compute_type(scale.dtype)
        if q.dtype in NARROW and "float" in q.dtype.name:
            q = q.astype(self.wide)
        if not dtypes.is_float(q.dtype):
            q = q.astype(dtypes.int64)
        if zero is not None:
            q = q - spread(zero, q.shape, axis, block).astype(q.dtype)
        self.steps = q.astype(self.wide, copy=False)
        y = self.steps * spread(scale, q.shape, axis, block).astype(self.wide)
        return y.astype(scale.dtype if dtype is None else dtype, copy=False)

    def backward(self, dy):
        dy = dy.astype(self.wide, copy=False)
        dq = ds = None
        if self.needs[0]:
            dq = (dy * spread(self.scale, dy.shape, self.axis, self.block).astype(self.wide)).astype(self.given)
        if self.needs[1]:
            ds = gathered(dy * self.steps, self.scale, self.axis, self.block).astype(self.scale.dtype)
        return dq, ds, None


class FakeQuantize(Function):
    """(clip(round(x / scale) + zero, low, high) - zero) * scale: Quantize and Dequantize in one, all of it floats.

    dx = dy where x was not cut off, else 0. The scale's gradient is that of Esser et al. 2020, arXiv:1902.08153: a
    step of scale moves y by round(x / scale) - x / scale inside, and by (low or high) - zero where x was cut off.
    """

    def forward(self, x, scale, zero, *, low, high, axis):
        self.scale, self.axis = scale, axis
        wide = dtypes.compute_type(x.dtype)
        s = spread(scale, x.shape, axis, 0).astype(wide)
        z = 0 if zero is None else spread(zero, x.shape, axis, 0).astype(wide)
        given = x.astype(wide, copy=False) / s
        q = np.rint(given) + z
        self.inside = (q >= low) & (q <= high)
        steps = np.clip(q, low, high) - z
        if self.needs[1]:
            self.moves = steps - given * self.inside
        return (steps * s).astype(x.dtype, copy=False)

    def backward(self, dy):
        dx = dy * self.inside if self.needs[0] else None
        ds = None
        if self.needs[1]:
            ds = gathered(dy.astype(self.moves.dtype) * self.moves, self.scale, self.axis, 0).astype(self.scale.dtype)
        return dx, ds, None

    def gradient(self, dy):
        dx = dy * dy.from_array(self.inside.astype(dy.dtype))
        ds = None
        if self.needs[1]:
            each = dy * dy.from_array(self.moves.astype(dy.dtype))
            kept = [] if self.scale.size == 1 and self.scale.ndim <= 1 else [self.axis]
            ds = each.sum([i for i in range(dy.ndim) if i not in kept]).reshape(*self.scale.shape)
        return dx, ds, None
