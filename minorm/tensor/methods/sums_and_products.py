"""Products, norms and logarithms of sums over axes; running sums and products along an axis."""

from __future__ import annotations

import math
from typing import Any, Generic

from minorm.devices import dtypes
from minorm.ops import elementwise, reduction
from minorm.ops.operands import axis_of, operands, reduced_axes
from minorm.ops.shape import Cat
from minorm.support.argument_texts import AXES, AXIS, OTHER
from minorm.support.documented import documented_methods
from minorm.tensor.operators import as_float
from minorm.tensor.reductions import Reductions
from minorm.tensor.shapes import TensorT

ARGUMENTS = (
    AXES
    | OTHER
    | {
        "diff.dim": AXIS,
        "n": "the number of times to take differences",
        "prepend": "elements to put before x, of x's shape except along `dim`",
        "append": "elements to put behind x, of x's shape except along `dim`",
        "cumsum.dim": AXIS,
        "cumprod.dim": AXIS,
        "p": (
            'a number: 2 is the length, 1 the sum of absolute values, 0 the number of elements that are not 0; "fro" '
            "is 2, infinity is the largest |x|, minus infinity the smallest"
        ),
    }
)


@documented_methods(ARGUMENTS)
class SumsAndProducts(Reductions[TensorT], Generic[TensorT]):
    """Methods that reduce axes to one number, or compute running results along an axis."""

    __slots__ = ()

    def prod(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorT:
        """Return the product over `dim`, or of all elements if dim is None; integers give int64.

        Example:
            >>> mn.tensor([[1, 2], [3, 4]]).prod(dim=1)
            tensor([ 2, 12])
        """
        x = _summed(self, dtype)
        return reduction.Prod.apply(x, axes=reduced_axes("prod", dim, self), keepdims=keepdim)

    def nansum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorT:
        """Return the sum over `dim` without elements that are NaN, or 0 if no element is left.

        Example:
            >>> mn.tensor([1.0, float("nan"), 3.0]).nansum()
            tensor(4.)
        """
        return _without_nan(self).sum(dim, keepdim, dtype=dtype)

    def nanmean(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> TensorT:
        """Return the mean over `dim` without elements that are NaN, or NaN if no element is left.

        Raises TypeError for integers.

        Example:
            >>> mn.tensor([1.0, float("nan"), 3.0]).nanmean()
            tensor(2.)
        """
        x: Any = self if dtype is None else self.to(dtype)  # type: ignore[attr-defined]
        if not dtypes.is_float(x.dtype):
            raise TypeError(f"nanmean: x is {x.dtype}; expected a float type; use x.float()")
        if x.dtype in dtypes.HALVES:  # 16 bits cannot count far
            return x.float().nanmean(dim, keepdim).to(x.dtype)
        count = (x == x).sum(dim, keepdim)
        mean: Any = _without_nan(x).sum(dim, keepdim) / count.clip(1)
        return mean.masked_fill(count == 0, float("nan"))

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

    def diff(self, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> TensorT:
        """y[i] = x[i + 1] - x[i] along `dim`, applied n times; for bools, y is True where neighbours differ.

        Example:
            >>> mn.tensor([1, 4, 9, 16]).diff()
            tensor([3, 5, 7])
            >>> mn.tensor([1, 4, 9, 16]).diff(n=2)
            tensor([2, 2])
        """
        if n < 0:
            raise ValueError(f"diff: n is {n}; expected at least 0; x.shape is {self.shape}")
        axis = axis_of("diff", dim, self)
        if n == 0:
            return self.clone()  # type: ignore[attr-defined]
        parts = [part for part in (prepend, self, append) if part is not None]
        x: Any = _joined("diff", parts, axis) if len(parts) > 1 else self
        before = (slice(None),) * axis
        for _ in range(min(n, x.shape[axis])):
            above, below = x[(*before, slice(1, None))], x[(*before, slice(0, -1))]
            x = above != below if x.dtype == dtypes.bool else above - below
        return x

    def norm(self, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> TensorT:
        """(sum |x|^p)^(1/p) over `dim`, or over all elements if dim is None. The gradient is 0 where the norm is 0.

        Sums of 16-bit floats are computed in float32. Raises TypeError for integers.

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
        # Where all elements are 0, the slope of the root is infinite and the slope of the powers is 0, so 1 replaces
        # such a sum until the root is taken.
        size = x.abs()
        if 0 < p < 1:  # at 0 the slope of x^p is infinite, without a direction: no gradient
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


def _without_nan(x: Any) -> Any:
    """Return x with 0 in place of NaN."""
    return x.masked_fill(x.isnan(), 0) if dtypes.is_float(x.dtype) else x


def _joined(operation: str, parts: list[Any], axis: int) -> Any:
    """Join the parts along the axis; raise ValueError if other axes differ."""
    shapes = {(*part.shape[:axis], *part.shape[axis + 1 :]) for part in parts}
    if len(shapes) > 1 or any(part.ndim != parts[0].ndim for part in parts):
        given = ", ".join(str(part.shape) for part in parts)
        raise ValueError(f"{operation}: shapes are {given}; expected shapes that differ in axis {axis} alone")
    return Cat.apply(*operands(operation, *parts, broadcast=False), axis=axis)


def _summed(x: Any, dtype: Any) -> Any:
    """Convert x to the type of its sums: int64 for bools and smaller integers."""
    if dtype is not None:
        return x.to(dtype)
    return x if dtypes.is_float(x.dtype) else x.to(dtypes.int64)
