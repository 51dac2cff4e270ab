"""Matrix products by NumPy. 16-bit floats are multiplied and added up in float32, and results are rounded once.

Sums of bfloat16 are added in the order of tiles.py, so the bits are the same as those of the CPU's kernels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.devices.dtypes import bfloat16
from minorm.kernels.reference import elementwise, tiles
from minorm.kernels.reference.sums import sum_to
from minorm.kernels.reference.widening import widened


def matmul(a: Any, b: Any) -> Any:
    """a @ b: vectors, matrices, and stacks of matrices whose leading axes broadcast"""
    if not a.dtype == b.dtype == bfloat16:
        return _matmul(a, b)
    c = tiles.product(a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b).astype(bfloat16)
    c = c[..., 0] if b.ndim == 1 else c
    return c if a.ndim > 1 else c[0] if b.ndim == 1 else c[..., 0, :]


def linear(x: Any, w: Any, b: Any = None) -> Any:
    """y = x @ w.T + b, where x is (..., in), w (out, in), and b (out) or None"""
    if not x.dtype == w.dtype == bfloat16 or not (b is None or b.dtype == bfloat16):
        return _linear(x, w, b)
    y = tiles.product(x.reshape(math.prod(x.shape[:-1]), x.shape[-1]), w.T).reshape(*x.shape[:-1], len(w))
    return tiles.with_bias(y, b).astype(bfloat16)


_matmul = widened(np.matmul)


@widened
def _linear(x: Any, w: Any, b: Any) -> Any:
    y = np.matmul(x, w.T)
    return y if b is None else y + b


def affine(a: Any, b: Any, bias: Any, relu: bool) -> Any:
    """a @ b + bias, or its relu, for a (..., in), b (in, out), bias (out); each step is rounded, as in separate
    operations
    """
    c = elementwise.add(matmul(a, b), bias)
    return elementwise.relu(c) if relu else c


def linear_grads(dy: Any, x: Any, bias: bool) -> tuple[Any, Any]:
    """dw = dy.T @ x, and db = the sum of dy's rows, for dy (rows, out) and x (rows, in); with bias=False db is None"""
    return matmul(dy.T, x), sum_to(dy, dy.shape[1:]) if bias else None
