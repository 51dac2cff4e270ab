"""Products of 8-bit integers on the CPU. minorm_ext/products/integers.pyx computes them with AMX, VNNI or 16-bit
multiply-adds.

`prepare_matmul` and `prepare_conv` pack the constant arguments, such as the weights, only once, and return a function
of the input. Convolutions that add up only a few products, such as depthwise ones, run in float32, which holds these
sums exactly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minorm_ext
from minorm.devices.dtypes import float32, int8, int32, uint8
from minorm.kernels.cpu import conv, conv_axes, conv_products
from minorm.kernels.cpu.memory import empty
from minorm.kernels.cpu.operands import plain
from minorm.kernels.reference import integers as reference
from minorm.kernels.reference.conv import checked
from minorm.kernels.reference.integers import Form, Ints, Pairs, Requantization, check_bytes, check_matrices, zeros

__all__ = [
    "Requantization", "add", "dequantize", "integer_conv", "integer_matmul", "prepare_conv", "prepare_matmul",
    "quantize", "requantize",
]  # fmt: skip

kernels: Any = minorm_ext.kernels("integers")

SHORT = (1 << 24) // 255**2  # the number of products that float32 adds up exactly
LEAST, MOST = 2.0**-12, 2.0**6  # quotients of scales for which float64 holds a multiply-add exactly
LARGE = 1 << 24  # numbers of a packed plane


class Weights:
    """The weights of a product, packed for the kernels."""

    __slots__ = ("packed", "totals", "unsigned")

    def __init__(self, w: Any, shape: Ints, steps: Ints, channels: int) -> None:
        """Pack w, viewed with the shape (groups, outputs, channels, taps) and w's steps along these axes.

        `channels` is the axis of w that holds the channels.
        """
        self.unsigned = w.dtype == uint8
        threads = minorm_ext.get_num_threads()
        light = kernels.IS_LIGHT_WORTH and _is_light(w, channels, self.unsigned)
        self.packed = kernels.Weights(plain(w), shape, steps, 128 * self.unsigned, light, int32, empty, threads)
        self.totals = self.packed.column_totals().astype(np.int64)  # (groups, outputs)

    def epilogue(self, zero: int, w_zero: Any, bias: Any, depth: int, how: Requantization | None) -> Any:
        """Return the numbers by which the kernels turn sums into results. w_zero and bias have the shape (groups,
        outputs), or are one number.

        The kernels sum up the products x w of the stored numbers, but the result is the sum of (x - zero) (w - w_zero).
        So -zero * (sum of the column) and -w_zero * (sum of the row) are added. If the stored numbers are moved by 128,
        the zero points are moved too.
        """
        shape = self.totals.shape
        moved = w_zero - 128 * self.unsigned
        offset = zero * (depth * moved - self.totals) + (0 if bias is None else bias)
        row_zeros = np.ascontiguousarray(np.broadcast_to(moved, shape), np.int32) if moved.any() else None
        return np.ascontiguousarray(offset.astype(np.int32)), row_zeros, _narrowed(how, self.totals.size)


def integer_matmul(
    a: Any, b: Any, a_zero: Any = 0, b_zero: Any = 0, bias: Any = None, how: Requantization | None = None
) -> Any:
    """Compute the same as reference.integer_matmul."""
    return prepare_matmul(a, b, a_zero, b_zero, bias, how)(a)


def prepare_matmul(
    a: Any, b: Any, a_zero: Any = 0, b_zero: Any = 0, bias: Any = None, how: Requantization | None = None
) -> Callable[[Any], Any]:
    """Return a function of `a` that computes integer_matmul. The other arguments are prepared only once.

    The function takes arrays of the same shape and type as `a`.
    """
    check_bytes("integer_matmul", a=a, b=b)
    check_matrices(a.shape, b.shape)
    columns = b.shape[-1]
    b_zero = zeros("integer_matmul", "b_zero", b_zero, columns)
    if bias is not None:
        reference.outputs("integer_matmul", "bias", bias, columns)
    if not a.size or not b.size or not _is_finite(how):
        return lambda a: reference.integer_matmul(a, b, a_zero, b_zero, bias, how)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape, stacked = (*lead, a.shape[-2], columns), math.prod(b.shape[:-2]) > 1
    if stacked:  # a matrix of b for each matrix of a
        b = np.broadcast_to(b, (*lead, *b.shape[-2:]))
    count, depth = math.prod(b.shape[:-2]), a.shape[-1]
    weights = Weights(b, (count, columns, depth, 1), (depth * columns, 1, columns, 0), -2)
    moved = _moved(a)
    epilogue = weights.epilogue(int(a_zero) + moved, b_zero, bias, depth, how)
    dtype, rows = int32 if how is None else how.dtype, math.prod(shape[:-1]) // count

    def multiply(a: Any) -> Any:
        a = np.broadcast_to(a, (*lead, *a.shape[-2:])) if stacked else a
        y = empty(shape, dtype)
        threads = minorm_ext.get_num_threads()
        kernels.multiply(plain(a), weights.packed, moved, epilogue, y, rows, empty, int32, threads)
        return y

    return multiply


def integer_conv(
    x: Any, w: Any, x_zero: Any, w_zero: Any, form: Form, bias: Any = None, how: Requantization | None = None
) -> Any:
    """Compute the same as reference.integer_conv."""
    return prepare_conv(x, w, x_zero, w_zero, form, bias, how)(x)


def prepare_conv(
    x: Any, w: Any, x_zero: Any, w_zero: Any, form: Form, bias: Any = None, how: Requantization | None = None
) -> Callable[[Any], Any]:
    """Return a function of `x` that computes integer_conv. The other arguments are prepared only once.

    The function takes arrays of the same shape and type as `x`.
    """
    check_bytes("integer_conv", x=x, w=w)
    shape = checked("integer_conv", x.shape, w.shape, *form)
    w_zero = zeros("integer_conv", "w_zero", w_zero, len(w))
    if bias is not None:
        reference.outputs("integer_conv", "bias", bias, len(w))
    if not math.prod(shape) or not x.size or not w.size or not _is_finite(how):
        return lambda x: reference.integer_conv(x, w, x_zero, w_zero, form, bias, how)
    dtype, groups = int32 if how is None else how.dtype, form[-1]
    if kernels.LANES and w.ndim == 4 and w.shape[1] == 1 < groups:
        taps, rows, pitch = _packed_plane(w.shape[2:], form, shape)
        if rows * form[0][1] * pitch < LARGE:
            return _depthwise_conv(x.shape, w, int(x_zero), w_zero, form, (taps, rows, pitch), shape, bias, how, dtype)
    if _is_short(w.shape, groups):
        return _short_conv(w, int(x_zero), w_zero, form, bias, how, dtype)
    outputs, channels, kernel = len(w) // groups, w.shape[1], math.prod(w.shape[2:])
    steps = outputs * channels * kernel, channels * kernel, kernel, 1
    weights = Weights(w, (groups, outputs, channels, kernel), steps, 1)
    moved = _moved(x)
    zero = int(x_zero) + moved
    by_group = w_zero if w_zero.size == 1 else w_zero.reshape(groups, outputs)
    of_group = None if bias is None else bias.astype(np.int64).reshape(groups, outputs)
    epilogue = weights.epilogue(zero, by_group, of_group, channels * kernel, how)
    convolution = planned(x.shape, w.shape, *form, weights.packed.group)

    def convolve(x: Any) -> Any:
        y = empty(shape, dtype)
        threads = minorm_ext.get_num_threads()
        convolution.correlate(plain(x), weights.packed, moved, zero, epilogue, y, empty, int32, threads)
        return y

    return convolve


def _packed_plane(kernel: Ints, form: Form, shape: Ints) -> tuple[list[tuple[int, int, int]], int, int]:
    """Return the layout that depthwise.h reads: (row, phase, position in the phase) of each tap, the number of rows,
    and the length of a phase. The number of taps is made even.
    """
    (stride_h, stride_w), _, dilation, _ = form
    taps = [(h * dilation[0], *divmod(v * dilation[1], stride_w)[::-1]) for h, v in np.ndindex(*kernel)]
    taps += taps[:1] * (len(taps) % 2)  # an odd number gets one more tap, with a weight of 0
    pitch = -(-shape[3] // (2 * kernels.LANES)) * 2 * kernels.LANES + max(place for *_, place in taps)
    return taps, (shape[2] - 1) * stride_h + max(h for h, *_ in taps) + 1, pitch


def _depthwise_conv(
    x_shape: Ints, w: Any, x_zero: int, w_zero: Any, form: Form, packed: tuple[Any, int, int], shape: Ints, bias: Any,
    how: Any, dtype: Any,
) -> Callable[[Any], Any]:  # fmt: skip
    """Return a depthwise convolution as a function of x, computed by minorm_ext/products/depthwise.h."""
    (stride_h, stride_w), ((low_h, _), (low_w, _)), _, groups = form
    taps, rows, pitch = packed
    places = np.array([(h * stride_w + phase) * pitch + place for h, phase, place in taps], np.int32)
    weights = np.zeros((len(w), len(taps)), np.int16)
    weights[:, : w[0].size] = w.reshape(len(w), -1).astype(np.int16) - w_zero[:, None].astype(np.int16)
    sizes = *x_shape[2:], *shape[2:], stride_h, stride_w, low_h, low_w, rows, pitch
    convolution = kernels.DepthwiseConvolution(x_shape[0], groups, len(w) // groups, sizes, places, weights)
    epilogue = _exact_epilogue(bias, how, len(w))

    def convolve(x: Any) -> Any:
        y = empty(shape, dtype)
        threads = minorm_ext.get_num_threads()
        convolution.correlate(plain(x), x.dtype == int8, x_zero, epilogue, y, empty, int32, threads)
        return y

    return convolve


def _is_short(w_shape: Ints, groups: int) -> bool:
    """Return True if float32 holds the sums of a group exactly, while integer kernels would mostly multiply padding."""
    return groups > 1 and w_shape[1] < kernels.GROUP and math.prod(w_shape[1:]) <= SHORT


def _short_conv(
    w: Any, x_zero: int, w_zero: Any, form: Form, bias: Any, how: Requantization | None, dtype: Any
) -> Callable[[Any], Any]:
    """Return the convolution as a function of x. float32 holds the products and their sums exactly."""
    kernel = (w.astype(np.int64) - w_zero.reshape(-1, *(1,) * (w.ndim - 1))).astype(float32)
    epilogue = _exact_epilogue(bias, how, len(w))

    def convolve(x: Any) -> Any:
        wide = empty(x.shape, float32)
        kernels.floats_of(plain(x), x.dtype == int8, x_zero, 1.0, wide)
        sums = conv.forward(wide, kernel, None, *form)
        y = empty(sums.shape, dtype)
        kernels.finish(plain(sums), True, epilogue, y, len(sums), len(w))
        return y

    return convolve


def requantize(sums: Any, how: Requantization, axis: int = 1) -> Any:
    """Compute the same as reference.requantize."""
    axis %= sums.ndim
    count = sums.shape[axis]
    if sums.dtype not in (int32, float32) or not sums.size or not _is_finite(how) or how.scale.size not in (1, count):
        return reference.requantize(sums, how, axis)
    y = empty(sums.shape, how.dtype)
    kernels.finish(
        plain(sums), sums.dtype == float32, _exact_epilogue(None, how, count), y, math.prod(sums.shape[:axis]), count
    )
    return y


def add(a: Any, b: Any, factors: tuple[Any, Any, Any], how: Requantization) -> Any:
    """Compute the same as reference.add."""
    check_bytes("add", a=a, b=b)
    if a.shape != b.shape or not a.size or not all(LEAST <= factor <= MOST for factor in factors[:2]):
        return reference.add(a, b, factors, how)
    y = empty(a.shape, how.dtype)
    kernels.add(plain(a), plain(b), (a.dtype == int8, b.dtype == int8), factors, (how.low, how.high), y)
    return y


def quantize(x: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    """Compute the same as reference.quantize."""
    y = empty(x.shape, dtype)
    limits = np.iinfo(dtype)
    kernels.bytes_of(plain(x), float(scale.item()), 0 if zero is None else int(zero.item()), limits.min, limits.max, y)
    return y


def dequantize(q: Any, scale: Any, zero: Any) -> Any:
    """Compute the same as reference.dequantize."""
    y = empty(q.shape, float32)
    kernels.floats_of(plain(q), q.dtype == int8, 0 if zero is None else int(zero.item()), float(scale.item()), y)
    return y


@functools.lru_cache(maxsize=256)
def planned(x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int, group: int) -> Any:
    """Return the plan of a convolution of integers, made from the tables of conv_products.py.

    In these tables, `group` channels count as one.
    """
    axes = conv_axes.forward(x_shape, w_shape, stride, padding, dilation)
    kernel, cells = conv_products.kernel_of(w_shape), -(-w_shape[1] // group)
    tables, sizes = conv_products.tables_of(
        axes, kernel, x_shape[0], groups, cells, w_shape[0] // groups, kernels.COLUMNS
    )
    return kernels.IntegerConvolution({**tables, "distances": np.ascontiguousarray(tables["steps"][:, 0])}, sizes)


def _exact_epilogue(bias: Any, how: Requantization | None, count: int) -> Any:
    """Return the numbers by which the kernels turn exact sums into results. The sums include the zero points."""
    offset = np.zeros(count, np.int32) if bias is None else np.ascontiguousarray(bias)
    return offset, None, _narrowed(how, count)


def _narrowed(how: Requantization | None, count: int) -> Any:
    """Return scale, zero, low and high for `count` outputs, or None if the sums themselves are the results."""
    if how is None:
        return None
    scale = how.scale.ravel()
    if scale.size not in (1, count):
        scale = np.tile(scale, count // scale.size)  # for a stack of matrices
    return np.ascontiguousarray(np.broadcast_to(scale, count), float32), how.zero, how.low, how.high


def _is_light(w: Any, axis: int, unsigned: bool) -> bool:
    """Return True if in each pair of stored numbers along an axis the absolute values add up to at most 128."""
    size = np.abs(w.astype(np.int16) - 128 * unsigned)
    if size.max() <= 64:
        return True
    size = np.moveaxis(size, axis, 0)
    even, odd = size[::2], size[1::2]
    return bool((even[: len(odd)] + odd).max(initial=0) <= 128)


def _moved(x: Any) -> int:
    """Return the offset that moves x into unsigned bytes."""
    return 128 if x.dtype == int8 else 0


def _is_finite(how: Requantization | None) -> bool:
    return how is None or bool(np.isfinite(how.scale).all())
