"""Products of 8-bit integers, summed exactly and then cut to int32.

    integer_matmul(a, b, ...)     sum over k of (a[i, k] - a_zero) * (b[k, j] - b_zero[j]), plus bias[j]
    integer_conv(x, w, ...)       the same over the taps and channels of a convolution
    requantize(sums, how, axis)   round(sums * scale) + zero as bytes, clipped to the range of the type

Products are computed in float64: a product of bytes is below 2^16, so a sum of up to 2^37 products is exact, and a GPU
has fast products of this type. Sums beyond int32 wrap around. If `how` is given, a product returns requantized sums.
Integers are not rounded, so the bits are the same for all backends and processors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minorm.devices import is_host, namespace
from minorm.devices.dtypes import BYTES
from minorm.kernels.reference.conv import checked
from minorm.kernels.reference.conv_tiles import Ints, Pairs

Form = tuple[Ints, Pairs, Ints, int]


class Requantization(NamedTuple):
    """The numbers that turn sums into bytes again. `scale` has one float32, or one float32 for each output."""

    scale: Any
    zero: int
    low: int
    high: int
    dtype: Any

    @classmethod
    def of(cls, scale: Any, zero: Any, low: int | None = None) -> Requantization:
        """Return the numbers that requantize to the type of `zero`. `zero` is an array of one number, and `low` is the
        lower bound of a Relu.
        """
        if zero.dtype not in BYTES or zero.size != 1:
            raise TypeError(
                f"requantize: zero is {zero.dtype} of shape {zero.shape}; expected one number of int8 or uint8"
            )
        ends = np.iinfo(zero.dtype)
        scale = np.asarray(scale, np.float32)
        return cls(scale, int(zero.item()), ends.min if low is None else max(low, ends.min), ends.max, zero.dtype)


def integer_matmul(
    a: Any, b: Any, a_zero: Any = 0, b_zero: Any = 0, bias: Any = None, how: Requantization | None = None
) -> Any:
    """Return a @ b for a (..., M, K) and b (..., K, N). a_zero is one number, b_zero has one or N numbers, and bias is
    None or has N numbers of int32.
    """
    check_bytes("integer_matmul", a=a, b=b)
    xp = namespace(a)
    b_zero = xp.asarray(zeros("integer_matmul", "b_zero", b_zero, b.shape[-1]))
    check_matrices(a.shape, b.shape)
    sums = ((a.astype(np.float64) - int(a_zero)) @ (b.astype(np.float64) - b_zero)).astype(np.int64)
    if bias is not None:
        sums = sums + xp.asarray(outputs("integer_matmul", "bias", bias, b.shape[-1]))
    sums = sums.astype(np.int32)
    return sums if how is None else requantize(sums, how, -1)


def integer_conv(
    x: Any, w: Any, x_zero: Any, w_zero: Any, form: Form, bias: Any = None, how: Requantization | None = None
) -> Any:
    """Return the convolution of x (N, C, ...) with w (O, C / groups, ...); x is padded with x_zero. w_zero has one or O
    numbers, and bias is None or has O numbers of int32.

    form    stride, padding, dilation and groups, as in reference/conv.py
    """
    check_bytes("integer_conv", x=x, w=w)
    stride, padding, dilation, groups = form
    out = checked("integer_conv", x.shape, w.shape, stride, padding, dilation, groups)
    xp = namespace(x)
    w_zero = xp.asarray(zeros("integer_conv", "w_zero", w_zero, len(w)))
    wide = xp.pad(x.astype(np.float64) - int(x_zero), ((0, 0), (0, 0), *_not_negative(padding)))
    wide = wide[
        (..., *(slice(-min(0, low), wide.shape[i + 2] + min(0, high)) for i, (low, high) in enumerate(padding)))
    ]
    kernel = w.astype(np.float64) - w_zero.reshape(-1, *(1,) * (w.ndim - 1))
    products = xp.zeros((len(x), groups, len(w) // groups, math.prod(out[2:])), np.float64)
    images = wide.reshape(len(x), groups, -1, *wide.shape[2:])
    kernels = kernel.reshape(groups, -1, *w.shape[1:])
    for tap in np.ndindex(*w.shape[2:]):
        places = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilation, out[2:], stride, strict=True)
        )
        if products.size and images.shape[2]:
            products += kernels[(..., *tap)] @ images[(..., *places)].reshape(*images.shape[:3], -1)
    sums = products.astype(np.int64).reshape(out)
    if bias is not None:
        sums += xp.asarray(outputs("integer_conv", "bias", bias, len(w))).reshape(-1, *(1,) * (w.ndim - 2))
    narrow = sums.astype(np.int32)
    return narrow if how is None else requantize(narrow, how, 1)


def prepare_matmul(a: Any, b: Any, *rest: Any) -> Callable[[Any], Any]:  # noqa: ARG001  other backends look at a
    """Return a function of `a` that computes integer_matmul. The other arguments are prepared only once."""
    return lambda a: integer_matmul(a, b, *rest)


def prepare_conv(x: Any, w: Any, *rest: Any) -> Callable[[Any], Any]:  # noqa: ARG001  as prepare_matmul
    """Return a function of `x` that computes integer_conv. The other arguments are prepared only once."""
    return lambda x: integer_conv(x, w, *rest)


def requantize(sums: Any, how: Requantization, axis: int = 1) -> Any:
    """Return round(sums * scale) + zero, where halves round to even. If there are several scales, they belong to the
    indices along `axis`.
    """
    scale = namespace(sums).asarray(how.scale)
    if scale.size > 1:
        scale = scale.reshape(tuple(-1 if i == axis % sums.ndim else 1 for i in range(sums.ndim)))
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(sums.astype(np.float32) * scale) + np.float32(how.zero)
    return np.clip(np.nan_to_num(steps, nan=0), how.low, how.high).astype(how.dtype)


def add(a: Any, b: Any, factors: tuple[Any, Any, Any], how: Requantization) -> Any:
    """Return round(a * factors[0] + (b * factors[1] + factors[2])), clipped to the bounds of `how`. a and b are bytes
    that broadcast.

    Each multiply-add is computed in float64, which holds the result exactly, and is rounded once to float32.
    """
    check_bytes("add", a=a, b=b)
    of_a, of_b, fixed = (np.float64(factor) for factor in factors)
    with np.errstate(over="ignore", invalid="ignore"):
        inner = (b.astype(np.float64) * of_b + fixed).astype(np.float32)
        sums = (a.astype(np.float64) * of_a + inner).astype(np.float32)
    return np.clip(np.nan_to_num(np.rint(sums), nan=0), how.low, how.high).astype(how.dtype)


def add_factors(scales: Sequence[Any], zeros: Sequence[int]) -> tuple[Any, Any, Any]:
    """Return the factors of `add` from the scales and zeros of a, b and the result, rounded as in onnxruntime."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        a, b, own = (np.float32(scale) for scale in scales)
        of_a, of_b = a / own, b / own
        moved = np.float32(np.float64(of_a) * zeros[0] + of_b * np.float32(zeros[1]))
        return of_a, of_b, np.float32(zeros[2]) - moved


def quantize(x: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    """Return round(x / scale) + zero for x of float32, clipped to the range of `dtype`. `scale` is one number, and
    `zero` is one number or None.
    """
    ends = np.iinfo(dtype)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        q = np.rint(x / scale.reshape(())) + np.float32(0 if zero is None else zero.item())
    return np.clip(np.nan_to_num(q, nan=0), ends.min, ends.max).astype(dtype)


def dequantize(q: Any, scale: Any, zero: Any) -> Any:
    """Return (q - zero) * scale for bytes q, in float32."""
    return (q.astype(np.int32) - (0 if zero is None else int(zero.item()))).astype(np.float32) * scale.reshape(())


def check_bytes(name: str, **arrays: Any) -> None:
    for argument, array in arrays.items():
        if array.dtype not in BYTES:
            raise TypeError(f"{name}: {argument} is {array.dtype}; expected int8 or uint8")


def check_matrices(a: Ints, b: Ints) -> None:
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise ValueError(f"integer_matmul: a is {a}, b is {b}; expected matrices with a.shape[-1] == b.shape[-2]")


def zeros(name: str, argument: str, given: Any, count: int) -> Any:
    """Return zero points as an int64 array of one number, or of one number for each output.

    Raises ValueError for other shapes.
    """
    array = (np.asarray(given) if is_host(given) else given).astype(np.int64)
    array = array if array.ndim else array.reshape(1)
    if array.shape not in ((1,), (count,)):
        raise ValueError(f"{name}: {argument} has shape {np.shape(given)}; expected one number, or ({count},)")
    return array


def outputs(name: str, argument: str, given: Any, count: int) -> Any:
    """Return `given`, which has an int32 for each output, as int64. Raise ValueError for another shape or type."""
    if given.shape != (count,) or given.dtype != np.int32:
        raise ValueError(
            f"{name}: {argument} is {given.dtype} of shape {given.shape}; expected int32 of shape ({count},)"
        )
    return given.astype(np.int64)


def _not_negative(padding: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(max(0, low), max(0, high)) for low, high in padding]
