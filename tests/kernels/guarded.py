"""Arrays whose memory ends, or begins, at a page that must not be touched: one element too far ends the process.

So this is a program, which test_conv.py starts:

    guarded.py conv LEVEL      every case of test_conv.py, by the kernel of one instruction set
    guarded.py products LEVEL  the same in bfloat16, and matrix products
    guarded.py integers LEVEL  convolutions, products and sums of bytes
    guarded.py leave WHERE     read one element too far: does the page do what it is there for?
"""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import sys
from typing import Any

import numpy as np
from test_conv import CASES, arrays, close

import minorm as mn
import minorm.functional as F
import minorm_ext
from minorm.kernels.cpu import conv, conv_layout, conv_plan, conv_products, conv_tiles, integers, matmul
from minorm.kernels.reference import conv as reference
from minorm.kernels.reference import integers as on_numpy

_libc = ctypes.CDLL(None, use_errno=True)


def empty(shape: Any, dtype: Any, where: str) -> np.ndarray:
    """An array of zeros between two forbidden pages; it ends at the one or starts at the other."""
    dtype, page = np.dtype(dtype), mmap.PAGESIZE
    size = math.prod(shape) * dtype.itemsize
    room = -(-size // page) * page
    memory = mmap.mmap(-1, room + 2 * page)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for forbidden in (first, first + page + room):
        if _libc.mprotect(ctypes.c_void_p(forbidden), ctypes.c_size_t(page), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")
    return np.frombuffer(memory, dtype, math.prod(shape), page + (room - size if where == "end" else 0)).reshape(shape)


def guarded(array: Any, where: str) -> np.ndarray:
    """A copy of `array` in such memory."""
    result = empty(array.shape, array.dtype, where)
    result[...] = array
    return result


def compare(case: Any, dtype: Any, where: str) -> None:
    """The three sums, from guarded arrays and into guarded arrays."""
    how = case[2:]
    x, w, b, dy = (guarded(a, where) for a in arrays(*case[:2], how, dtype))
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    close(conv.forward(x, w, b, *how), reference.forward(x, w, b, *how), tolerance)
    close(conv.grad_input(dy, w, x.shape, *how), reference.grad_input(dy, w, x.shape, *how), tolerance)
    expected = reference.grad_weight(dy, x, w.shape, *how)
    for got, right in zip(conv.grad_weight(dy, x, w.shape, *how), expected, strict=True):
        close(got, right, tolerance)


def transposed(dtype: Any, where: str) -> None:
    """An output_padding of more than the stride, with the gradient for the weights alone: the sum is written out."""
    rng = np.random.default_rng(0)
    x, w = guarded(rng.standard_normal((1, 2, 9, 9)).astype(dtype), where), mn.ones(2, 3, 2, 2, dtype=np.dtype(dtype))
    y = F.conv_transpose2d(mn.Tensor(x), w.requires_grad_(), dilation=60, output_padding=59)
    dy = guarded(rng.standard_normal(y.shape).astype(dtype), where)
    y.backward(dy)
    for i, j in np.ndindex(2, 2):
        seen = dy[:, :, 60 * i : 60 * i + 9, 60 * j : 60 * j + 9]
        close(w.grad.numpy()[:, :, i, j], np.einsum("ncij,noij->co", x, seen).astype(dtype), 1e-4)


def every_case(level: str) -> None:
    """In both types and every way: a tiny cache cuts planes into strips; without pixels, lanes are never images."""
    conv_plan.kernels = minorm_ext.kernels("conv", level)
    ways = itertools.product((1, 400000), (0, 1024), (False, True))
    for conv_layout.CACHE, conv_plan.MOST_PIXELS, winograd in ways:
        conv_tiles.pays = lambda *_, winograd=winograd: winograd
        for plan in (conv_plan.forward, conv_plan.grad_input, conv_plan.grad_weight):
            plan.cache_clear()
        for where in ("end", "start"):
            conv.empty = lambda shape, dtype, where=where: empty(shape, dtype, where)
            for case, dtype in itertools.product(CASES, (np.float32, np.float64)):
                compare(case, dtype, where)
            for dtype in (np.float32, np.float64):
                transposed(dtype, where)
    print("done")


def three_sums(backend: Any, case: Any, x: Any, w: Any, b: Any, dy: Any) -> list[bytes]:
    how = case[2:]
    results = backend.forward(x, w, b, *how), backend.grad_input(dy, w, x.shape, *how)
    return [array.tobytes() for array in (*results, *backend.grad_weight(dy, x, w.shape, *how))]


def in_sixteen_bits(level: str) -> None:
    """Convolutions and matrix products of bfloat16, whose results and scratch memory are guarded as well."""
    matmul._tiled = conv_products.kernels = minorm_ext.kernels("products", level)
    given = [(case, [a.astype(mn.bfloat16) for a in arrays(*case[:2], case[2:])]) for case in CASES]
    given = [(case, found) for case, found in given if reference.by_tiles(*found[:2], case[1], case[-1])]
    expected = [three_sums(reference, case, *found) for case, found in given]
    for conv_products.PLANE, where in ((600, "end"), (48 << 10, "start"), (48 << 10, "end")):
        for plan in (conv_products.forward, conv_products.grad_input, conv_products.grad_weight):
            plan.cache_clear()
        conv.empty = matmul._empty = lambda shape, dtype, where=where: empty(shape, dtype, where)
        for (case, found), right in zip(given, expected, strict=True):
            assert three_sums(conv, case, *(guarded(a, where) for a in found)) == right, case
        for rows, depth, columns in [(1, 1, 1), (7, 33, 9), (97, 40, 31), (3, 17_000, 2), (40, 8, 1)]:
            shapes = [(rows, depth), (depth, rows), (depth, columns), (columns, depth)]
            a, at, b, bt = (guarded(np.ones(shape, mn.bfloat16), where) for shape in shapes)
            for left, right in [(a, b), (at.T, bt.T), (a, bt.T)]:
                assert (matmul.matmul(left, right) == np.float32(depth).astype(mn.bfloat16)).all()
    print("done")


def on_bytes(level: str) -> None:
    """Convolutions, matrix products and sums of bytes, whose results and scratch memory are guarded as well."""
    integers.kernels = minorm_ext.kernels("integers", level)
    rng = np.random.default_rng(0)
    for conv_products.PLANE, where in ((600, "end"), (48 << 10, "start"), (48 << 10, "end")):
        integers.planned.cache_clear()
        integers.empty = lambda shape, dtype, where=where: empty(shape, dtype, where)
        for case, most in itertools.product(CASES, (64, 127)):
            x, w = (
                rng.integers(0, 256, case[0]).astype(np.uint8),
                rng.integers(-most, most + 1, case[1]).astype(np.int8),
            )
            for zero, how in ((0, None), (3, integers.Requantization.of(1e-3, np.array(7, np.uint8)))):
                rest = (5, zero, case[2:], None, how)
                found = integers.integer_conv(guarded(x, where), guarded(w, where), *rest)
                assert (found == on_numpy.integer_conv(x, w, *rest)).all(), case
        for rows, depth, columns in [(1, 1, 1), (7, 33, 9), (97, 40, 31), (3, 1_700, 2), (40, 8, 1)]:
            a, b = (
                rng.integers(0, 256, (rows, depth)).astype(np.uint8),
                rng.integers(-9, 9, (depth, columns)).astype("i1"),
            )
            found = integers.integer_matmul(guarded(a, where), guarded(b, where), 1, 2)
            assert (found == on_numpy.integer_matmul(a, b, 1, 2)).all()
            how = integers.Requantization.of(1.0, np.array(7, np.uint8))
            both = guarded(a, where), guarded(a[::-1], where)
            assert (integers.add(*both, (0.5, 0.5, 3.0), how) == on_numpy.add(*both, (0.5, 0.5, 3.0), how)).all()
            wide = integers.dequantize(both[0], np.array(0.1, np.float32), None)
            assert (integers.quantize(guarded(wide, where), np.array(0.1, np.float32), None, np.uint8) == a).all()
    print("done")


def leave(where: str) -> None:
    """One element beyond the end, or before the start."""
    x = empty((3,), np.float64, where)
    assert x.sum() == 0
    print("inside", flush=True)
    ctypes.c_double.from_address(x.ctypes.data + (x.nbytes if where == "end" else -x.itemsize)).value += 1


if __name__ == "__main__":
    kinds = {"conv": every_case, "products": in_sixteen_bits, "integers": on_bytes, "leave": leave}
    kinds[sys.argv[1]](sys.argv[2])
