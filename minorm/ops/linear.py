"""The linear layer: one matrix product, in which all leading axes of x form one axis."""

from __future__ import annotations

from minorm.graph.graph import Function
from minorm.kernels.select import backend
from minorm.ops.elementwise import sum_to
from minorm.ops.matmul import MatMul, as_rows


class Linear(Function):
    """y = x @ w.T + b, for x (..., in), w (out, in), and b (out) or None."""

    fresh = (0,)

    def forward(self, x, w, b):
        self.x, self.w = x, w
        return backend(x).matmul.linear(x, w, b)

    def backward(self, dy):
        x, w = self.x, self.w
        dx = dw = db = None
        matmul = backend(dy).matmul
        rows = as_rows(dy)
        if self.needs[0]:
            dx = matmul.matmul(rows, w).reshape(x.shape)
        if self.needs[1]:
            dw, db = matmul.linear_grads(rows, as_rows(x), self.needs[2])
        elif self.needs[2]:
            db = sum_to(rows, w.shape[:1])
        return dx, dw, db

    def gradient(self, dy):
        x, w = self.input(0, self.x, dy), self.input(1, self.w, dy)
        dx = dw = db = None
        rows = as_rows(dy)
        if self.needs[0]:
            dx = MatMul.apply(rows, w).reshape(x.shape)
        if self.needs[1]:
            dw = MatMul.apply(rows.mT, as_rows(x))
        if self.needs[2]:
            db = rows.sum(0)
        return dx, dw, db
