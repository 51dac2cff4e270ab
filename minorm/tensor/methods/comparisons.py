"""Comparisons and logic as methods with names, masked_fill, and where."""

from __future__ import annotations

from typing import Any, Generic

from minorm import devices
from minorm.devices import dtypes
from minorm.ops import elementwise, stepwise
from minorm.ops.operands import operands
from minorm.support.argument_texts import OTHER
from minorm.support.documented import documented_methods
from minorm.tensor.operators import Operators, compare
from minorm.tensor.shapes import TensorT

ARGUMENTS = OTHER | {
    "mask": "a bool Tensor that broadcasts to x",
    "value": "a number, or a Tensor without axes",
    "condition": "a bool Tensor that broadcasts with x and other",
}


@documented_methods(ARGUMENTS)
class Comparing(Operators[TensorT], Generic[TensorT]):
    """Methods that compare two tensors element by element."""

    __slots__ = ()

    def eq(self, other: Any) -> TensorT:
        """x == other, element by element."""
        return compare("equal", self, other)

    def ne(self, other: Any) -> TensorT:
        """x != other, element by element."""
        return compare("not_equal", self, other)

    def lt(self, other: Any) -> TensorT:
        """x < other, element by element."""
        return compare("less", self, other)

    def le(self, other: Any) -> TensorT:
        """x <= other, element by element."""
        return compare("less_equal", self, other)

    def gt(self, other: Any) -> TensorT:
        """x > other, element by element."""
        return compare("greater", self, other)

    def ge(self, other: Any) -> TensorT:
        """x >= other, element by element."""
        return compare("greater_equal", self, other)

    greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne

    def bitwise_not(self) -> TensorT:
        """~x, bit by bit, for bools or integers."""
        return ~self

    def bitwise_and(self, other: Any) -> TensorT:
        """x & other, bit by bit, for bools or integers."""
        return self & other

    def bitwise_or(self, other: Any) -> TensorT:
        """x | other, bit by bit, for bools or integers."""
        return self | other

    def bitwise_xor(self, other: Any) -> TensorT:
        """x ^ other, bit by bit, for bools or integers."""
        return self ^ other

    def logical_not(self) -> TensorT:
        """True where x is 0."""
        if self.array.dtype == dtypes.bool:
            return stepwise.Stepwise.apply(self, step="logical_not")
        return self == 0

    def logical_and(self, other: Any) -> TensorT:
        """True where both elements are nonzero."""
        return _true(self) & _true(other)

    def logical_or(self, other: Any) -> TensorT:
        """True where at least one element is nonzero."""
        return _true(self) | _true(other)

    def logical_xor(self, other: Any) -> TensorT:
        """True where exactly one element is nonzero."""
        return _true(self) ^ _true(other)

    def masked_fill(self, mask: Any, value: Any) -> TensorT:
        """`value` where the mask is True, and x elsewhere.

        Raises TypeError for a mask that is not bool, and for a value that x's type cannot hold.

        Example:
            >>> x = mn.tensor([1.0, -2.0])
            >>> x.masked_fill(x < 0, 0.0)
            tensor([1., 0.])
        """
        filled: Any = value
        if not hasattr(value, "from_array"):
            if value != value and not dtypes.is_float(self.array.dtype):
                raise TypeError(
                    f"masked_fill: value is {value}, x is {self.array.dtype}; expected a number of x's type"
                )
            filled = self.from_array(devices.scalar(value, self.array.dtype, self.array))
        if getattr(mask, "dtype", None) != dtypes.bool:
            raise TypeError(f"masked_fill: mask is {getattr(mask, 'dtype', type(mask).__name__)}; expected bool")
        if filled.ndim:
            raise ValueError(f"masked_fill: value has shape {filled.shape}; expected a number or a 0-d tensor")
        if dtypes.is_float(filled.dtype) > dtypes.is_float(self.array.dtype):
            raise TypeError(f"masked_fill: value is {filled.dtype}, x is {self.array.dtype}; expected x's type")
        return elementwise.Where.apply(mask, filled.to(self.array.dtype), self)

    def where(self, condition: Any, other: Any) -> TensorT:
        """y = x where the condition is True, and `other` elsewhere. The three tensors are broadcast to one shape.

        Example:
            >>> x = mn.tensor([1.0, -2.0])
            >>> x.where(x > 0, 0.0)
            tensor([1., 0.])
        """
        return elementwise.Where.apply(condition, *operands("where", self, other))


def _true(x: Any) -> Any:
    return x if getattr(x, "dtype", None) == dtypes.bool else x != 0
