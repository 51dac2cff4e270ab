"""Matrix products by cuBLAS, through cupy.matmul. 16-bit floats are added up in float32.

    two matrices                16-bit operands as they are, the result rounded once
    stacks of matrices          16-bit operands widened: CuPy 14 has no bfloat16 there, and copies float16 itself
    two vectors                 the same, because CuPy would add up in 16 bits

A stack times one matrix is one product. cuBLAS gives the same bits in every run on one device, stream and version.
"""

from __future__ import annotations

from math import prod
from typing import Any

import cupy

from minorm import dtypes


def matmul(a: Any, b: Any) -> Any:
    if b.ndim == 2 and a.ndim > 2:
        return _product(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
    return _product(a, b)


def linear(x: Any, w: Any, b: Any = None) -> Any:
    """y = x @ w.T + b; in 16 bits rounded once more by the addition."""
    y = matmul(x, w.T)
    if b is None:
        return y
    if b.dtype != y.dtype:
        return y + b
    y += b
    return y


def _product(a: Any, b: Any) -> Any:
    dtype = a.dtype
    if dtype in dtypes.HALVES and b.dtype == dtype and not _is_plain_product(a, b):
        return cupy.matmul(a.astype(dtypes.float32), b.astype(dtypes.float32)).astype(dtype)
    return cupy.matmul(a, b)


def _is_plain_product(a: Any, b: Any) -> bool:
    """Does one call of cuBLAS multiply these? CuPy takes a result of one element for the product of two vectors."""
    return a.ndim == b.ndim == 2 and a.shape[0] * b.shape[1] > 1
