"""The determinant of square matrices, singular ones included."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.graph import Function


class Determinant(Function):
    """det(x) of the last two axes. Its gradient are the cofactors: det(U V) U diag(products of the other s) V, for
    x = U diag(s) V, which holds where x has no inverse too.
    """

    def forward(self, x: Any) -> Any:
        self.x = x
        return np.asanyarray(np.linalg.det(self.wide(x))).astype(x.dtype)

    def backward(self, dy: Any) -> Any:
        u, s, v = np.linalg.svd(self.wide(self.x))
        sign = np.linalg.det(u) * np.linalg.det(v)
        n = s.shape[-1]
        others = np.where(np.eye(n, dtype=np.bool_), 1, s[..., None, :]).prod(-1)
        cofactors = (u * (others * sign[..., None])[..., None, :]) @ v
        return (dy.astype(s.dtype)[..., None, None] * cofactors).astype(self.x.dtype)

    @staticmethod
    def wide(x: Any) -> Any:
        """x in the type that it is computed in."""
        return x.astype(dtypes.compute_type(x.dtype), copy=False)
