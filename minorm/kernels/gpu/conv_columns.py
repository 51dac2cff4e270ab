"""Convolution as one matrix product for several images. conv.cu copies the windows of the images into columns.

    cols (groups * I * taps, images * results)       each column has one window of every channel
    forward        W (O, I * taps) @ cols            -> y (O, images * results), then images before channels again
    grad_weight    dy (O, images * results) @ cols^T
    grad_input     W^T @ dy -> cols                  then each element of x adds up its entries in all windows

Each group has a separate product. The columns contain each element of x once for every tap, so a large batch is split
into parts whose columns take at most LIMIT bytes. The results of the parts are added in order.

Forward does not keep the columns; backward makes them again for dW. For ResNet-20 in float32 with 128 images, the
columns of a step take 780 MB, and the images 110 MB. If backward makes the columns again, 780 MB are written once more,
which takes 0.3 ms at the 3.35 TB/s of an H100. If forward kept the columns, they would take seven times the memory of
the images until backward, and a batch could not be split into parts. If each image had a separate product, channels
would not have to be swapped back, but the products would be small, and dW would be a sum over all products.

Products read 16-bit floats directly. If something is added to a product later (a bias, the other windows, another part
of the batch), the result of the product is float32. So the final result is rounded only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from minorm.devices import dtypes
from minorm.kernels import switches
from minorm.kernels.gpu import copying, launch, memory
from minorm.kernels.gpu.matmul import product
from minorm.kernels.gpu.operands import plain
from minorm.kernels.gpu.plans.structs import windows_of
from minorm.kernels.gpu.program import Program
from minorm.kernels.reference.conv import output_shape

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

LIMIT = 1 << 29
THREADS = 256

_program = Program("conv.cu")


def forward(x: Any, w: Any, b: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    """Return y = W * x + b."""
    x, size, kernel = plain(x), x.shape[2:], w.shape[2:]
    out = output_shape(size, kernel, stride, padding, dilation)
    struct = windows_of(size, out, kernel, stride, padding, dilation)
    y = memory.empty((x.shape[0], w.shape[0], *out), x.dtype)
    rows, dtype = _by_groups(w, groups), x.dtype if b is None else dtypes.compute_type(x.dtype)
    for part in _parts(x.shape, prod(kernel) * prod(out), x.dtype):
        cols = _im2col(struct, x[part])
        result = memory.empty((groups, rows.shape[1], cols.shape[1]), dtype)
        _product(rows, cols.reshape(groups, -1, cols.shape[1]), result)
        _swap(result, y[part], b)
    return y


def grad_input(
    dy: Any, w: Any, x_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int, b: Any, more: Any
) -> Any:
    """Return dx = W^T * dy + b + more, where b and `more` may be None."""
    dx = memory.empty(x_shape, dy.dtype)
    for part, rows in channels_first(dy, w.shape, x_shape):
        _grad_input(rows, w, dy.shape, dx, part, stride, padding, dilation, groups, b, more)
    return dx


def grad_weight(dy: Any, x: Any, w_shape: Ints, stride: Ints, padding: Pairs, dilation: Ints, groups: int) -> Any:
    """Return dW = dy * x."""
    dw: Any = None
    for part, rows in channels_first(dy, w_shape, x.shape):
        dw = _grad_weight(rows, dy.shape, x, w_shape, part, dw, stride, padding, dilation, groups)
    return memory.owned(copying.as_type(dw.reshape(w_shape), x.dtype))


def gradients(
    dy: Any, x: Any, w: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int, more: Any
) -> tuple[Any, Any]:
    """Return dx plus `more`, and dW. The function copies dy into the layout of the products only once."""
    dx = memory.empty(x.shape, dy.dtype)
    dw: Any = None
    for part, rows in channels_first(dy, w.shape, x.shape):
        _grad_input(rows, w, dy.shape, dx, part, stride, padding, dilation, groups, None, more)
        dw = _grad_weight(rows, dy.shape, x, w.shape, part, dw, stride, padding, dilation, groups)
    return dx, memory.owned(copying.as_type(dw.reshape(w.shape), x.dtype))


def channels_first(dy: Any, w_shape: Ints, x_shape: Ints) -> Iterator[tuple[slice, Any]]:
    """Yield, for each part of the batch, its slice and its dy as (channels, images * results)."""
    dy = plain(dy)
    for part in _parts(x_shape, prod(w_shape[2:]) * prod(dy.shape[2:]), dtypes.compute_type(dy.dtype)):
        images = dy[part]
        rows = memory.empty((dy.shape[1], images.shape[0], *dy.shape[2:]), dy.dtype)
        _swap(images, rows, None)
        yield part, rows.reshape(dy.shape[1], -1)


def _grad_input(
    rows: Any, w: Any, dy_shape: Ints, dx: Any, part: slice, stride: Ints, padding: Pairs, dilation: Ints, groups: int,
    b: Any, more: Any,
) -> None:  # fmt: skip
    """Compute one part of dx."""
    struct = windows_of(dx.shape[2:], dy_shape[2:], w.shape[2:], stride, padding, dilation)
    weights = _by_groups(w, groups).swapaxes(1, 2)  # cuBLAS reads both orders
    cols = memory.empty((groups, weights.shape[1], rows.shape[1]), dtypes.compute_type(dx.dtype))
    _product(weights, rows.reshape(groups, -1, rows.shape[1]), cols)
    _col2im(struct, cols, dx[part], b, None if more is None else plain(more)[part])


def _grad_weight(
    rows: Any, dy_shape: Ints, x: Any, w_shape: Ints, part: slice, dw: Any, stride: Ints, padding: Pairs,
    dilation: Ints, groups: int,
) -> Any:  # fmt: skip
    """Return dW of one part, (groups, O, I * taps). If `dw` is not None, add the new dW to `dw`."""
    struct = windows_of(x.shape[2:], dy_shape[2:], w_shape[2:], stride, padding, dilation)
    cols, only = _im2col(struct, plain(x)[part]), part.start == 0 and part.stop >= x.shape[0]
    found = dw
    if dw is None:
        shape = groups, w_shape[0] // groups, prod(w_shape[1:])
        found = memory.empty(shape, x.dtype if only else dtypes.compute_type(x.dtype))
    turned = cols.reshape(groups, -1, cols.shape[1]).swapaxes(1, 2)
    _product(rows.reshape(groups, -1, rows.shape[1]), turned, found, dw is not None)
    return found


def _parts(x_shape: Ints, columns: int, dtype: Any) -> Iterator[slice]:
    """Yield slices of the batch. A slice has at least one image, and if possible at most LIMIT bytes of columns."""
    images = max(1, LIMIT // (x_shape[1] * columns * dtype.itemsize))
    for start in range(0, x_shape[0], images):
        yield slice(start, start + images)


def _by_groups(w: Any, groups: int) -> Any:
    """Return the weights as matrices (groups, O, I * taps)."""
    return plain(w).reshape(groups, w.shape[0] // groups, prod(w.shape[1:]))


def _product(a: Any, b: Any, out: Any, add: bool = False) -> None:
    """Multiply the matrices of each group. As in cuDNN's convolutions, `backends.cudnn.allow_tf32` allows TF32."""
    if out.shape[0] == 1:
        a, b, out = a[0], b[0], out[0]
    product(a, b, out, add, switches.conv_tf32)


def _im2col(struct: Any, x: Any) -> Any:
    """Return the windows of x (images, channels, *size) as columns."""
    images, channels = x.shape[:2]
    taps, results = int(struct.fields["taps"]), int(struct.fields["results"])
    cols = memory.empty((channels * taps, images * results), x.dtype)
    index, count = launch.index_type(max(x.size, cols.size)), channels * images * results
    kernel = _program.kernel("im2col", x.dtype, dtypes.compute_type(x.dtype), index)
    sizes = map(index.type, (count, images, channels))
    kernel((launch.blocks(count, THREADS),), (THREADS,), (struct, *sizes, x, cols))
    return cols


def _col2im(struct: Any, cols: Any, dx: Any, b: Any, more: Any) -> None:
    """Fill dx (images, channels, *size). Each element is the sum of its entries in the columns, plus b and `more`."""
    b = None if b is None else plain(copying.as_type(b, dx.dtype))
    compute = dtypes.compute_type(dx.dtype)
    images, channels = dx.shape[:2]
    index = launch.index_type(max(dx.size, cols.size))
    kernel = _program.kernel("col2im", dx.dtype, compute, index)
    sizes = map(index.type, (dx.size, images, channels))
    kernel((launch.blocks(dx.size, THREADS),), (THREADS,), (struct, *sizes, cols, b, more, dx))


def _swap(x: Any, y: Any, b: Any) -> None:
    """Set y[i, j] = x[j, i] + b[j]: the first two axes of x are exchanged. y may have another type than x."""
    outer, inner = y.shape[:2]
    plane = prod(y.shape[2:])
    b = None if b is None else plain(copying.as_type(b, y.dtype))
    itemsize = max(x.dtype.itemsize, y.dtype.itemsize)
    width = launch.width(itemsize, plane) if launch.is_aligned(x, y) else 1
    index = launch.index_type(y.size)
    kernel = _program.kernel("swap", x.dtype, y.dtype, dtypes.compute_type(y.dtype), width, index)
    grid = (launch.blocks(y.size // width, THREADS),)
    kernel(grid, (THREADS,), (*map(index.type, (y.size, inner, outer, plane)), x, b, y))
