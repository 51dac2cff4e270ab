"""Convolution as one matrix product for a number of images: conv.cu brings the images into the form of columns.

    cols (groups * I * taps, images * results)       each column what one window of every channel sees
    forward        W (O, I * taps) @ cols            -> y (O, images * results), then images before channels again
    grad_weight    dy (O, images * results) @ cols^T
    grad_input     W^T @ dy -> cols                  then every place of x gathers from the windows that meet it

A group has its own product. Columns are larger than x by the number of taps, so that a batch goes in parts of at most
LIMIT bytes, whose results are added in their order. 16-bit floats go as they are where one product has the result, and
as float32 where results of several are added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import cupy

from minorm import dtypes
from minorm.kernels.gpu import launch
from minorm.kernels.gpu.matmul import matmul
from minorm.kernels.gpu.memory import owned
from minorm.kernels.gpu.operands import plain
from minorm.kernels.gpu.program import Program
from minorm.kernels.gpu.structs import windows_of
from minorm.kernels.reference.conv import output_shape

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

LIMIT = 1 << 29
THREADS = 256

_program = Program("conv.cu")


def forward(x: Any, w: Any, b: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    """y = W * x + b; in 16 bits the bias is a rounding more."""
    x, size, kernel = plain(x), x.shape[2:], w.shape[2:]
    out = output_shape(size, kernel, stride, padding, dilation)
    struct = windows_of(size, out, kernel, stride, padding, dilation)
    y = cupy.empty((x.shape[0], w.shape[0], *out), x.dtype)
    for part in _parts(x.shape, prod(kernel) * prod(out), x.dtype):
        cols = _im2col(struct, x[part], x.dtype)
        _swap(_product(w.reshape(w.shape[0], -1), cols, groups), y[part], b)
    return y


def grad_input(
    dy: Any, w: Any, x_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int, b: Any = None
) -> Any:
    """dx = W^T * dy, plus a bias."""
    dy, dtype, kernel = plain(dy), dy.dtype, w.shape[2:]
    compute = dtypes.compute_type(dtype)
    struct = windows_of(x_shape[2:], dy.shape[2:], kernel, stride, padding, dilation)
    rows = w.astype(compute, copy=False).reshape(groups, w.shape[0] // groups, prod(w.shape[1:]))
    if groups == 1:
        turned = rows[0].T  # cuBLAS reads it either way
    else:
        turned = plain(rows.swapaxes(1, 2)).reshape(x_shape[1] * prod(kernel), w.shape[0] // groups)
    dx = cupy.empty(x_shape, dtype)
    for part in _parts(x_shape, prod(kernel) * prod(dy.shape[2:]), compute):
        _col2im(struct, _product(turned, _channels_first(dy[part], compute), groups), dx[part], b)
    return dx


def grad_weight(dy: Any, x: Any, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    """dW = dy * x."""
    dy, x, dtype = plain(dy), plain(x), x.dtype
    struct = windows_of(x.shape[2:], dy.shape[2:], w_shape[2:], stride, padding, dilation)
    parts = list(_parts(x.shape, prod(w_shape[2:]) * prod(dy.shape[2:]), dtype))
    product_type = dtype if len(parts) == 1 else dtypes.compute_type(dtype)
    dw = None
    for part in parts:
        cols, rows = _im2col(struct, x[part], product_type), _channels_first(dy[part], product_type)
        if groups == 1:
            one = matmul(rows, cols.T)
        else:  # dW^T: of the two sides dy is the small one to turn round
            rows = rows.reshape(groups, w_shape[0] // groups, -1)
            one = matmul(cols.reshape(groups, prod(w_shape[1:]), -1), plain(rows.swapaxes(1, 2))).swapaxes(1, 2)
        dw = one if dw is None else dw + one
    return owned(plain(dw).reshape(w_shape).astype(dtype, copy=False))


def _parts(x_shape: Ints, columns: int, dtype: Any) -> Iterator[slice]:
    """The images in parts whose columns take at most LIMIT bytes, or one by one."""
    images = max(1, LIMIT // (x_shape[1] * columns * dtype.itemsize))
    for start in range(0, x_shape[0], images):
        yield slice(start, start + images)


def _product(rows: Any, cols: Any, groups: int) -> Any:
    """Each group's rows (groups * O, n) @ its own part of cols (groups * n, m): (groups * O, m)."""
    if groups == 1:
        return matmul(rows, cols)
    result = matmul(rows.reshape(groups, -1, rows.shape[1]), cols.reshape(groups, rows.shape[1], cols.shape[1]))
    return result.reshape(rows.shape[0], cols.shape[1])


def _im2col(struct: Any, x: Any, dtype: Any) -> Any:
    """The columns of x (images, channels, *size), in `dtype`."""
    images, channels = x.shape[:2]
    taps, results = int(struct.fields["taps"]), int(struct.fields["results"])
    cols = cupy.empty((channels * taps, images * results), dtype)
    index, count = launch.index_type(max(x.size, cols.size)), channels * images * results
    kernel = _program.kernel("im2col", x.dtype, dtype, dtypes.compute_type(dtype), index)
    sizes = map(index.type, (count, images, channels))
    kernel((launch.blocks(count, THREADS),), (THREADS,), (struct, *sizes, x, cols))
    return cols


def _col2im(struct: Any, cols: Any, dx: Any, b: Any) -> None:
    """What every place of dx (images, channels, *size) gathers from the columns."""
    b = None if b is None else plain(b.astype(dx.dtype, copy=False))
    compute = dtypes.compute_type(dx.dtype)
    images, channels = dx.shape[:2]
    index = launch.index_type(max(dx.size, cols.size))
    kernel = _program.kernel("col2im", dx.dtype, compute, index)
    sizes = map(index.type, (dx.size, images, channels))
    kernel((launch.blocks(dx.size, THREADS),), (THREADS,), (struct, *sizes, cols, b, dx))


def _channels_first(dy: Any, dtype: Any) -> Any:
    """dy (images, channels, *size) as (channels, images * size)."""
    rows = cupy.empty((dy.shape[1], dy.shape[0], *dy.shape[2:]), dtype)
    _swap(dy, rows, None)
    return rows.reshape(dy.shape[1], -1)


def _swap(x: Any, y: Any, b: Any) -> None:
    """y[i, j] = x[j, i] + b[j] of an array x with the elements of y, two axes exchanged."""
    outer, inner = y.shape[:2]
    plane = prod(y.shape[2:])
    b = None if b is None else plain(b.astype(y.dtype, copy=False))
    itemsize = max(x.dtype.itemsize, y.dtype.itemsize)
    width = launch.width(itemsize, plane) if launch.is_aligned(x, y) else 1
    index = launch.index_type(y.size)
    kernel = _program.kernel("swap", x.dtype, y.dtype, dtypes.compute_type(y.dtype), width, index)
    grid = (launch.blocks(y.size // width, THREADS),)
    kernel(grid, (THREADS,), (*map(index.type, (y.size, inner, outer, plane)), x, b, y))
