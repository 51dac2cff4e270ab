"""The operators of a Tensor. Each operator decides the types of its operands, and applies one Function."""

from __future__ import annotations

from typing import Any, Generic

import numpy as np

from minorm.devices import dtypes
from minorm.ops import elementwise, stepwise
from minorm.ops.matmul import MatMul
from minorm.ops.operands import operands, others_turn
from minorm.ops.special import Remainder
from minorm.support.argument_texts import OTHER
from minorm.support.documented import documented_methods
from minorm.tensor.shapes import Shapes, TensorT

ARGUMENTS = OTHER | {
    "exponent": "a number, or a Tensor that broadcasts with x",
    "matmul.other": "a Tensor whose second to last axis is as long as the last axis of x; leading axes broadcast",
    "min": "the lower bound: a number, or a Tensor that broadcasts with x; None means no bound",
    "max": "the upper bound: a number, or a Tensor that broadcasts with x; None means no bound",
}


@documented_methods(ARGUMENTS)
class Operators(Shapes[TensorT], Generic[TensorT]):  # noqa: PLW1641  the Tensor defines __hash__
    """Methods for arithmetic, functions of each element and comparisons."""

    __slots__ = ()

    def __add__(self, other: Any) -> TensorT:
        try:
            return elementwise.Add.apply(*operands("add", self, other))
        except TypeError as error:
            return others_turn(error, other, "__radd__")

    def __radd__(self, other: Any) -> TensorT:
        return elementwise.Add.apply(*operands("add", other, self))

    def __sub__(self, other: Any) -> TensorT:
        try:
            return elementwise.Sub.apply(*operands("sub", self, other))
        except TypeError as error:
            return others_turn(error, other, "__rsub__")

    def __rsub__(self, other: Any) -> TensorT:
        return elementwise.Sub.apply(*operands("sub", other, self))

    def __mul__(self, other: Any) -> TensorT:
        try:
            return elementwise.Mul.apply(*operands("mul", self, other))
        except TypeError as error:
            return others_turn(error, other, "__rmul__")

    def __rmul__(self, other: Any) -> TensorT:
        return elementwise.Mul.apply(*operands("mul", other, self))

    def __truediv__(self, other: Any) -> TensorT:
        try:
            return elementwise.Div.apply(*operands("div", self, other, real=True))
        except TypeError as error:
            return others_turn(error, other, "__rtruediv__")

    def __rtruediv__(self, other: Any) -> TensorT:
        return elementwise.Div.apply(*operands("div", other, self, real=True))

    def __pow__(self, other: Any) -> TensorT:
        try:
            return elementwise.Pow.apply(*operands("pow", self, other))
        except TypeError as error:
            return others_turn(error, other, "__rpow__")

    def __rpow__(self, other: Any) -> TensorT:
        return elementwise.Pow.apply(*operands("pow", other, self))

    def __floordiv__(self, other: Any) -> TensorT:
        try:
            return stepwise.FloorDivide.apply(*operands("floor_divide", self, other))
        except TypeError as error:
            return others_turn(error, other, "__rfloordiv__")

    def __rfloordiv__(self, other: Any) -> TensorT:
        return stepwise.FloorDivide.apply(*operands("floor_divide", other, self))

    def __mod__(self, other: Any) -> TensorT:
        try:
            return Remainder.apply(*operands("remainder", self, other), truncated=False)
        except TypeError as error:
            return others_turn(error, other, "__rmod__")

    def __rmod__(self, other: Any) -> TensorT:
        return Remainder.apply(*operands("remainder", other, self), truncated=False)

    def __and__(self, other: Any) -> TensorT:
        try:
            return stepwise.Bitwise.apply(*operands("and", self, other), relation="bitwise_and")
        except TypeError as error:
            return others_turn(error, other, "__rand__")

    def __or__(self, other: Any) -> TensorT:
        try:
            return stepwise.Bitwise.apply(*operands("or", self, other), relation="bitwise_or")
        except TypeError as error:
            return others_turn(error, other, "__ror__")

    def __xor__(self, other: Any) -> TensorT:
        try:
            return stepwise.Bitwise.apply(*operands("xor", self, other), relation="bitwise_xor")
        except TypeError as error:
            return others_turn(error, other, "__rxor__")

    def __rand__(self, other: Any) -> TensorT:
        return stepwise.Bitwise.apply(*operands("and", other, self), relation="bitwise_and")

    def __ror__(self, other: Any) -> TensorT:
        return stepwise.Bitwise.apply(*operands("or", other, self), relation="bitwise_or")

    def __rxor__(self, other: Any) -> TensorT:
        return stepwise.Bitwise.apply(*operands("xor", other, self), relation="bitwise_xor")

    def __invert__(self) -> TensorT:
        if dtypes.is_float(self.array.dtype):
            raise TypeError(f"invert: x is {self.array.dtype}; expected bools or integers")
        return stepwise.Stepwise.apply(self, step="logical_not" if self.array.dtype == dtypes.bool else "invert")

    def __matmul__(self, other: Any) -> TensorT:
        try:
            a, b = operands("matmul", self, other, broadcast=False)
        except TypeError as error:
            return others_turn(error, other, "__rmatmul__")
        if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
            raise ValueError(
                f"matmul: a is {a.shape}, b is {b.shape}; expected a's last axis to equal b's last but one; "
                "transpose one with .mT, or check the order of the factors"
            )
        if any(m != n and 1 not in (m, n) for m, n in zip(a.shape[-3::-1], b.shape[-3::-1], strict=False)):
            raise ValueError(
                f"matmul: a is {a.shape}, b is {b.shape}; expected their leading axes {a.shape[:-2]} and "
                f"{b.shape[:-2]} to be equal or 1, counted from the right"
            )
        return MatMul.apply(a, b)

    def __rmatmul__(self, other: Any) -> TensorT:
        return operands("matmul", other, self, broadcast=False)[0] @ self

    def __neg__(self) -> TensorT:
        return elementwise.Neg.apply(self)

    def __abs__(self) -> TensorT:
        return elementwise.Abs.apply(self)

    def abs(self) -> TensorT:
        """|x|, element by element."""
        return elementwise.Abs.apply(self)

    def exp(self) -> TensorT:
        """e^x"""
        return elementwise.Exp.apply(as_float(self))

    def log(self) -> TensorT:
        """log(x), the natural logarithm."""
        return elementwise.Log.apply(as_float(self))

    def sqrt(self) -> TensorT:
        """sqrt(x), the square root."""
        return elementwise.Sqrt.apply(as_float(self))

    def sin(self) -> TensorT:
        """sin(x), the sine of x in radians."""
        return elementwise.Sin.apply(as_float(self))

    def cos(self) -> TensorT:
        """cos(x), the cosine of x in radians."""
        return elementwise.Cos.apply(as_float(self))

    def pow(self, exponent: Any) -> TensorT:
        """x ** exponent"""
        return self**exponent

    def matmul(self, other: Any) -> TensorT:
        """x @ other: y[..., i, k] = sum_j x[..., i, j] * other[..., j, k].

        A vector counts as a row if it is x, and as a column if it is other.
        """
        return self @ other

    def clip(self, min: Any = None, max: Any = None) -> TensorT:
        """min(max(x, min), max): elements below `min` become min, and elements above `max` become max.

        Integers with a float bound become floats. Raises ValueError if both bounds are missing.

        Example:
            >>> mn.tensor([-3.0, 0.5, 3.0]).clip(-1, 1)
            tensor([-1. ,  0.5,  1. ])
        """
        if min is None and max is None:
            raise ValueError("clip: min and max are both None; expected at least one bound")
        if hasattr(min, "from_array") or hasattr(max, "from_array"):
            return _between(self, min, max)
        real = any(isinstance(bound, (float, np.floating)) for bound in (min, max))
        return elementwise.Clip.apply(as_float(self) if real else self, low=min, high=max)

    clamp = clip

    def __eq__(self, other: Any) -> TensorT:  # type: ignore[override]
        return _compare("equal", self, other, "__eq__")

    def __ne__(self, other: Any) -> TensorT:  # type: ignore[override]
        return _compare("not_equal", self, other, "__ne__")

    def __lt__(self, other: Any) -> TensorT:
        return _compare("less", self, other, "__gt__")

    def __le__(self, other: Any) -> TensorT:
        return _compare("less_equal", self, other, "__ge__")

    def __gt__(self, other: Any) -> TensorT:
        return _compare("greater", self, other, "__lt__")

    def __ge__(self, other: Any) -> TensorT:
        return _compare("greater_equal", self, other, "__le__")


def compare(relation: str, a: Any, b: Any) -> Any:
    """Return a Tensor of bools that says for each pair of elements whether the relation holds."""
    return elementwise.Compare.apply(*operands(relation, a, b), relation=relation)


def _compare(relation: str, a: Any, b: Any, reflected: str) -> Any:
    try:
        return compare(relation, a, b)
    except TypeError as error:
        return others_turn(error, b, reflected)


def _between(x: Any, low: Any, high: Any) -> Any:
    """Return x where x is between the bounds, the exceeded bound elsewhere, and NaN where a bound is NaN."""
    for bound, beyond in ((low, x.__class__.__lt__), (high, x.__class__.__gt__)):
        if bound is not None:
            value, limit = operands("clip", x, bound)
            x = elementwise.Where.apply(beyond(value, limit) | (limit != limit), limit, value)
    return x


def as_float(x: Any) -> Any:
    """Return x itself if it holds floats. Otherwise return x in the default float type."""
    return x if x.array.dtype in dtypes.FLOATS else x.to(dtypes.get_default_dtype())
