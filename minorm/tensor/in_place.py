"""Changes of a Tensor in place: `x += y`, `x[i] = y`, `x.fill_(0)` ... work as in PyTorch.

    memory    the array itself changes, so every alias and every view sees the change
    version   counts up, so that backward notices a change of values that it needs
    history   if gradients are recorded, the Tensor and all Tensors that share its memory take over the creator of the
              new value

The code for the history is in history.py. Like the operators, these methods are in a base class of Tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minorm import devices
from minorm.devices import dtypes
from minorm.graph import trace
from minorm.kernels import select
from minorm.ops import elementwise, indexing, stepwise
from minorm.ops.operands import operands, others_turn, plain
from minorm.ops.special import Remainder
from minorm.support.argument_texts import MEMORY, OTHER_IN_PLACE
from minorm.support.documented import documented_methods
from minorm.tensor import history

if TYPE_CHECKING:
    from typing import Self


def _floor_divide(a: Any, b: Any) -> None:
    stepwise.expect_divisor("x //= y", b)
    a //= b


def _remainder(a: Any, b: Any) -> None:
    stepwise.expect_divisor("x %= y", b)
    a %= b


_DIRECT: dict[Any, Callable[[Any, Any], Any]] = {  # NumPy computes these in place, with the same bits
    elementwise.Add: operator.iadd,
    elementwise.Sub: operator.isub,
    elementwise.Mul: operator.imul,
    elementwise.Div: operator.itruediv,
    stepwise.FloorDivide: _floor_divide,
    Remainder: _remainder,
}


ARGUMENTS = (
    OTHER_IN_PLACE
    | MEMORY
    | {
        "copy_.other": "a Tensor or an array that broadcasts to x",
        "value": "a number, or a Tensor without axes",
        "min": "the lower bound; None means no bound",
        "max": "the upper bound; None means no bound",
    }
)


@documented_methods(ARGUMENTS)
class InPlace:
    """The methods that overwrite a Tensor's elements, on the CPU or a GPU."""

    __slots__ = ()

    if TYPE_CHECKING:  # provided by the Tensor
        array: Any
        from_array: Any
        version: Any

        @property
        def dtype(self) -> Any: ...  # noqa: D102
        @property
        def device(self) -> str: ...  # noqa: D102
        @property
        def shape(self) -> tuple[int, ...]: ...  # noqa: D102

    # Operators

    def __iadd__(self, other: Any) -> Self:
        return self._become_or_yield("__radd__", "x += y", elementwise.Add, other)

    def __isub__(self, other: Any) -> Self:
        return self._become_or_yield("__rsub__", "x -= y", elementwise.Sub, other)

    def __imul__(self, other: Any) -> Self:
        return self._become_or_yield("__rmul__", "x *= y", elementwise.Mul, other)

    def __itruediv__(self, other: Any) -> Self:
        return self._become_or_yield("__rtruediv__", "x /= y", elementwise.Div, other, real=True)

    def __ifloordiv__(self, other: Any) -> Self:
        return self._become_or_yield("__rfloordiv__", "x //= y", stepwise.FloorDivide, other)

    def __imod__(self, other: Any) -> Self:
        return self._become_or_yield("__rmod__", "x %= y", Remainder, other, truncated=False)

    def __ipow__(self, other: Any) -> Self:
        return self._become_or_yield("__rpow__", "x **= y", elementwise.Pow, other)

    def __iand__(self, other: Any) -> Self:
        return self._become_or_yield("__rand__", "x &= y", stepwise.Bitwise, other, relation="bitwise_and")

    def __ior__(self, other: Any) -> Self:
        return self._become_or_yield("__ror__", "x |= y", stepwise.Bitwise, other, relation="bitwise_or")

    def __ixor__(self, other: Any) -> Self:
        return self._become_or_yield("__rxor__", "x ^= y", stepwise.Bitwise, other, relation="bitwise_xor")

    def __setitem__(self, index: Any, value: Any) -> None:
        self._put("x[index] = value", index, value)

    # Methods

    def copy_(self, other: Any, non_blocking: Any = False) -> Self:  # noqa: ARG002
        """x = other, broadcast to x's shape and cast to x's type. `other` may be on another device.

        Example:
            >>> mn.zeros(2).copy_(mn.tensor([1, 2]))
            tensor([1., 2.])
        """
        if not hasattr(other, "from_array"):
            other = self.from_array(select.as_array(other))
        return self._put("copy_", ..., other.to(self.device))

    def fill_(self, value: Any) -> Self:
        """x = value, in every element."""
        return self._put("fill_", ..., value)

    def zero_(self) -> Self:
        """x = 0, in every element."""
        return self._put("zero_", ..., 0)

    def add_(self, other: Any, *, alpha: float = 1) -> Self:
        """x += alpha * other

        Example:
            >>> mn.tensor([1.0]).add_(10, alpha=2)
            tensor([21.])
        """
        return self._become("add_", elementwise.Add, self._scaled("add_", other, alpha))

    def sub_(self, other: Any, *, alpha: float = 1) -> Self:
        """x -= alpha * other

        Example:
            >>> mn.tensor([1.0]).sub_(10, alpha=2)
            tensor([-19.])
        """
        return self._become("sub_", elementwise.Sub, self._scaled("sub_", other, alpha))

    def mul_(self, other: Any) -> Self:
        """x *= other"""
        return self._become("mul_", elementwise.Mul, other)

    def div_(self, other: Any) -> Self:
        """x /= other"""
        return self._become("div_", elementwise.Div, other, real=True)

    def clip_(self, min: float | None = None, max: float | None = None) -> Self:
        """x = min(max(x, min), max)

        Example:
            >>> mn.tensor([-3.0, 3.0]).clip_(-1, 1)
            tensor([-1.,  1.])
        """
        if min is None and max is None:
            raise ValueError("clip_: min and max are both None; expected at least one bound")
        for bound in (min, max):
            if isinstance(bound, (float, np.floating)) and not dtypes.is_float(self.dtype):
                raise TypeError(
                    f"clip_: x is {self.dtype}, a bound is {bound}; expected integer bounds, or an x of floats, such "
                    "as x.float()"
                )
        return self._become("clip_", elementwise.Clip, low=min, high=max)

    clamp_ = clip_

    def _scaled(self, operation: str, other: Any, alpha: float) -> Any:
        return other if alpha == 1 else operands(operation, self, other, broadcast=False)[1] * alpha

    # The whole tensor

    def _become(self, operation: str, function: Any, *others: Any, real: bool = False, **options: Any) -> Self:
        """Compute function(x, *others), and write the result into x's memory."""
        recorded = history.is_recorded(self, operation, others)
        if recorded or trace.state.calls is not None:
            before = history.as_before(self)
            given = [before if other is self else other for other in others]
            values = self._operands(operation, before, given, real)
            result = function.apply(*values, **options).to(self.dtype)
            if recorded and not result.requires_grad:
                raise RuntimeError(
                    f"{operation}: {function.__name__} has no gradient, and x is a result in the graph; compute on "
                    "x.detach(), or inside minorm.no_grad()"
                )
            if result.creator is not None:
                history.keep_copies(result.creator, self.array)
            history.go_on_as(self, result)
            return self
        values = self._operands(operation, self, others, real)
        direct = _DIRECT.get(function)
        if direct is not None and values[0] is self and type(self.array) is np.ndarray:
            direct(self.array, values[1].array)
        else:
            with devices.on_device_of(self.array):
                self._overwrite(function, values, options)
        self.version.count += 1
        return self

    def _become_or_yield(self, reflected: str, operation: str, function: Any, other: Any, **options: Any) -> Self:
        """Like `_become`, but return NotImplemented if `other` has the reflected operator, which Python then calls."""
        try:
            return self._become(operation, function, other, **options)
        except TypeError as error:
            return others_turn(error, other, reflected)

    def _go_on_as(self, operation: str, result: Any) -> Self:
        """Set x to `result`, a Tensor that was computed from x."""
        history.is_recorded(self, operation, (result,))
        history.go_on_as(self, result)
        return self

    def _overwrite(self, function: Any, values: tuple[Any, ...], options: dict[str, Any]) -> None:
        """Set this tensor's array to function(*values). If the function is a sum, add the second value in place."""
        kernels = select.backend(self.array)
        if function is elementwise.Add and values[0] is self and not select.overlap(self.array, values[1].array):
            kernels.elementwise.accumulate(self.array, values[1].array)
        else:
            kernels.copying.assign(self.array, function.apply(*values, **options).array)

    def _operands(self, operation: str, x: Any, others: Any, real: bool) -> tuple[Any, ...]:
        """Return x and `others`, converted to the result's type.

        Raises an error unless x can hold a result of this type and shape.
        """
        for other in others:
            if hasattr(other, "from_array"):
                self._check_device(operation, other.array)
        values = operands(operation, x, *others, real=real) if others else (x,)
        dtype, shape = values[0].dtype, self.shape
        if dtype is not self.dtype and _rank(dtype) > _rank(self.dtype):
            raise TypeError(
                f"{operation}: the result is {dtype}, x is {self.dtype}; expected a result that x's type can hold; "
                "compute a new tensor, or convert x first"
            )
        if any(v.shape != shape for v in values) and np.broadcast_shapes(*[v.shape for v in values]) != shape:
            raise ValueError(
                f"{operation}: x has shape {shape}, y has {values[1].shape}; expected a y that broadcasts to x's "
                "shape, because a method in place cannot enlarge x"
            )
        return values

    # Parts of it

    def _put(self, operation: str, index: Any, value: Any) -> Self:
        """x[index] = value. If the graph records the change, gradients flow to x's old value and to `value`."""
        where = plain(index)
        if not indexing.is_basic(where):
            where = indexing.as_masks(where)
            if (steps := indexing.in_two_steps(where)) is not None:
                x: Any = self
                x[steps[0]]._put(operation, steps[1], value)
                return self
        recorded = history.is_recorded(self, operation, (value,))
        try:
            if recorded or trace.state.calls is not None:
                value = self._part(operation, value)
                if not self._holds(where, value):  # x[i] += 1 ends with x[i] = x[i], which changes nothing
                    history.set_part(self, where, value)
            else:
                with devices.on_device_of(self.array):
                    select.backend(self.array).indexing.put(self.array, where, self._value(operation, value))
                self.version.count += 1
        except IndexError as error:
            raise IndexError(f"{operation}: {error}; x.shape is {self.shape}") from None
        except ValueError as error:
            raise ValueError(f"{operation}: {error}; x.shape is {self.shape}") from None
        return self

    def _holds(self, where: Any, value: Any) -> bool:
        if value.version is not self.version or not indexing.is_basic(where):
            return False
        with devices.on_device_of(self.array):
            return select.same(self.array[indexing.viewing(where)], value.array)

    def _value(self, operation: str, value: Any) -> Any:
        """Return the value to write: a number, or an array on this tensor's device."""
        value = plain(value)
        if select.backend(self.array) is not select.cpu and isinstance(value, (list, tuple)):
            value = devices.to_device_of(np.asarray(value, self.dtype), self.array)
        if select.is_array(value):
            self._check_device(operation, value)
        return value

    def _check_device(self, operation: str, array: Any) -> None:
        if not devices.same_device(array, self.array):
            raise RuntimeError(
                f"{operation}: the tensor is on {self.device}, the value on {devices.device_of(array)}; expected one "
                f"device; use value.to({self.device!r})"
            )

    def _part(self, operation: str, value: Any) -> Any:
        """Return the value, with its history, as a Tensor of x's type."""
        array = self._value(operation, value)
        if hasattr(value, "from_array"):
            return value.to(self.dtype)
        if not select.is_array(array):
            array = devices.scalar(array, self.dtype, self.array) if np.ndim(array) == 0 else np.asarray(array)
        with devices.on_device_of(array):
            return self.from_array(array.astype(self.dtype, copy=False))


def _rank(dtype: Any) -> int:
    """Return the rank of a type: 0 for bool, 1 for integers, 2 for floats.

    A type can hold numbers of types with the same rank or a lower rank.
    """
    return 2 if dtypes.is_float(dtype) else int(dtype != dtypes.bool)
