"""Quantization converts floats x to small integers q and back. With a scale and a zero point, x ~ (q - zero) * scale.

Rounding has slope 0. Quantize passes the gradient as if nothing were rounded (straight-through: Bengio et al. 2013,
arXiv:1308.3432), except where q is clipped to the range of its type. If Dequantize follows, the scale gets the gradient
of Esser et al. 2020, arXiv:1902.08153.

A scale has one number, or one number for each index along an axis, or one number for each `block` indices along an
axis.

Products of bytes are int32 sums. If the scale of the result is given, the sums become bytes again:

    q = round(sums * (x_scale * w_scale / y_scale)) + y_zero, clipped to the range of the type

This formula is computed in float32 and rounds ties to even, so the integers are the same as in onnxruntime. relu=True
also clips q below the zero point. These products pass no gradient. Scales and zero points are given as arrays in each
run. Kernels compute the common cases, and this file computes the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import dtypes, is_host, to_device
from minorm.devices.dtypes import BYTES, float32
from minorm.graph.expressions import LinearMap, passing
from minorm.graph.graph import Function
from minorm.kernels.reference.integers import Form, Requantization, add_factors
from minorm.kernels.select import backend
from minorm.ops.elementwise import sum_to

# Types of ml_dtypes in which a file may store integers and floats, with one byte per element.
_NAMES = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn",
          "int4", "uint4", "int2", "uint2")  # fmt: skip
NARROW = frozenset(np.dtype(getattr(dtypes.ml_dtypes, name)) for name in _NAMES if hasattr(dtypes.ml_dtypes, name))


def spread(parameter: Any, shape: tuple[int, ...], axis: int, block: int) -> Any:
    """Return a scale or zero point in a shape that broadcasts to an x of this `shape`."""
    if parameter.size == 1 and parameter.ndim <= 1:
        return parameter.reshape(())
    if not block:
        return parameter.reshape(tuple(n if i == axis else 1 for i, n in enumerate(shape)))
    index = (slice(None),) * axis + (slice(0, shape[axis]),)
    return parameter.repeat(_length(block, shape[axis]), axis)[index]


def _length(block, n):
    """Return the length of a block, but at most the axis's length n, so that a file cannot ask for a huge block."""
    return max(1, min(block, n))


def gathered(gradient, parameter, axis, block):
    """Sum a gradient of x's shape, so that it has the shape of the scale."""
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


def spread_tensor(scale, shape, axis, block):
    """Do the same as `spread` for a Tensor, but return the full shape of x."""
    array = scale.array
    return LinearMap.apply(
        scale,
        there=lambda a: spread(a, shape, axis, block) + np.zeros_like(a, shape=shape),
        back=lambda g: gathered(g, array, axis, block),
    )


def gathered_tensor(gradient, parameter, axis, block):
    """Do the same as `gathered` for a Tensor. `parameter` is the scale as an array."""
    shape = gradient.shape
    return LinearMap.apply(
        gradient,
        there=lambda g: gathered(g, parameter, axis, block),
        back=lambda a: spread(a, shape, axis, block) + np.zeros_like(a, shape=shape),
    )


class IntegerFunction(Function):
    """Base class of Functions that return integers. They pass no gradient, even if a scale requires grad."""

    differentiable = False


class Quantize(Function):
    """round(x / scale) + zero as floats, clipped to the range of `dtype`; ties round to even."""

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
        if dtype == dtypes.int32 and self.wide == float32:
            high = 2.0**31 - 128  # the largest float32 below 2^31, which would wrap around
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

    def gradient(self, dq):
        x, scale = self.input(0, self.x, dq).to(self.wide), self.input(1, self.scale, dq)
        s = spread_tensor(scale.to(self.wide), x.shape, self.axis, self.block)
        slope = passing(dq, self.inside) / s
        dx = slope.to(self.x.dtype) if self.needs[0] else None
        if not self.needs[1]:
            return dx, None, None
        ds = gathered_tensor(-slope * x / s, self.scale, self.axis, self.block)
        return dx, ds.to(self.scale.dtype), None


class ToIntegers(IntegerFunction):
    """Quantizes to integers. It passes no gradient."""

    moving = 0

    def forward(self, x, scale, zero, *, dtype, axis, block):
        if dtype in BYTES and _is_plain(x, scale, zero):
            return backend(x).integers.quantize(x, scale, zero, dtype)
        return Quantize().forward(x, scale, zero, dtype=dtype, axis=axis, block=block).astype(dtype)

    @staticmethod
    def prepared(x, scale, zero, **options):
        """Quantize the weights once. Return a function without arguments that returns the same array at every call."""
        q = ToIntegers().forward(x, scale, zero, **options)
        q.flags.writeable = False
        return lambda: q


def _is_plain(floats, scale, zero):
    """Return True if x and scale are float32 on the CPU and the whole array has one scale."""
    return (
        is_host(floats)
        and floats.dtype == scale.dtype == float32
        and scale.size == 1
        and scale.ndim <= 1
        and (zero is None or zero.size == 1)
    )


class Dequantize(Function):
    """(q - zero) * scale, in the type of the scale or in `dtype`. q holds integers, or the whole numbers that Quantize
    returns as floats.
    """

    def forward(self, q, scale, zero, *, dtype, axis, block):
        self.scale, self.axis, self.block, self.given = scale, axis, block, q.dtype
        if q.dtype in BYTES and dtype in (None, float32) and not self.needs[1] and _is_plain(scale, scale, zero):
            self.wide = float32
            return backend(q).integers.dequantize(q, scale, zero)
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

    def gradient(self, dy):
        """Differentiate as if Quantize did not round.

        `zero` is a constant, so q - zero has the slope 1.
        """
        dy = dy.to(self.wide)
        dq = ds = None
        if self.needs[0]:
            scale = self.input(1, self.scale, dy).to(self.wide)
            dq = (dy * spread_tensor(scale, dy.shape, self.axis, self.block)).to(self.given)
        if self.needs[1]:
            steps = self.input(0, self.steps, dy) if self.needs[0] else dy.from_array(self.steps)
            ds = gathered_tensor(dy * steps, self.scale, self.axis, self.block).to(self.scale.dtype)
        return dq, ds, None


class FakeQuantize(Function):
    """(clip(round(x / scale) + zero, low, high) - zero) * scale: Quantize and Dequantize in one step, with floats.

    dx = dy where x was not clipped, else 0. The scale's gradient follows Esser et al. 2020, arXiv:1902.08153: dy/dscale
    is round(x / scale) - x / scale where x was not clipped, and (low or high) - zero where it was clipped.
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
        ds = None
        if self.needs[1]:
            each = dy * dy.from_array(self.moves.astype(dy.dtype))
            ds = gathered_tensor(each, self.scale, self.axis, 0).to(self.scale.dtype)
        return passing(dy, self.inside), ds, None


# Products of bytes


class IntegerConvolution(IntegerFunction):
    """Sums of (x - x_zero) (w - w_zero) over taps and channels, plus a bias. w_zero and w_scale may have a number for
    each output channel.

    form    stride, padding, dilation and groups
    """

    moving = 1

    def forward(
        self, x: Any, w: Any, x_zero: Any, w_zero: Any, bias: Any = None, x_scale: Any = None, w_scale: Any = None,
        y_scale: Any = None, y_zero: Any = None, *, form: Form, relu: bool = False,
    ) -> Any:  # fmt: skip
        scales = x_scale, w_scale, y_scale
        return self.prepared(x, w, x_zero, w_zero, bias, *scales, y_zero, form=form, relu=relu)(x)

    @staticmethod
    def prepared(
        x: Any, w: Any, x_zero: Any, w_zero: Any, bias: Any = None, x_scale: Any = None, w_scale: Any = None,
        y_scale: Any = None, y_zero: Any = None, *, form: Form, relu: bool = False,
    ) -> Callable[[Any], Any]:  # fmt: skip
        """Prepare the constant arguments once. Return a function of x that computes `forward`."""
        how = requantization(x_scale, w_scale, y_scale, y_zero, relu)
        zeros = (0 if zero is None else host(zero) for zero in (x_zero, w_zero))
        return backend(x).integers.prepare_conv(x, w, *zeros, form, on_host(bias), how)


class IntegerMatMul(IntegerFunction):
    """Sums of (a - a_zero) (b - b_zero) for a matrix product a @ b, plus a bias. With turned=True, b is transposed
    first.

    a_zero and a_scale may have a number for each row, and b_zero and b_scale may have a number for each column.
    """

    moving = 1

    def forward(
        self, a: Any, b: Any, a_zero: Any, b_zero: Any, bias: Any = None, a_scale: Any = None, b_scale: Any = None,
        y_scale: Any = None, y_zero: Any = None, *, relu: bool = False, turned: bool = False,
    ) -> Any:  # fmt: skip
        rest = a_zero, b_zero, bias, a_scale, b_scale, y_scale, y_zero
        return self.prepared(a, b, *rest, relu=relu, turned=turned)(a)

    @staticmethod
    def prepared(
        a: Any, b: Any, a_zero: Any, b_zero: Any, bias: Any = None, a_scale: Any = None, b_scale: Any = None,
        y_scale: Any = None, y_zero: Any = None, *, relu: bool = False, turned: bool = False,
    ) -> Callable[[Any], Any]:  # fmt: skip
        """Prepare the constant arguments once. Return a function of a that computes `forward`."""
        b = b.swapaxes(-1, -2) if turned else b
        if not all(p is None or p.size == 1 for p in (a_zero, a_scale, y_zero)) or not all(
            p is None or p.size == 1 or p.shape == b.shape[-1:] for p in (b_zero, b_scale)
        ):
            return lambda a: _matmul(a, b, a_zero, b_zero, bias, a_scale, b_scale, y_scale, y_zero, relu)
        how = requantization(a_scale, b_scale, y_scale, y_zero, relu)
        zeros = (0 if zero is None else host(zero) for zero in (a_zero, b_zero))
        return backend(a).integers.prepare_matmul(a, b, *zeros, on_host(bias), how)


def _matmul(
    a: Any, b: Any, a_zero: Any, b_zero: Any, bias: Any, a_scale: Any, b_scale: Any, y_scale: Any, y_zero: Any,
    relu: bool,
) -> Any:  # fmt: skip
    """Compute a product with rare parameters, which have a number for each row of a, or for each column of a stack.
    Sums are computed in float64, so they are exact up to 2^53.
    """
    left = a.astype(np.float64) - (0 if a_zero is None else along_rows(a_zero, a))
    right = b.astype(np.float64) - (0 if b_zero is None else one(b_zero))
    sums = backend(a).matmul.matmul(left, right) + (0 if bias is None else bias)
    sums = sums.astype(np.int64).astype(np.int32)  # sums beyond int32 wrap around
    if y_scale is None:
        return sums
    scale = along_rows(a_scale, a).astype(float32) * one(b_scale).astype(float32)
    ends = np.iinfo(y_zero.dtype)
    steps = np.rint(sums.astype(float32) * (scale / y_scale.astype(float32))) + y_zero.astype(float32)
    low = np.maximum(y_zero, ends.min) if relu else ends.min
    return np.clip(np.nan_to_num(steps, nan=0), low, ends.max).astype(y_zero.dtype)


class QuantizedAdd(IntegerFunction):
    """Adds the numbers that two arrays of bytes represent. The result is bytes, rounded as in onnxruntime."""

    moving = 2

    def forward(self, a: Any, b: Any, *rest: Any, relu: bool = False) -> Any:
        return self.prepared(a, b, *rest, relu=relu)(a, b)

    @staticmethod
    def prepared(
        a: Any, _: Any, a_scale: Any, a_zero: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any,
        *, relu: bool = False,
    ) -> Callable[[Any, Any], Any]:  # fmt: skip
        """Prepare the constant arguments once. Return a function of a and b that computes `forward`."""
        zeros = [0 if zero is None else int(host(zero)) for zero in (a_zero, b_zero, y_zero)]
        how = Requantization.of(1.0, host(y_zero), zeros[2] if relu else None)
        factors = add_factors([host(scale) for scale in (a_scale, b_scale, y_scale)], zeros)
        add = backend(a).integers.add
        return lambda a, b: add(a, b, factors, how)


def requantization(x_scale: Any, w_scale: Any, y_scale: Any, y_zero: Any, relu: bool) -> Requantization | None:
    """Return the numbers that turn sums into bytes, or None if the sums themselves are the result."""
    if y_scale is None:
        return None
    x, w, y = (host(scale).astype(float32, copy=False) for scale in (x_scale, w_scale, y_scale))
    zero = host(y_zero)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return Requantization.of(x * w / y, zero, int(zero) if relu else None)


def host(array: Any) -> Any:
    """Return a scale or zero point as a NumPy array. If it is one number, the array has no axes."""
    found = to_device(array, "cpu")
    return found.reshape(()) if found.size == 1 else found


def on_host(array: Any) -> Any:
    """Return a bias as a NumPy array."""
    return None if array is None else to_device(array, "cpu")


def along_rows(parameter: Any, a: Any) -> Any:
    """Return a scale or zero point of the left factor in a shape that broadcasts to this factor. If there is a number
    for each row, this shape is (M, 1) or (..., M, 1).
    """
    return parameter[:, None] if parameter.shape == a.shape[-2:-1] and parameter.size > 1 else one(parameter)


def one(parameter: Any) -> Any:
    """Return a parameter unchanged, but without axes if it is one number."""
    return parameter.reshape(()) if parameter.size == 1 else parameter
