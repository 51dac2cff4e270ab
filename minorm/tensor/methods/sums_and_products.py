"""Products, norms and logarithms of sums over axes; running sums and products along one."""

from __future__ import annotations

import math
from typing import Any, Generic

from minorm.devices import dtypes
from minorm.ops import elementwise, reduction
from minorm.ops.operands import axis_of, reduced_axes
from minorm.support.argument_texts import AXES, AXIS, OTHER
from minorm.support.documented import documented_methods
from minorm.tensor.operators import as_float
from minorm.tensor.reductions import Reductions
from minorm.tensor.shapes import TensorT

ARGUMENTS = (
    AXES
    | OTHER
    | {
        "cumsum.dim": AXIS,
        "cumprod.dim": AXIS,
        "p": (
            'a number, of which 2 is the length, 1 the sum of sizes, 0 how many are not 0; "fro" is 2, infinity the '
            "largest |x|, minus infinity the smallest"
        ),
    }
)


@documented_methods(ARGUMENTS)
class SumsAndProducts(Reductions[TensorT], Generic[TensorT]):
    """What makes one number of those along axes, or of those up to each."""

    __slots__ = ()

    def prod(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorT:
        """The product over `dim`, of all elements for None; integers give int64.

        Example:
            >>> mn.tensor([[1, 2], [3, 4]]).prod(dim=1)
            tensor([ 2, 12])
        """
        x = _summed(self, dtype)
        return reduction.Prod.apply(x, axes=reduced_axes("prod", dim, self), keepdims=keepdim)

    def logsumexp(self, dim: Any, keepdim: bool = False) -> TensorT:
        """log(sum e^x) over `dim`, without overflow.

        Example:
            >>> mn.tensor([1000.0, 1000.0]).logsumexp(0)  # 1000 + log 2
            tensor(1000.6932)
        """
        return reduction.LogSumExp.apply(as_float(self), axes=reduced_axes("logsumexp", dim, self), keepdims=keepdim)

    def cumsum(self, dim: int, *, dtype: Any = None) -> TensorT:
        """y[i] = x[0] + ... + x[i] along `dim`; integers give int64.

        Example:
            >>> mn.tensor([1.0, 2.0, 3.0]).cumsum(0)
            tensor([1., 3., 6.])
        """
        x = _summed(self, dtype)
        if x.ndim == 0 and dim in (0, -1):
            return x.clone()
        return reduction.CumSum.apply(x, axis=axis_of("cumsum", dim, self), exclusive=False, reverse=False)

    def cumprod(self, dim: int, *, dtype: Any = None) -> TensorT:
        """y[i] = x[0] * ... * x[i] along `dim`; integers give int64.

        Example:
            >>> mn.tensor([1.0, 2.0, 3.0]).cumprod(0)
            tensor([1., 2., 6.])
        """
        x = _summed(self, dtype)
        if x.ndim == 0 and dim in (0, -1):
            return x.clone()
        return reduction.CumProd.apply(x, axis=axis_of("cumprod", dim, self))

    def norm(self, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> TensorT:
        """(sum |x|^p)^(1/p) over `dim`, of all elements for None; its gradient is 0 where it is 0.

        16-bit floats are summed in float32. TypeError for integers.

        Example:
            >>> mn.tensor([[3.0, 4.0], [0.0, 1.0]]).norm(dim=1)
            tensor([5., 1.])
        """
        if p not in ("fro", None) and not isinstance(p, (int, float)):
            raise ValueError(f"norm: p is {p!r}; expected a number or 'fro', which is 2")
        x: Any = self if dtype is None else self.to(dtype)  # type: ignore[attr-defined]
        if not dtypes.is_float(x.dtype):
            raise TypeError(f"norm: x is {x.dtype}; expected a float type; use x.float()")
        if x.dtype in dtypes.HALVES:
            return x.float().norm(p, dim, keepdim).to(x.dtype)
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
        size = x.abs()
        if 0 < p < 1:  # the slope of 0^p is infinite, and the element's direction unknown: it gets no gradient
            zero = size == 0
            size = size.masked_fill(zero, 1.0)
            total = size.pow(p).masked_fill(zero, 0.0).sum(axes, keepdim)
        else:
            total = size.pow(p).sum(axes, keepdim)
        nothing = total == 0
        return total.masked_fill(nothing, 1.0).pow(1 / p).masked_fill(nothing, 0.0)

    def dist(self, other: Any, p: float = 2) -> TensorT:
        """(sum |x - other|^p)^(1/p), the norm of the difference.

        Example:
            >>> mn.tensor([1.0, 1.0]).dist(mn.tensor([4.0, 5.0]))
            tensor(5.)
        """
        difference: Any = self - other
        return difference.norm(p)


def _summed(x: Any, dtype: Any) -> Any:
    """x in the type its sums have: int64 for bools and smaller integers."""
    if dtype is not None:
        return x.to(dtype)
    return x if dtypes.is_float(x.dtype) else x.to(dtypes.int64)
