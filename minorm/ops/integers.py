"""Products of 8-bit integers: int32 sums, or bytes again where the scale of the result is given.

    q = round(sums * (x_scale * w_scale / y_scale)) + y_zero, cut off at the ends of the type

in float32, half way to the even number: onnxruntime's integers. `relu` cuts off below the zero point too. No gradient
passes integers. Scales and zero points are arrays of the run; the common forms go to the kernels, others are computed
here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minorm.devices import is_host
from minorm.devices.dtypes import float32
from minorm.graph.graph import Function
from minorm.kernels.reference.integers import Requantization, add_factors
from minorm.kernels.select import backend


class IntegerConvolution(Function):
    """Sums of (x - x_zero) (w - w_zero) over taps and channels, plus a bias; w_zero and w_scale are a channel's."""

    def forward(
        self, x: Any, w: Any, x_zero: Any, w_zero: Any, bias: Any = None, x_scale: Any = None, w_scale: Any = None,
        y_scale: Any = None, y_zero: Any = None, *, stride: Any, padding: Any, dilation: Any, groups: int,
        relu: bool = False,
    ) -> Any:  # fmt: skip
        how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "relu": relu}
        return self.prepared(x, w, x_zero, w_zero, bias, x_scale, w_scale, y_scale, y_zero, **how)(x)

    @staticmethod
    def prepared(
        x: Any, w: Any, x_zero: Any, w_zero: Any, bias: Any = None, x_scale: Any = None, w_scale: Any = None,
        y_scale: Any = None, y_zero: Any = None, *, stride: Any, padding: Any, dilation: Any, groups: int,
        relu: bool = False,
    ) -> Callable[[Any], Any]:  # fmt: skip
        """`forward` as a function of arrays that are like x."""
        how = requantization(x_scale, w_scale, y_scale, y_zero, relu)
        zeros = (0 if zero is None else host(zero) for zero in (x_zero, w_zero))
        form = stride, padding, dilation, groups
        return backend(x).integers.prepare_conv(x, w, *zeros, form, on_host(bias), how)  # type: ignore[no-any-return]


class IntegerMatMul(Function):
    """The same for matrices: a_zero and a_scale may be a row's, b_zero and b_scale a column's. `turned`: b is b.T."""

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
        """`forward` as a function of arrays that are like a."""
        b = b.swapaxes(-1, -2) if turned else b
        if not all(p is None or p.size == 1 for p in (a_zero, a_scale, y_zero)) or not all(
            p is None or p.size == 1 or p.shape == b.shape[-1:] for p in (b_zero, b_scale)
        ):
            return lambda a: _matmul(a, b, a_zero, b_zero, bias, a_scale, b_scale, y_scale, y_zero, relu)
        how = requantization(a_scale, b_scale, y_scale, y_zero, relu)
        zeros = (0 if zero is None else host(zero) for zero in (a_zero, b_zero))
        return backend(a).integers.prepare_matmul(a, b, *zeros, on_host(bias), how)  # type: ignore[no-any-return]


def _matmul(
    a: Any, b: Any, a_zero: Any, b_zero: Any, bias: Any, a_scale: Any, b_scale: Any, y_scale: Any, y_zero: Any,
    relu: bool,
) -> Any:  # fmt: skip
    """The rare forms, where each row has parameters, or each column of a stack: sums in float64, exact up to 2^53."""
    left = a.astype(np.float64) - (0 if a_zero is None else along_rows(a_zero, a))
    right = b.astype(np.float64) - (0 if b_zero is None else one(b_zero))
    sums = backend(a).matmul.matmul(left, right) + (0 if bias is None else bias)
    sums = sums.astype(np.int64).astype(np.int32)  # what lies beyond its ends comes in again at the other
    if y_scale is None:
        return sums
    scale = along_rows(a_scale, a).astype(float32) * one(b_scale).astype(float32)
    ends = np.iinfo(y_zero.dtype)
    steps = np.rint(sums.astype(float32) * (scale / y_scale.astype(float32))) + y_zero.astype(float32)
    low = np.maximum(y_zero, ends.min) if relu else ends.min
    return np.clip(np.nan_to_num(steps, nan=0), low, ends.max).astype(y_zero.dtype)


class QuantizedAdd(Function):
    """The bytes of the sum of what two arrays of bytes stand for, rounded as onnxruntime rounds it."""

    def forward(
        self, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any,
        *, relu: bool = False,
    ) -> Any:  # fmt: skip
        zeros = [int(host(zero)) for zero in (a_zero, b_zero, y_zero)]
        how = Requantization.of(1.0, host(y_zero), zeros[2] if relu else None)
        factors = add_factors([host(scale) for scale in (a_scale, b_scale, y_scale)], zeros)
        return backend(a).integers.add(a, b, factors, how)


def requantization(x_scale: Any, w_scale: Any, y_scale: Any, y_zero: Any, relu: bool) -> Requantization | None:
    """How sums become bytes; None where they stay sums."""
    if y_scale is None:
        return None
    x, w, y = (host(scale).astype(float32, copy=False) for scale in (x_scale, w_scale, y_scale))
    zero = host(y_zero)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return Requantization.of(x * w / y, zero, int(zero) if relu else None)


def host(array: Any) -> Any:
    """A scale or zero point as a NumPy array: one number without axes, or a row of them."""
    found = array if is_host(array) else array.get()
    return found.reshape(()) if found.size == 1 else found


def on_host(array: Any) -> Any:
    """A bias as a NumPy array."""
    return array if array is None or is_host(array) else array.get()


def along_rows(parameter: Any, a: Any) -> Any:
    """A scale or zero point of the left factor: one number, one for each row, or shaped (..., M, 1)."""
    return parameter[:, None] if parameter.shape == a.shape[-2:-1] and parameter.size > 1 else one(parameter)


def one(parameter: Any) -> Any:
    """A parameter that is one number without its axes."""
    return parameter.reshape(()) if parameter.size == 1 else parameter
