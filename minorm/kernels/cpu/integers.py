"""Products of 8-bit integers on the CPU: minorm_ext/products/integers.pyx, by AMX, VNNI or pairs of 16 bits.

What does not change between products may be packed once: `pack_matmul` and `pack_conv` make Weights, which the products
take in place of b and w. Convolutions whose sums are short, depthwise ones above all, are those of float32, which holds
these sums exactly.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

import minorm_ext
from minorm.devices.dtypes import float32, int8, int32, uint8
from minorm.kernels.cpu import conv, conv_axes, conv_products
from minorm.kernels.cpu.memory import empty
from minorm.kernels.cpu.operands import plain
from minorm.kernels.reference import integers as reference
from minorm.kernels.reference.conv import checked
from minorm.kernels.reference.integers import Ints, Pairs, Requantization, check_bytes, check_matrices, zeros

__all__ = [
    "Requantization", "Weights", "add", "dequantize", "integer_conv", "integer_matmul", "pack_conv", "pack_matmul",
    "quantize", "requantize",
]  # fmt: skip

kernels: Any = minorm_ext.kernels("integers")

SHORT = (1 << 24) // 255**2  # products that float32 adds up exactly


class Weights:
    """Weights as the kernels take them, and what they were made of."""

    __slots__ = ("packed", "shape", "source", "totals", "unsigned")

    def __init__(self, w: Any, shape: Ints, steps: Ints) -> None:
        self.source, self.shape, self.unsigned = w, w.shape, w.dtype == uint8
        threads = minorm_ext.get_num_threads()
        self.packed = kernels.Weights(plain(w), shape, steps, 128 * self.unsigned, int32, empty, threads)
        self.totals = self.packed.column_totals().astype(np.int64)  # (groups, outputs of one)


def pack_matmul(b: Any) -> Any:
    """Weights for `integer_matmul`, of (..., K, N)."""
    check_bytes("pack_matmul", b=b)
    if b.ndim < 2:
        raise ValueError(f"pack_matmul: b is {b.shape}; expected matrices")
    if not b.size:
        return b
    *lead, depth, columns = b.shape
    return Weights(b, (math.prod(lead), columns, depth, 1), (depth * columns, 1, columns, 0))


def pack_conv(w: Any, groups: int) -> Any:
    """Weights for `integer_conv`, of (O, C / groups, *kernel)."""
    check_bytes("pack_conv", w=w)
    outputs, channels, kernel = len(w) // groups, w.shape[1], math.prod(w.shape[2:])
    if not w.size or is_short(w.shape, groups):
        return w
    steps = outputs * channels * kernel, channels * kernel, kernel, 1
    return Weights(w, (groups, outputs, channels, kernel), steps)


def is_short(w_shape: Ints, groups: int) -> bool:
    """Whether a group's sums are so short that float32 holds them, and its cells would be nearly empty."""
    return groups > 1 and w_shape[1] < kernels.GROUP and math.prod(w_shape[1:]) <= SHORT


def integer_matmul(
    a: Any, b: Any, a_zero: Any = 0, b_zero: Any = 0, bias: Any = None, how: Requantization | None = None
) -> Any:
    """As reference.integer_matmul; b may be packed."""
    source = b.source if isinstance(b, Weights) else b
    check_bytes("integer_matmul", a=a, b=source)
    check_matrices(a.shape, b.shape)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*lead, a.shape[-2], b.shape[-1])
    if not a.size or not source.size or not _is_finite(how):
        return reference.integer_matmul(a, source, a_zero, b_zero, bias, how)
    if math.prod(b.shape[:-2]) > 1:  # a matrix of b for each of a
        a = np.broadcast_to(a, (*lead, *a.shape[-2:]))
        if b.shape[:-2] != lead:
            b = np.broadcast_to(source, (*lead, *source.shape[-2:]))
    weights = b if isinstance(b, Weights) else pack_matmul(b)
    count = weights.totals.shape[0]
    b_zero = zeros("integer_matmul", "b_zero", b_zero, shape[-1])
    ends = _ends(weights, int(a_zero) + _moved(a), b_zero, bias, a.shape[-1], how, "integer_matmul")
    y = empty(shape, int32 if how is None else how.dtype)
    rows = math.prod(a.shape[:-1]) // count
    threads = minorm_ext.get_num_threads()
    kernels.multiply(plain(a), weights.packed, _moved(a), ends, y, rows, empty, int32, threads)
    return y


def integer_conv(
    x: Any, w: Any, x_zero: Any, w_zero: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int,
    bias: Any = None, how: Requantization | None = None,
) -> Any:  # fmt: skip
    """As reference.integer_conv; w may be packed."""
    source = w.source if isinstance(w, Weights) else w
    check_bytes("integer_conv", x=x, w=source)
    w_zero = zeros("integer_conv", "w_zero", w_zero, source.shape[0])
    form = stride, padding, dilation, groups
    shape = checked("integer_conv", x.shape, source.shape, *form)
    if not math.prod(shape) or not x.size or not source.size or not _is_finite(how):
        return reference.integer_conv(x, source, x_zero, w_zero, *form, bias, how)
    if is_short(source.shape, groups):
        return _short_conv(x, source, x_zero, w_zero, form, bias, how)
    weights = w if isinstance(w, Weights) else pack_conv(w, groups)
    y = empty(shape, int32 if how is None else how.dtype)
    zero = int(x_zero) + _moved(x)
    ends = _ends(weights, zero, w_zero, bias, math.prod(source.shape[1:]), how, "integer_conv")
    threads = minorm_ext.get_num_threads()
    convolution = planned(x.shape, source.shape, *form)
    convolution.correlate(plain(x), weights.packed, _moved(x), zero, ends, y, empty, int32, threads)
    return y


def requantize(sums: Any, how: Requantization, axis: int = 1) -> Any:
    """As reference.requantize."""
    axis %= sums.ndim
    count = sums.shape[axis]
    if sums.dtype not in (int32, float32) or not sums.size or not _is_finite(how) or how.scale.size not in (1, count):
        return reference.requantize(sums, how, axis)
    y = empty(sums.shape, how.dtype)
    ends = np.zeros(count, np.int32), None, _narrowed(how, count)
    kernels.finish(plain(sums), sums.dtype == float32, ends, y, math.prod(sums.shape[:axis]), count)
    return y


def add(a: Any, b: Any, scales: Any, zeros: Any, how: Requantization) -> Any:
    """As reference.add."""
    check_bytes("add", a=a, b=b)
    if a.shape != b.shape or not a.size or not all(np.isfinite(scales)) or not scales[2]:
        return reference.add(a, b, scales, zeros, how)
    y = empty(a.shape, how.dtype)
    signs = a.dtype == int8, b.dtype == int8
    kernels.add(plain(a), plain(b), signs, zeros, scales, (how.zero, how.low, how.high), y)
    return y


def quantize(x: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    """As reference.quantize."""
    y = empty(x.shape, dtype)
    ends = np.iinfo(dtype)
    kernels.bytes_of(plain(x), float(scale.item()), 0 if zero is None else int(zero.item()), ends.min, ends.max, y)
    return y


def dequantize(q: Any, scale: Any, zero: Any) -> Any:
    """As reference.dequantize."""
    y = empty(q.shape, float32)
    kernels.floats_of(plain(q), q.dtype == int8, 0 if zero is None else int(zero.item()), float(scale.item()), y)
    return y


@functools.lru_cache(maxsize=256)
def planned(x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    """The plan of a convolution: the tables of conv_products.py, with cells in place of channels."""
    axes = conv_axes.forward(x_shape, w_shape, stride, padding, dilation)
    kernel, cells = conv_products.kernel_of(w_shape), -(-w_shape[1] // kernels.GROUP)
    tables, sizes = conv_products.tables_of(
        axes, kernel, x_shape[0], groups, cells, w_shape[0] // groups, kernels.COLUMNS
    )
    return kernels.IntegerConvolution({**tables, "distances": np.ascontiguousarray(tables["steps"][:, 0])}, sizes)


def _short_conv(x: Any, w: Any, x_zero: Any, w_zero: Any, form: Any, bias: Any, how: Requantization | None) -> Any:
    """By float32, which holds the products and their sums exactly."""
    wide = empty(x.shape, float32)
    kernels.floats_of(plain(x), _moved(x) > 0, int(x_zero), 1.0, wide)
    kernel = (w.astype(np.int64) - w_zero.reshape(-1, *(1,) * (w.ndim - 1))).astype(float32)
    sums = conv.forward(wide, kernel, None, *form)
    y = empty(sums.shape, int32 if how is None else how.dtype)
    offset = np.zeros(len(w), np.int32) if bias is None else reference.outputs("integer_conv", "bias", bias, len(w))
    ends = offset.astype(np.int32), None, _narrowed(how, len(w))
    kernels.finish(plain(sums), True, ends, y, len(sums), len(w))
    return y


def _ends(
    weights: Weights, zero: int, w_zero: Any, bias: Any, depth: int, how: Requantization | None, name: str
) -> Any:
    """What becomes of the sums of each output, as the kernels take it.

    They sum up x w as both are stored; what is meant is (x - zero) (w - w_zero), where the zero points are moved with
    the numbers. So -zero * (what the column adds up to) is added, and -w_zero * (what the row adds up to).
    """
    groups, outputs = weights.totals.shape
    by_output = np.broadcast_to(w_zero - 128 * weights.unsigned, w_zero.shape)
    if by_output.size > 1 and groups > 1 and name == "integer_conv":
        by_output = by_output.reshape(groups, outputs)
    offset = zero * (depth * by_output - weights.totals)
    if bias is not None:
        count = outputs if name == "integer_matmul" else groups * outputs
        given = reference.outputs(name, "bias", bias, count)
        offset = offset + (given if name == "integer_matmul" else given.reshape(groups, outputs))
    shape = (groups, outputs)
    row_zeros = None
    if by_output.any():
        row_zeros = np.ascontiguousarray(np.broadcast_to(by_output, shape), np.int32)
    narrowed = None if how is None else _narrowed(how, groups * outputs)
    return np.ascontiguousarray(np.broadcast_to(offset, shape).astype(np.int32)), row_zeros, narrowed


def _narrowed(how: Requantization | None, count: int) -> Any:
    """scale, zero, low and high, for so many outputs."""
    if how is None:
        return None
    scale = how.scale.ravel()
    if scale.size not in (1, count):
        scale = np.tile(scale, count // scale.size)  # of a stack of matrices
    return np.ascontiguousarray(np.broadcast_to(scale, count), float32), how.zero, how.low, how.high


def _moved(x: Any) -> int:
    """By how much x is moved up, to be stored in unsigned bytes."""
    return 128 if x.dtype == int8 else 0


def _is_finite(how: Requantization | None) -> bool:
    return how is None or bool(np.isfinite(how.scale).all())
