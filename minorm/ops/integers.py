"""Products of 8-bit integers: int32 sums, or bytes again where the scale of the result is given.

    q = round(sums * (x_scale * w_scale / y_scale)) + y_zero, cut off at the ends of the type

in float32, half way to the even number: onnxruntime's integers. `relu` cuts off below the zero point too. No gradient
passes integers. Parameters are arrays of the run; those of the common forms go to the kernels, others are computed here.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from minorm.devices import is_host
from minorm.devices.dtypes import float32
from minorm.graph.graph import Function
from minorm.kernels.reference.integers import Requantization
from minorm.kernels.select import backend


class IntegerConvolution(Function):
    """Sums of (x - x_zero) (w - w_zero) over taps and channels, plus a bias; w_zero and w_scale are a channel's."""

    weights: ClassVar[int] = 1  # the place of what may be packed once for many runs

    def forward(
        self, x: Any, w: Any, x_zero: Any, w_zero: Any, bias: Any = None, x_scale: Any = None, w_scale: Any = None,
        y_scale: Any = None, y_zero: Any = None, *, stride: Any, padding: Any, dilation: Any, groups: int,
        relu: bool = False,
    ) -> Any:  # fmt: skip
        how = requantization(x_scale, w_scale, y_scale, y_zero, relu)
        zeros = (0 if zero is None else host(zero) for zero in (x_zero, w_zero))
        return backend(x).integers.integer_conv(x, w, *zeros, stride, padding, dilation, groups, on_host(bias), how)

    @staticmethod
    def packed(w: Any, options: dict[str, Any]) -> Any:
        """w as `forward` may be given it instead."""
        return backend(w).integers.pack_conv(w, options["groups"])


class IntegerMatMul(Function):
    """The same for matrices: a_zero and a_scale may be a row's, b_zero and b_scale a column's. `turned`: b is b.T."""

    weights: ClassVar[int] = 1

    def forward(
        self, a: Any, b: Any, a_zero: Any, b_zero: Any, bias: Any = None, a_scale: Any = None, b_scale: Any = None,
        y_scale: Any = None, y_zero: Any = None, *, relu: bool = False, turned: bool = False,
    ) -> Any:  # fmt: skip
        b = b.swapaxes(-1, -2) if turned and hasattr(b, "dtype") else b
        if all(p is None or p.size == 1 for p in (a_zero, a_scale, y_zero)) and all(
            p is None or p.size == 1 or p.shape == b.shape[-1:] for p in (b_zero, b_scale)
        ):
            how = requantization(a_scale, b_scale, y_scale, y_zero, relu)
            zeros = (0 if zero is None else host(zero) for zero in (a_zero, b_zero))
            return backend(a).integers.integer_matmul(a, b, *zeros, on_host(bias), how)
        b = getattr(b, "source", b)  # of packed ones
        left = a.astype(np.float64) - (0 if a_zero is None else along_rows(a_zero, a))
        right = b.astype(np.float64) - (0 if b_zero is None else along_columns(b_zero, b))
        sums = backend(a).matmul.matmul(left, right) + (0 if bias is None else bias)
        sums = sums.astype(np.int64).astype(np.int32)  # what lies beyond its ends comes in again at the other
        if y_scale is None:
            return sums
        scale = along_rows(a_scale, a).astype(float32) * along_columns(b_scale, b).astype(float32)
        ends = np.iinfo(y_zero.dtype)
        steps = np.rint(sums.astype(float32) * (scale / y_scale.astype(float32))) + y_zero.astype(float32)
        low = np.maximum(y_zero, ends.min) if relu else ends.min
        return np.clip(np.nan_to_num(steps, nan=0), low, ends.max).astype(y_zero.dtype)

    @staticmethod
    def packed(b: Any, options: dict[str, Any]) -> Any:
        """b as `forward` may be given it instead."""
        return backend(b).integers.pack_matmul(b.swapaxes(-1, -2) if options.get("turned") else b)


class QuantizedAdd(Function):
    """The bytes of the sum of what two arrays of bytes stand for."""

    def forward(
        self, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any,
        *, relu: bool = False,
    ) -> Any:  # fmt: skip
        scales = [float(host(scale)) for scale in (a_scale, b_scale, y_scale)]
        zeros = [int(host(zero)) for zero in (a_zero, b_zero)]
        how = Requantization.of(1.0, host(y_zero), int(host(y_zero)) if relu else None)
        return backend(a).integers.add(a, b, scales, zeros, how)


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


def along_columns(parameter: Any, b: Any) -> Any:  # noqa: ARG001  as along_rows
    """A scale or zero point of the right factor: one number, one for each column, or shaped (..., 1, N)."""
    return one(parameter)


def one(parameter: Any) -> Any:
    return parameter.reshape(()) if parameter.size == 1 else parameter
