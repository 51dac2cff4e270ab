"""The linear layer: one matrix product over all leading axes of x at once, and the bias added in place."""

from __future__ import annotations

import math

import numpy as np

from minorm import dtypes
from minorm.autograd import Function
from minorm.ops.elementwise import sum_to
from minorm.ops.matmul import product


def as_rows(x):
    """x (..., n) as (rows, n), also where there are no rows."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


class Linear(Function):
    """y = x @ w.T + b, x (..., in), w (out, in), b (out) or None."""

    def forward(self, x, w, b):
        self.x, self.w = x, w
        rows = as_rows(x)
        if x.dtype in dtypes.HALVES:
            rows, w, b = (None if a is None else a.astype(np.float32) for a in (rows, w, b))
        y = product(rows, w.T)
        if b is not None:
            y += b
        if x.ndim != 2:
            y = y.reshape(*x.shape[:-1], len(w))
        return y.astype(x.dtype) if x.dtype in dtypes.HALVES else y

    def backward(self, dy):
        x, w = self.x, self.w
        dx = dw = db = None
        rows = as_rows(dy)
        if self.needs[0]:
            dx = product(rows, w).reshape(x.shape)
        if self.needs[1]:
            dw = product(rows.T, as_rows(x))
        if self.needs[2]:
            db = sum_to(rows, w.shape[:1])
        return dx, dw, db
