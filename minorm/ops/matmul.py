"""Matrix products of arrays with any number of axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minorm.graph.expressions import summed_to
from minorm.graph.graph import Function
from minorm.kernels.select import backend, is_array
from minorm.ops.elementwise import sum_to


class MatMul(Function):
    """y = a @ b for vectors, matrices, and stacks of matrices whose leading axes broadcast."""

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = a, b
        return backend(a).matmul.matmul(a, b)

    def backward(self, dy: Any) -> Any:
        a, b = self.a, self.b
        if a.ndim == 1 and b.ndim == 1:
            return dy * b, dy * a
        rows = a[None, :] if a.ndim == 1 else a
        columns = b[:, None] if b.ndim == 1 else b
        if a.ndim == 1:
            dy = dy[..., None, :]
        if b.ndim == 1:
            dy = dy[..., :, None]
        if columns.ndim == 2 < rows.ndim:  # one matrix for the whole stack: a single product instead of a sum
            rows, dy = as_rows(rows), as_rows(dy)
        matmul = backend(dy).matmul.matmul
        da = db = None
        if self.needs[0]:
            da = sum_to(matmul(dy, np.swapaxes(columns, -1, -2)), rows.shape).reshape(a.shape)
        if self.needs[1]:
            db = sum_to(matmul(np.swapaxes(rows, -1, -2), dy), columns.shape).reshape(b.shape)
        return da, db

    def gradient(self, dy: Any) -> Any:
        a, b = self.input(0, self.a, dy), self.input(1, self.b, dy)
        if a.ndim == 1 and b.ndim == 1:
            return dy * b, dy * a
        rows = a.unsqueeze(0) if a.ndim == 1 else a
        columns = b.unsqueeze(1) if b.ndim == 1 else b
        if a.ndim == 1:
            dy = dy.unsqueeze(-2)
        if b.ndim == 1:
            dy = dy.unsqueeze(-1)
        if columns.ndim == 2 < rows.ndim:
            rows, dy = as_rows(rows), as_rows(dy)
        da = db = None
        if self.needs[0]:
            da = summed_to(MatMul.apply(dy, columns.mT), rows.shape).reshape(a.shape)
        if self.needs[1]:
            db = summed_to(MatMul.apply(rows.mT, dy), columns.shape).reshape(b.shape)
        return da, db


def as_rows(x):
    """Return x (..., n), an array or a Tensor, as (rows, n). The number of rows may be 0."""
    if x.ndim == 2:
        return x
    shape = math.prod(x.shape[:-1]), x.shape[-1]
    return backend(x).copying.reshaped(x, shape) if is_array(x) else x.reshape(shape)
