"""Convolution on the CPU: by minorm_ext/conv/conv.pyx for float32 and float64, and by the reference for empty arrays.

minorm_ext/products adds up bfloat16 numbers in the same order as a processor's matrix tiles
(docs/maths-narrow-types.md). Depthwise convolutions of bfloat16, and all convolutions of float16, compute in float32.
The result of every convolution is rounded once, and an epilogue rounds the result once more.
"""

from __future__ import annotations

import math
from typing import Any

import minorm_ext
from minorm.devices.dtypes import HALVES, float32, float64
from minorm.kernels.cpu import conv_plan as plan
from minorm.kernels.cpu import conv_products as tiled
from minorm.kernels.cpu.elementwise import add
from minorm.kernels.cpu.memory import empty
from minorm.kernels.cpu.operands import STORAGE, plain
from minorm.kernels.cpu.sums import sum_axes
from minorm.kernels.epilogue import check_epilogue
from minorm.kernels.reference import conv as reference
from minorm.kernels.reference.conv import (
    by_tiles,
    check_accumulate,
    check_bias,
    in_order,
    laid_out,
    output_shape,
    weights_laid_out,
)

__all__ = [
    "backward", "forward", "grad_bias", "grad_input", "grad_weight", "in_order", "laid_out", "output_shape", "ways",
    "weights_laid_out",
]  # fmt: skip

_maps: Any = minorm_ext.kernels("elementwise")

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
MOST_PHASES = 4096  # phases of a gradient, whose plan takes 1 or 2 seconds; with larger strides it is mostly 0


def forward(
    x: Any, w: Any, b: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int, epilogue: Any = None
) -> Any:
    """Return y = W * x + b. The epilogue of minorm/kernels/epilogue.py is applied before y is stored."""
    if x.dtype in HALVES:
        tiles = by_tiles(x, w, w.shape, groups)
        if tiles and b is not None and b.dtype != x.dtype:
            return reference.forward(x, w, b, stride, padding, dilation, groups, epilogue)
        if tiles:
            how, shape = tiled.forward(x.shape, w.shape, stride, padding, dilation, groups)
            check_bias("conv.forward", b, shape[1])
            y = _correlate_tiled(how, x, w, b, shape, False)
        else:
            y = forward(_wide(x), _wide(w), _wide(b), stride, padding, dilation, groups)
        check_epilogue("conv.forward", epilogue, y.shape[1], float32)
        return y.astype(x.dtype, copy=False) if epilogue is None else _finished(y, x.dtype, epilogue)
    if not _covers(x, w):
        return reference.forward(x, w, b, stride, padding, dilation, groups, epilogue)
    how, shape = plan.forward(x.shape, w.shape, stride, padding, dilation, groups, x.itemsize)
    check_bias("conv.forward", b, shape[1])
    check_epilogue("conv.forward", epilogue, shape[1], x.dtype)
    return _correlate(how, x, w, b, shape, False, epilogue)


def grad_input(
    dy: Any,
    w: Any,
    x_shape: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    b: Any = None,
    accumulate: Any = None,
) -> Any:
    """Return dx = W^T * dy + b + accumulate. Only the forward pass of a transposed convolution passes a bias b."""
    check_accumulate("conv.grad_input", accumulate, x_shape, dy.dtype)
    phases = math.prod(min(s, n) for s, n in zip(stride, x_shape[2:], strict=True))
    tiles = by_tiles(dy, w, w.shape, groups)
    if dy.dtype in HALVES and not tiles:
        dx = grad_input(_wide(dy), _wide(w), x_shape, stride, padding, dilation, groups, _wide(b)).astype(dy.dtype)
        return dx if accumulate is None else add(dx, accumulate)
    mixed = tiles and b is not None and b.dtype != dy.dtype
    if mixed or not 0 < phases <= MOST_PHASES or not (tiles or _covers(dy, w)):
        return reference.grad_input(dy, w, x_shape, stride, padding, dilation, groups, b, accumulate)
    if tiles:
        how = tiled.grad_input(dy.shape, w.shape, x_shape, stride, padding, dilation, groups)
        check_bias("conv.grad_input", b, x_shape[1])
        dx = _correlate_tiled(how, dy, w, b, x_shape, True)
        return dx if accumulate is None else add(dx, accumulate)
    how = plan.grad_input(dy.shape, w.shape, x_shape, stride, padding, dilation, groups, dy.itemsize)
    check_bias("conv.grad_input", b, x_shape[1])
    return _correlate(how, dy, w, b, x_shape, True, None, accumulate)


def grad_weight(
    dy: Any,
    x: Any,
    w_shape: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    bias: bool = True,
    like: Any = None,  # noqa: ARG001  the order in memory of dW on a GPU
) -> tuple[Any, Any]:
    """Return (dW = dy * x, db), with the same bits for any number of threads. With bias=False, db is None."""
    if by_tiles(dy, x, w_shape, groups):
        how = tiled.grad_weight(dy.shape, x.shape, w_shape, stride, padding, dilation, groups)
        dw = empty(w_shape, x.dtype)
        how.weight_gradient(plain(dy), plain(x), dw, empty, minorm_ext.get_num_threads())
        return dw, grad_bias(dy) if bias else None
    if dy.dtype in HALVES:
        dw, db = grad_weight(_wide(dy), _wide(x), w_shape, stride, padding, dilation, groups, bias)
        return dw.astype(dy.dtype), None if db is None else db.astype(dy.dtype)
    if not _covers(dy, x):
        return reference.grad_weight(dy, x, w_shape, stride, padding, dilation, groups, bias)
    how = plan.grad_weight(dy.shape, x.shape, w_shape, stride, padding, dilation, groups, x.itemsize)
    threads = minorm_ext.get_num_threads()
    dw, db = empty(w_shape, x.dtype), empty((w_shape[0],), x.dtype) if bias else None
    buffer = empty((how.weight_buffer(threads),), x.dtype)
    how.weight_gradient(plain(dy), plain(x), dw, db, buffer, x.itemsize, threads)
    return dw, db


def ways(
    x_shape: Ints, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int, itemsize: int
) -> tuple[Ints, dict[str, Any]]:
    """Return the shape of y, and the algorithms of forward, grad_input and grad_weight. For bfloat16, itemsize is 2."""
    how = stride, padding, dilation, groups
    if itemsize == 2 and tuple(w_shape[:2]) != (groups, 1):
        return tiled.ways(x_shape, w_shape, *how)
    return plan.ways(x_shape, w_shape, *how, max(4, itemsize))


def grad_bias(dy: Any) -> Any:
    """Return db: dy summed over all axes but the channels."""
    return sum_axes(dy, (0, *range(2, dy.ndim)))


backward = reference.backward_from_parts(grad_input, grad_weight, grad_bias)


def _correlate(
    how: Any, x: Any, w: Any, b: Any, shape: Ints, transposed: bool, epilogue: Any = None, more: Any = None
) -> Any:
    threads = minorm_ext.get_num_threads()
    y = empty(shape, x.dtype)
    buffer = empty((how.correlate_buffer(threads),), x.dtype)
    ends = tuple(None if a is None else plain(a) for a in (b, epilogue, more))
    how.correlate(plain(x), plain(w), ends, y, buffer, transposed, x.itemsize, threads)
    return y


def _correlate_tiled(how: Any, x: Any, w: Any, b: Any, shape: Ints, transposed: bool) -> Any:
    y = empty(shape, x.dtype)
    how.correlate(
        plain(x), plain(w), None if b is None else plain(b), y, empty, transposed, minorm_ext.get_num_threads()
    )
    return y


def _finished(y: Any, dtype: Any, table: Any) -> Any:
    """Apply the epilogue to the sums y, which have the 16-bit type `dtype` or float32. Sums in float32 are rounded to
    `dtype` before the epilogue.
    """
    out = y if y.dtype == dtype else empty(y.shape, dtype)
    planes = y.shape[0] * y.shape[1]
    size = math.prod(y.shape[2:])
    _maps.finish(y, STORAGE[y.dtype], plain(table), out, STORAGE[dtype], planes, size, minorm_ext.get_num_threads())
    return out


def _covers(a: Any, b: Any) -> bool:
    """Return True if neither array is empty and both arrays have the same type, float32 or float64."""
    return a.dtype in (float32, float64) and a.dtype == b.dtype and a.size > 0 and b.size > 0


def _wide(x: Any) -> Any:
    """Return a 16-bit array in float32."""
    return None if x is None else x.astype(float32)
