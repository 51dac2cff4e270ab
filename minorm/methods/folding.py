"""Products, norms and logarithms of sums over axes; running sums and products along one."""

from __future__ import annotations

import math
from typing import Any, Generic

from minorm import dtypes
from minorm.operators import as_float
from minorm.ops import elementwise, reduction
from minorm.ops.operands import axis_of, reduced_axes
from minorm.reductions import Reductions
from minorm.shapes import TensorT


class Folding(Reductions[TensorT], Generic[TensorT]):
    """What makes one number of those along axes, or of those up to each."""

    __slots__ = ()

    def prod(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorT:
        """The product over `dim`, of all elements for None; integers give int64."""
        x = _summed(self, dtype)
        return reduction.Prod.apply(x, axes=reduced_axes("prod", dim, self), keepdims=keepdim)

    def logsumexp(self, dim: Any, keepdim: bool = False) -> TensorT:
        """log of the sum of e^x over `dim`, without overflow."""
        return reduction.LogSumExp.apply(as_float(self), axes=reduced_axes("logsumexp", dim, self), keepdims=keepdim)

    def cumsum(self, dim: int, *, dtype: Any = None) -> TensorT:
        """y[i] = x[0] + ... + x[i] along `dim`; integers give int64."""
        x = _summed(self, dtype)
        if x.ndim == 0 and dim in (0, -1):
            return x.clone()
        return reduction.CumSum.apply(x, axis=axis_of("cumsum", dim, self), exclusive=False, reverse=False)

    def cumprod(self, dim: int, *, dtype: Any = None) -> TensorT:
        """y[i] = x[0] * ... * x[i] along `dim`; integers give int64."""
        x = _summed(self, dtype)
        if x.ndim == 0 and dim in (0, -1):
            return x.clone()
        return reduction.CumProd.apply(x, axis=axis_of("cumprod", dim, self))

    def norm(self, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> TensorT:
        """(sum |x|^p)^(1/p) over `dim`, of all elements for None; its gradient is 0 where it is 0.

        p: a number; "fro" is 2; infinity the largest |x|, minus infinity the smallest, 0 how many are not 0.
        """
        if p not in ("fro", None) and not isinstance(p, (int, float)):
            raise ValueError(f"norm: p is {p!r}; expected a number or 'fro', which is 2")
        x: Any = self if dtype is None else self.to(dtype)  # type: ignore[attr-defined]
        if not dtypes.is_float(x.dtype):
            raise TypeError(f"norm: x is {x.dtype}; expected a float type; use x.float()")
        axes = reduced_axes("norm", dim, x)
        if p in ("fro", None, 2):
            return elementwise.Root.apply((x * x).sum(axes, keepdim)) if x.ndim else x.abs()
        if p == math.inf:
            return x.abs().amax(axes, keepdim)
        if p == -math.inf:
            return x.abs().amin(axes, keepdim)
        if p == 0:
            return (x != 0).to(x.dtype).sum(axes, keepdim)
        if p == 1:
            return x.abs().sum(axes, keepdim)
        # Where all are 0 the slope of the root is infinite and that of the powers 0: 1 stands for such a sum meanwhile.
        total = x.abs().pow(p).sum(axes, keepdim)
        nothing = total == 0
        return total.masked_fill(nothing, 1.0).pow(1 / p).masked_fill(nothing, 0.0)

    def dist(self, other: Any, p: float = 2) -> TensorT:
        """The norm of x - other."""
        difference: Any = self - other
        return difference.norm(p)


def _summed(x: Any, dtype: Any) -> Any:
    """x in the type its sums have: int64 for bools and smaller integers."""
    if dtype is not None:
        return x.to(dtype)
    return x if dtypes.is_float(x.dtype) else x.to(dtypes.int64)
