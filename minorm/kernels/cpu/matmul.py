"""Matrix products on the CPU. The result has the same bits for any number of threads, so NumPy's BLAS is not used.

A BLAS chooses its blocks by the number of its threads, and the blocks decide the order of the additions. For 128x500 @
500x800, OpenBLAS gives different bits on one thread and on two. In the kernels of minorm_ext/matmul/matmul.pyx only the
shape decides how the work is divided. These kernels take float32 and float64 with any strides. bfloat16 has separate
kernels (minorm_ext/products/products.pyx), which add up in the order of a processor's matrix tiles, so a result has the
same bits on every processor (docs/maths-narrow-types.md). float16 computes in float32, and the result is rounded once.
NumPy computes all other types, whose products are exact.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import minorm_ext
from minorm.devices import dtypes
from minorm.kernels.cpu import elementwise, memory
from minorm.kernels.cpu.operands import plain
from minorm.kernels.cpu.sums import sum_to
from minorm.kernels.reference import matmul as reference

_kernels: Any = minorm_ext.kernels("matmul")
_tiled: Any = minorm_ext.kernels("products")  # the kernels for bfloat16
_float32, _float64, _bfloat16 = dtypes.float32, dtypes.float64, dtypes.bfloat16
_TYPES = (_float32, _float64, _bfloat16)
_empty = memory.empty
_get_num_threads = minorm_ext.get_num_threads


def matmul(a: Any, b: Any) -> Any:
    dtype = a.dtype
    if a.ndim == b.ndim == 2 and b.dtype is dtype and (dtype is _float32 or dtype is _float64):
        return _product(a, b, None)
    if not _covers(a, b):
        return _other_types(matmul, reference.matmul, a, b)
    if b.ndim == 1:
        c = matmul(a, b[:, None])
        return c.reshape(c.shape[:-1])
    if a.ndim == 1:
        c = matmul(a[None, :], b)
        return c.reshape(c.shape[:-2] + c.shape[-1:])
    if b.ndim == 2 and a.ndim > 2:  # a stack of matrices times one matrix is one product, or a few
        shape, a = (*a.shape[:-1], b.shape[1]), _merged(a)
        return (_product(a, b, None) if a.ndim == 2 else _stacked(a, b)).reshape(shape)
    return _stacked(a, b)


def _merged(a: Any) -> Any:
    """Return a view of a with as few leading axes as possible. For example, the pixel axes of channels-first data
    become one axis.
    """
    lengths = [a.shape[-2]]
    for axis in range(a.ndim - 3, -1, -1):
        if a.strides[axis] == a.strides[axis + 1] * a.shape[axis + 1]:
            lengths[0] *= a.shape[axis]
        else:
            lengths.insert(0, a.shape[axis])
    return a.reshape(*lengths, a.shape[-1])


def _stacked(a: Any, b: Any) -> Any:
    """Multiply two stacks of matrices, pair by pair."""
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return _product(np.broadcast_to(a, lead + a.shape[-2:]), np.broadcast_to(b, lead + b.shape[-2:]), None)


def linear(x: Any, w: Any, b: Any = None) -> Any:
    if not _covers(x, w) or (b is not None and b.dtype != x.dtype):
        return _other_types(linear, reference.linear, x, w, b)
    b = None if b is None else plain(b)
    if x.ndim == 2:
        return _product(x, w.T, b)
    return _product(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), w.T, b).reshape(*x.shape[:-1], len(w))


def affine(a: Any, b: Any, bias: Any, relu: bool) -> Any:
    if (
        b.ndim == 2
        and b.shape[1] > 1
        and a.ndim > 1
        and a.dtype in (_float32, _float64)
        and a.dtype == b.dtype == bias.dtype
        and a.flags.c_contiguous
    ):
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        c = _kernels.multiply(rows, b, plain(bias), _empty, _get_num_threads(), True, relu)
        if c is not None:
            return c.reshape(*a.shape[:-1], b.shape[1])
    c = elementwise.add(matmul(a, b), bias)
    return elementwise.relu(c) if relu else c


def linear_grads(dy: Any, x: Any, bias: bool) -> tuple[Any, Any]:
    return matmul(dy.T, x), sum_to(dy, dy.shape[1:]) if bias else None


def _product(a: Any, b: Any, bias: Any) -> Any:
    """Return a @ b + bias for two matrices or two stacks with equal leading axes, in a type that the kernels take."""
    multiply = _tiled.multiply if a.dtype == _bfloat16 else _kernels.multiply
    c = multiply(a, b, bias, _empty, _get_num_threads())
    if c is None:
        a, b = np.require(a, requirements="A"), np.require(b, requirements="A")
        c = multiply(a, b, bias, _empty, _get_num_threads())
    return c


def _covers(a: Any, b: Any) -> bool:
    return a.dtype in _TYPES and b.dtype == a.dtype


def _other_types(function: Any, fallback: Any, first: Any, *others: Any) -> Any:
    """Compute float16 in float32, and leave the other types to NumPy."""
    dtype = first.dtype
    if dtype in dtypes.HALVES and all(other is None or other.dtype == dtype for other in others):
        wide = [None if other is None else other.astype(_float32) for other in others]
        return function(first.astype(_float32), *wide).astype(dtype)
    return fallback(first, *others)
