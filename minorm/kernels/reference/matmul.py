"""Matrix products by NumPy. 16-bit floats are multiplied and added up in float32, and rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.kernels.reference import elementwise
from minorm.kernels.reference.sums import sum_to
from minorm.kernels.reference.widening import widened


@widened
def matmul(a: Any, b: Any) -> Any:
    """a @ b: vectors, matrices, and stacks of matrices whose leading axes broadcast"""
    return np.matmul(a, b)


@widened
def linear(x: Any, w: Any, b: Any = None) -> Any:
    """y = x @ w.T + b, x (..., in), w (out, in), b (out) or None"""
    y = np.matmul(x, w.T)
    return y if b is None else y + b


def affine(a: Any, b: Any, bias: Any, relu: bool) -> Any:
    """a @ b + bias, a (..., in), b (in, out), bias (out), and the relu of that: rounded as by one after the other"""
    c = elementwise.add(matmul(a, b), bias)
    return elementwise.relu(c) if relu else c


def linear_grads(dy: Any, x: Any, bias: bool) -> tuple[Any, Any]:
    """dw = dy.T @ x and db, the rows of dy added up, of dy (rows, out) and x (rows, in); without `bias` db is None"""
    return matmul(dy.T, x), sum_to(dy, dy.shape[1:]) if bias else None
