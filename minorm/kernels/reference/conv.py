"""Convolution as a sum over taps: each tap is one matrix product with a shifted, strided view of the input.

    y[n, g, :, o] = sum over taps k of  W[g, :, :, k] @ x[n, g, :, o * stride + k * dilation - low]

The gradients use the same taps and views. For the gradient of the input, W^T dy of each tap is added to the view that
the tap read. For the gradient of the weights, dy is multiplied by this view.

Shapes: x (N, groups * I, *spatial), w (groups * O, I, *kernel), y (N, groups * O, *output). `padding` is a (low, high)
pair for each axis; a negative `high` cuts off the end of x. `stride` and `dilation` have one number for each axis.
16-bit floats compute in float32, and results are rounded once. Sums of bfloat16 are added in the order of a processor's
matrix tiles (conv_tiles.py), unless a group has only one input channel and one output channel. Every backend raises
ValueError for shapes that do not fit together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from minorm.devices.dtypes import bfloat16, compute_type
from minorm.kernels.epilogue import applied, check_epilogue
from minorm.kernels.reference import conv_tiles
from minorm.kernels.reference.tiles import with_bias

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def output_shape(size: Ints, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Ints:
    """Return the spatial shape of the result: how often the kernel fits into the padded input along each axis."""
    return tuple(
        (x + low + high - d * (k - 1) - 1) // s + 1
        for x, k, s, (low, high), d in zip(size, kernel, stride, padding, dilation, strict=True)
    )


def checked(
    operation: str,
    x: Ints,
    w: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    dy: Ints | None = None,
) -> Ints:
    """Return the shape of y for the shapes x and w.

    Raises ValueError if the shapes of x, w and dy do not fit together.

    Kernels compute addresses from shapes. So a wrong shape must raise an error here, before a kernel reads other
    memory.
    """
    if w[1] * groups != x[1] or w[0] % groups or not len(x) == len(w) == len(padding) + 2:
        raise ValueError(
            f"{operation}: w.shape is {w}, x.shape is {x}, groups={groups}; expected w.shape[1] * groups == "
            f"x.shape[1], w.shape[0] a multiple of groups, and {len(padding)} spatial axes"
        )
    y = (x[0], w[0], *output_shape(x[2:], w[2:], stride, padding, dilation))
    how = f"x.shape is {x}, w.shape is {w}, stride={stride}, padding={padding}, dilation={dilation}"
    if min(y) < 0:
        raise ValueError(
            f"{operation}: the kernel is larger than the padded x; expected a kernel that fits into the padded x; {how}"
        )
    if dy not in (None, y):
        raise ValueError(f"{operation}: dy.shape is {dy}; expected {y}; {how}")
    return y


def check_bias(operation: str, b: Any, channels: int) -> None:
    """Raise ValueError unless b is None or has one number for each channel."""
    if b is not None and b.shape != (channels,):
        raise ValueError(f"{operation}: b.shape is {b.shape}; expected ({channels},)")


def check_accumulate(operation: str, accumulate: Any, shape: Ints, dtype: Any) -> None:
    """Raise ValueError unless `accumulate` is None or has the shape and type of the result."""
    if accumulate is not None and (accumulate.shape != tuple(shape) or accumulate.dtype != dtype):
        raise ValueError(
            f"{operation}: accumulate has shape {accumulate.shape} and dtype {accumulate.dtype}; expected the shape "
            f"and type of dx, {tuple(shape)} and {dtype}"
        )


def by_tiles(a: Any, b: Any, w_shape: Ints, groups: int) -> bool:
    """Return True if the sum is added in the order of tiles. This holds for bfloat16, unless an array is empty, or each
    group has one input channel and one output channel.
    """
    return bool(a.dtype == b.dtype == bfloat16 and a.size and b.size and tuple(w_shape[:2]) != (groups, 1))


def laid_out(x: Any, dtype: Any) -> Any:
    """Return x in the type and memory order that a convolution reads. If x already has both, return x itself."""
    return x if x.dtype == dtype else x.astype(dtype)


def weights_laid_out(w: Any, dtype: Any) -> Any:  # noqa: ARG001
    """Return weights w in the memory order in which a convolution of the type `dtype` reads them: here w itself."""
    return w


def in_order(x: Any, last: bool) -> Any:  # noqa: ARG001
    """Return x in C order, or with last=True, with the channels last in memory. On the CPU, return x itself."""
    return x


def forward(
    x: Any, w: Any, b: Any, stride: Ints, padding: Pairs, dilation: Ints, groups: int, epilogue: Any = None
) -> Any:
    """Return y (N, groups * O, *output), after the epilogue. `b` is None or has one number for each output channel."""
    _, _, *out = checked("conv.forward", x.shape, w.shape, stride, padding, dilation, groups)
    check_bias("conv.forward", b, w.shape[0])
    dtype = compute_type(x.dtype)
    check_epilogue("conv.forward", epilogue, w.shape[0], dtype)
    if by_tiles(x, w, w.shape, groups):
        sums = conv_tiles.forward(_padded(x, padding), w, tuple(out), stride, dilation, groups)
        y = with_bias(sums, None if b is None else _along_channels(b, sums.ndim)).astype(x.dtype)
        return y if epilogue is None else applied(y, epilogue)
    padded = _padded(x.astype(dtype), padding)
    y = np.zeros_like(x, dtype, shape=(x.shape[0], groups, w.shape[0] // groups, math.prod(out)))
    for tap, view in _taps(w.shape[2:], tuple(out), stride, dilation):
        y += _by_group(w[tap].astype(dtype), groups) @ _flat(padded[view], groups)
    if b is not None:
        y += b.astype(dtype).reshape(groups, -1, 1)
    y = y.reshape(x.shape[0], w.shape[0], *out).astype(x.dtype)
    return y if epilogue is None else applied(y, epilogue)


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
    """Return dx plus `accumulate`. With a bias b for each channel of x, this is the transposed convolution of dy."""
    checked("conv.grad_input", x_shape, w.shape, stride, padding, dilation, groups, dy.shape)
    check_bias("conv.grad_input", b, x_shape[1])
    check_accumulate("conv.grad_input", accumulate, x_shape, dy.dtype)
    if by_tiles(dy, w, w.shape, groups):
        sums = conv_tiles.grad_input(dy, w, x_shape, stride, padding, dilation, groups)
        dx = with_bias(sums, None if b is None else _along_channels(b, sums.ndim)).astype(dy.dtype)
        return dx if accumulate is None else dx + accumulate
    dtype = compute_type(dy.dtype)
    low = tuple(pair[0] for pair in padding)
    size = tuple(low + x + max(0, high) for x, (low, high) in zip(x_shape[2:], padding, strict=True))
    padded: Any = np.zeros_like(dy, dtype, shape=(*x_shape[:2], *size))
    flat = _flat(dy.astype(dtype), groups)
    for tap, view in _taps(w.shape[2:], dy.shape[2:], stride, dilation):
        part = _by_group(w[tap].astype(dtype), groups).swapaxes(1, 2) @ flat
        padded[view] += part.reshape(*x_shape[:2], *dy.shape[2:])
    dx = padded[(..., *(slice(start, start + x) for start, x in zip(low, x_shape[2:], strict=True)))]
    if b is not None:
        dx = dx + b.astype(dtype).reshape(-1, *[1] * len(low))
    dx = dx.astype(dy.dtype, order="C")
    return dx if accumulate is None else dx + accumulate


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
    """Return dw of shape `w_shape`, and db with one number for each output channel. With bias=False, db is None."""
    checked("conv.grad_weight", x.shape, w_shape, stride, padding, dilation, groups, dy.shape)
    if by_tiles(dy, x, w_shape, groups):
        sums = conv_tiles.grad_weight(dy, _padded(x, padding), w_shape, stride, dilation, groups)
        return sums.astype(x.dtype), grad_bias(dy) if bias else None
    dtype = compute_type(x.dtype)
    padded = _padded(x.astype(dtype), padding)
    flat = _flat(dy.astype(dtype), groups)
    dw = np.empty_like(x, dtype, shape=w_shape)
    for tap, view in _taps(w_shape[2:], dy.shape[2:], stride, dilation):
        dw[tap] = (flat @ _flat(padded[view], groups).swapaxes(2, 3)).sum(axis=0).reshape(w_shape[:2])
    return dw.astype(x.dtype), grad_bias(dy) if bias else None


def ways(
    x_shape: Ints,
    w_shape: Ints,
    stride: Ints,
    padding: Pairs,
    dilation: Ints,
    groups: int,
    itemsize: int,  # noqa: ARG001
) -> tuple[Ints, dict[str, Any]]:
    """Return the shape of y, and None for forward, grad_input and grad_weight, which have only one algorithm.

    Other backends return their choices of algorithms here, which `minorm.explain` shows.
    """
    y_shape = checked("conv.forward", x_shape, w_shape, stride, padding, dilation, groups)
    return y_shape, dict.fromkeys(("forward", "grad_input", "grad_weight"))


def grad_bias(dy: Any) -> Any:
    """Return db: dy summed over all axes but the channels."""
    return dy.astype(compute_type(dy.dtype)).sum(axis=(0, *range(2, dy.ndim))).astype(dy.dtype)


def backward_from_parts(grad_input: Any, grad_weight: Any, grad_bias: Any) -> Any:
    """Return `backward` for a backend that computes each gradient separately."""

    def backward(
        dy: Any,
        x: Any,
        w: Any,
        stride: Ints,
        padding: Pairs,
        dilation: Ints,
        groups: int,
        needs: tuple[bool, bool, bool] = (True, True, True),
        accumulate: Any = None,
    ) -> tuple[Any, Any, Any]:
        """Return (dx plus `accumulate`, dw, db). A gradient that is not needed is None."""
        how = stride, padding, dilation, groups
        dx = dw = db = None
        if needs[1]:  # first, so that its scratch memory is free again before the large dx is made
            dw, db = grad_weight(dy, x, w.shape, *how, needs[2])
        elif needs[2]:
            db = grad_bias(dy)
        if needs[0]:
            dx = grad_input(dy, w, x.shape, *how, accumulate=accumulate)
        return dx, dw, db

    return backward


backward = backward_from_parts(grad_input, grad_weight, grad_bias)


def _taps(kernel: Ints, out: Ints, stride: Ints, dilation: Ints) -> Iterator[tuple[Any, Any]]:
    """Yield, for each tap, the index of its weights and the index of its view of the padded input."""
    for tap in itertools.product(*map(range, kernel)):
        view = tuple(
            slice(k * d, k * d + (o - 1) * s + 1 if o else k * d, s)
            for k, o, s, d in zip(tap, out, stride, dilation, strict=True)
        )
        yield (slice(None), slice(None), *tap), (..., *view)


def _along_channels(b: Any, rank: int) -> Any:
    return b.reshape(-1, *[1] * (rank - 2))


def _padded(x: Any, padding: Pairs) -> Any:
    """Return x with zeros around it. If `high` is negative, the last elements of x are left out instead."""
    kept = tuple(slice(None, min(0, high) or None) for _, high in padding)
    return np.pad(x[(..., *kept)], ((0, 0), (0, 0), *((low, max(0, high)) for low, high in padding)))


def _flat(x: Any, groups: int) -> Any:
    """Return (N, groups * C, *spatial) as (N, groups, C, pixels)."""
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, math.prod(x.shape[2:]))


def _by_group(w: Any, groups: int) -> Any:
    """Return (groups * O, I) as (groups, O, I)."""
    return w.reshape(groups, w.shape[0] // groups, w.shape[1])
