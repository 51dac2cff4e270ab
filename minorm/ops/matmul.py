"""Matrix products of any rank, by NumPy's BLAS; 16-bit floats are multiplied in float32 and rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm import dtypes
from minorm.autograd import Function
from minorm.ops.elementwise import sum_to


def product(a: Any, b: Any) -> Any:
    """a @ b in the compute type, in the type of `a`."""
    if a.dtype in dtypes.HALVES:
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)
    return np.matmul(a, b)


class MatMul(Function):
    """y = a @ b: vectors, matrices, and stacks of matrices whose leading axes broadcast."""

    def forward(self, a: Any, b: Any) -> Any:
        self.a, self.b = a, b
        return product(a, b)

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
        da = db = None
        if self.needs[0]:
            da = sum_to(product(dy, np.swapaxes(columns, -1, -2)), rows.shape).reshape(a.shape)
        if self.needs[1]:
            db = sum_to(product(np.swapaxes(rows, -1, -2), dy), columns.shape).reshape(b.shape)
        return da, db
