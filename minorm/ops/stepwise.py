"""Step functions. Their slope is 0 wherever it exists, so no gradient flows through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.graph.expressions import scaled
from minorm.graph.graph import Function
from minorm.kernels.order import in_order
from minorm.kernels.select import backend
from minorm.ops.indexing import own


class Stepwise(Function):
    """The NumPy function named `step` of one operand: floor, ceil, rint, sign, isnan, isinf or logical_not."""

    differentiable = False

    def forward(self, x: Any, *, step: str) -> Any:
        return in_order(getattr(np, step), x)


def expect_divisor(operation: str, b: Any) -> None:
    """Raise ZeroDivisionError if an integer in b is 0, since integers have no infinity. On a GPU nothing is checked."""
    if type(b) is np.ndarray and b.dtype not in dtypes.FLOATS and not b.all():
        raise ZeroDivisionError(
            f"{operation}: b has {int((b == 0).sum()):,} zeros among its {b.size:,} elements, and its type is "
            f"{b.dtype}; expected integers other than 0, or floats, such as x.float()"
        )


class FloorDivide(Function):
    """a / b rounded down."""

    differentiable = False

    def forward(self, a: Any, b: Any) -> Any:
        expect_divisor("floor_divide", b)
        return in_order(np.floor_divide, a, b)


class Bitwise(Function):
    """The NumPy function bitwise_and, bitwise_or or bitwise_xor of integers or bools."""

    differentiable = False

    def forward(self, a: Any, b: Any, *, relation: str) -> Any:
        for array in (a, b):
            if array.dtype in dtypes.FLOATS:
                raise TypeError(f"{relation}: an operand is {array.dtype}; expected bools or integers")
        return in_order(getattr(np, relation), a, b)


class Quotient(Function):
    """a / b of integers, rounded towards 0, but 0 where b is 0."""

    differentiable = False

    def forward(self, a: Any, b: Any) -> Any:
        return in_order(self.towards_zero, a, b)

    @staticmethod
    def towards_zero(a: Any, b: Any) -> Any:
        with np.errstate(divide="ignore", over="ignore"):
            floor, inexact = np.floor_divide(a, b), np.remainder(a, b) != 0
        return floor + (inexact & ((a < 0) != (b < 0)))


class BinCount(Function):
    """How often each number 0, 1, 2 ... occurs in x. If weights are given, the sum of the weights of each number.

    The result has at least `minlength` numbers.
    """

    differentiable = False

    def forward(self, x: Any, weights: Any = None, *, minlength: int) -> Any:
        counts = backend(x).indexing.bincount(own(x), weights, minlength)
        kind = np.int64 if weights is None else weights.dtype if weights.dtype in dtypes.FLOATS else np.float64
        return counts.astype(kind, copy=False)


class Histogram(Function):
    """The number of elements of x in each of `bins` equal parts from low to high. high itself is in the last part."""

    differentiable = False

    def forward(self, x: Any, *, bins: int, low: float, high: float) -> Any:
        return np.histogram(x.reshape(-1).astype(np.float64), bins=bins, range=(low, high))[0].astype(x.dtype)


def _sorted_type(x: Any) -> Any:
    """Convert x to a type that NumPy and CuPy can sort and search."""
    return x.astype(dtypes.compute_type(x.dtype), copy=False)


class SearchSorted(Function):
    """For each number of x, how many of the sorted numbers are below it. With right=True, numbers that are equal count
    too.

    The sorted numbers are one row for all of x, or one row for each row of x.
    """

    differentiable = False

    def forward(self, order: Any, x: Any, *, right: bool, dtype: Any) -> Any:
        order, x = own(_sorted_type(order)), _sorted_type(x)
        if order.ndim == 1:
            return np.searchsorted(order, x, side="right" if right else "left").astype(dtype, copy=False)
        return self.by_rows(order, x, right).astype(dtype, copy=False)

    @staticmethod
    def by_rows(order: Any, x: Any, right: bool) -> Any:
        """Search by bisection. The answer is between `low` and `high`, which approach each other until they meet."""
        n = order.shape[-1]
        low, high = np.zeros_like(x, dtypes.int64), np.full_like(x, n, dtypes.int64)
        for _ in range(n.bit_length()):
            middle = (low + high) // 2
            there = np.take_along_axis(order, np.minimum(middle, n - 1), -1)
            before = (low < high) & ~(there > x if right else there >= x)
            low, high = np.where(before, middle + 1, low), np.where(before, high, np.minimum(middle, high))
        return low


class IsIn(Function):
    """True for each element of x that occurs in `others`."""

    differentiable = False

    def forward(self, x: Any, others: Any) -> Any:
        if not others.size:
            return np.zeros_like(x, dtypes.bool)
        x, order = _sorted_type(x), np.sort(_sorted_type(others).reshape(-1))
        place = np.searchsorted(order, x)
        return order[np.minimum(place, order.size - 1)] == x


class Rounded(Stepwise):
    """floor, ceil, rint, trunc or sign of floats. The result stays in the graph, with gradient 0."""

    differentiable = True

    def backward(self, dy: Any) -> Any:
        return np.zeros_like(dy)

    def gradient(self, dy: Any) -> Any:
        return scaled(self, dy)
