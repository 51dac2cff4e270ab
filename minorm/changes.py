"""Changes of a Tensor in place: `x += y`, `x[i] = y`, `x.fill_(0)` ... mean what they mean in PyTorch.

    memory    the array itself changes, so every alias and every view sees it
    version   counts up, so that backward notices where it needs the old values
    history   where gradients are recorded, the same Tensor goes on with the creator of its new value, and so does
              whatever shares its memory

The last is the only work. A change of a whole tensor is an ordinary operation whose result is written into x and
whose creator x takes over. A change of a part is a `SetItem` of the tensor that the part is a view of. Then every
other view of it is viewed anew. They stand apart from the Tensor itself, as its operators do.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from minorm import autograd, dtypes, trace
from minorm.kernels import select
from minorm.operators import plain
from minorm.ops import elementwise, indexing, stepwise
from minorm.ops.operands import operands
from minorm.ops.special import Remainder

if TYPE_CHECKING:
    from typing import Self

_DIRECT: dict[Any, Callable[[Any, Any], Any]] = {  # what NumPy does in place, to the same bits
    elementwise.Add: operator.iadd,
    elementwise.Sub: operator.isub,
    elementwise.Mul: operator.imul,
    elementwise.Div: operator.itruediv,
    elementwise.Pow: operator.ipow,
    stepwise.FloorDivide: operator.ifloordiv,
    Remainder: operator.imod,
}


class Changes:
    """What overwrites a Tensor's elements, on the device where they are."""

    __slots__ = ()

    if TYPE_CHECKING:  # what the Tensor provides
        array: Any
        creator: Any
        output_index: int
        requires_grad: bool
        spawn: Any
        version: Any
        view_of: Any

        @property
        def dtype(self) -> Any: ...  # noqa: D102
        @property
        def device(self) -> str: ...  # noqa: D102
        @property
        def shape(self) -> tuple[int, ...]: ...  # noqa: D102

    # Operators

    def __iadd__(self, other: Any) -> Self:
        return self._become("x += y", elementwise.Add, other)

    def __isub__(self, other: Any) -> Self:
        return self._become("x -= y", elementwise.Sub, other)

    def __imul__(self, other: Any) -> Self:
        return self._become("x *= y", elementwise.Mul, other)

    def __itruediv__(self, other: Any) -> Self:
        return self._become("x /= y", elementwise.Div, other, real=True)

    def __ifloordiv__(self, other: Any) -> Self:
        return self._become("x //= y", stepwise.FloorDivide, other)

    def __imod__(self, other: Any) -> Self:
        return self._become("x %= y", Remainder, other, truncated=False)

    def __ipow__(self, other: Any) -> Self:
        return self._become("x **= y", elementwise.Pow, other)

    def __iand__(self, other: Any) -> Self:
        return self._become("x &= y", stepwise.Bitwise, other, relation="bitwise_and")

    def __ior__(self, other: Any) -> Self:
        return self._become("x |= y", stepwise.Bitwise, other, relation="bitwise_or")

    def __ixor__(self, other: Any) -> Self:
        return self._become("x ^= y", stepwise.Bitwise, other, relation="bitwise_xor")

    def __setitem__(self, index: Any, value: Any) -> None:
        self._put("x[index] = value", index, value)

    # Methods

    def copy_(self, source: Any) -> Self:
        """Overwrite with the values of `source`, broadcast and cast to this type; it may be on another device."""
        if not hasattr(source, "spawn"):
            source = self.spawn(select.as_array(source), None, 0)
        return self._put("copy_", ..., source.to(self.device))

    def fill_(self, value: Any) -> Self:
        """Set every element to `value`, a number or a Tensor without axes."""
        return self._put("fill_", ..., value)

    def zero_(self) -> Self:
        """Set every element to 0."""
        return self._put("zero_", ..., 0)

    def add_(self, other: Any, *, alpha: float = 1) -> Self:
        """x += alpha * other"""
        return self._become("add_", elementwise.Add, self._scaled("add_", other, alpha))

    def sub_(self, other: Any, *, alpha: float = 1) -> Self:
        """x -= alpha * other"""
        return self._become("sub_", elementwise.Sub, self._scaled("sub_", other, alpha))

    def mul_(self, other: Any) -> Self:
        """x *= other"""
        return self._become("mul_", elementwise.Mul, other)

    def div_(self, other: Any) -> Self:
        """x /= other"""
        return self._become("div_", elementwise.Div, other, real=True)

    def clip_(self, min: float | None = None, max: float | None = None) -> Self:
        """Elements below `min` become min, above `max` become max; either may be absent."""
        if min is None and max is None:
            raise ValueError("clip_: min and max are both None; expected at least one bound")
        return self._become("clip_", elementwise.Clip, low=min, high=max)

    clamp_ = clip_

    def _scaled(self, operation: str, other: Any, alpha: float) -> Any:
        return other if alpha == 1 else operands(operation, self, other, broadcast=False)[1] * alpha

    # The whole tensor

    def _become(self, operation: str, function: Any, *others: Any, real: bool = False, **options: Any) -> Self:
        """x = function(x, *others), in x's memory."""
        recorded = self._recorded(operation, others)
        if recorded or trace.state.calls is not None:
            before = self._before()
            given = [before if other is self else other for other in others]
            values = self._operands(operation, before, given, real)
            result = function.apply(*values, **options).to(self.dtype)
            if recorded and not result.requires_grad:
                raise RuntimeError(
                    f"{operation}: no gradient passes {function.__name__}, and x is a result in the graph; "
                    "compute on x.detach(), or inside minorm.no_grad()"
                )
            if result.creator is not None:
                _keep_copies(result.creator, self.array)
            self._go_on_as(result)
            return self
        values = self._operands(operation, self, others, real)
        direct = _DIRECT.get(function)
        if direct is not None and values[0] is self and type(self.array) is np.ndarray:
            direct(self.array, values[1].array)
        else:
            with select.guard(self.array):
                self.array[...] = function.apply(*values, **options).array.astype(self.dtype, copy=False)
        self.version.count += 1
        return self

    def _operands(self, operation: str, x: Any, others: Any, real: bool) -> tuple[Any, ...]:
        """x and the others in the type of the result, which x must be able to hold, as its shape must."""
        for other in others:
            if hasattr(other, "spawn"):
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
                f"{operation}: x is {shape}, y is {values[1].shape}; expected a y that broadcasts to x's shape, "
                "which no change in place can make larger"
            )
        return values

    # Parts of it

    def _put(self, operation: str, index: Any, value: Any) -> Self:
        """x[index] = value; a recorded one keeps the gradients of both."""
        where = plain(index)
        recorded = self._recorded(operation, (value,))
        try:
            if recorded or trace.state.calls is not None:
                value = self._part(operation, value)
                if not self._holds(where, value):  # x[i] += 1 ends with x[i] = x[i], which is no change
                    self._set(where, value)
            else:
                with select.guard(self.array):
                    self.array[where] = self._value(operation, value)
                self.version.count += 1
        except IndexError as error:
            raise IndexError(f"{operation}: {error}; x.shape is {self.shape}") from None
        except ValueError as error:
            raise ValueError(f"{operation}: {error}; x.shape is {self.shape}") from None
        return self

    def _holds(self, where: Any, value: Any) -> bool:
        if value.version is not self.version or not indexing.is_basic(where):
            return False
        with select.guard(self.array):
            return select.same(self.array[indexing.viewing(where)], value.array)

    def _value(self, operation: str, value: Any) -> Any:
        """What is written into this tensor: a number, or an array on its device."""
        value = plain(value)
        if select.backend(self.array) is not select.cpu and isinstance(value, (list, tuple)):
            value = select.beside(np.asarray(value, self.dtype), self.array)
        if select.is_array(value):
            self._check_device(operation, value)
        return value

    def _check_device(self, operation: str, array: Any) -> None:
        if not select.together(array, self.array):
            raise RuntimeError(
                f"{operation}: the tensor is on {self.device}, the value on {select.device_of(array)}; expected one "
                f"device; use value.to({self.device!r})"
            )

    def _part(self, operation: str, value: Any) -> Any:
        """The value as a Tensor of this type, with its history."""
        array = self._value(operation, value)
        if hasattr(value, "spawn"):
            return value.to(self.dtype)
        if not select.is_array(array):
            array = select.scalar(array, self.dtype, self.array) if np.ndim(array) == 0 else np.asarray(array)
        with select.guard(array):
            return self.spawn(array.astype(self.dtype, copy=False), None, 0)

    # History

    def _recorded(self, operation: str, others: tuple[Any, ...]) -> bool:
        """Whether a graph is to know of this change; RuntimeError where it cannot, or the memory cannot change."""
        array = self.array
        if 0 in array.strides or not (type(array) is not np.ndarray or array.flags.writeable):
            self._check_memory(operation)
        if not autograd.is_grad_enabled():
            return False
        if not self.requires_grad and not (
            any(getattr(v, "requires_grad", False) for v in others) and dtypes.is_float(self.dtype)
        ):
            return False
        root, links = self._origin()
        if any(link.detached for link in links):
            raise RuntimeError(
                f"{operation}: x is a view made inside no_grad() of a tensor that requires grad; expected one made "
                "outside, or x.detach()"
            )
        if root.requires_grad and root.creator is None:
            what = "a leaf" if root is self else "a view of a leaf"
            raise RuntimeError(
                f"{operation}: the tensor is {what} that requires grad, and no recorded operation may change it; "
                "change it inside minorm.no_grad(), or compute a new tensor"
            )
        return True

    def _check_memory(self, operation: str) -> None:
        steps = zip(self.array.strides, self.shape, strict=True)
        if any(step == 0 and length > 1 for step, length in steps):
            raise RuntimeError(
                f"{operation}: several elements of x share one place in memory (expand); expected one each; "
                "work on x.clone()"
            )
        if type(self.array) is np.ndarray and not self.array.flags.writeable:
            raise RuntimeError(f"{operation}: x is around a read-only array; expected one to write to; use x.clone()")

    def _origin(self) -> tuple[Any, list[autograd.View]]:
        """The tensor that self is a view of, by way of others perhaps, and the way from it to self."""
        tensor, links = self, []
        while _is_view(tensor):
            links.append(tensor.view_of)
            tensor = tensor.view_of.parent
        return tensor, links[::-1]

    def _before(self) -> Any:
        """Another Tensor for what self has been until now: the same array and creator."""
        before = self.spawn(self.array, None, 0)
        before.requires_grad, before.creator, before.output_index = self.requires_grad, self.creator, self.output_index
        return before

    def _go_on_as(self, result: Any) -> None:
        """Take the value of `result`, and its history."""
        if _is_view(self):
            self._set(..., result)
            return
        _remember(self)
        with select.guard(self.array):
            self.array[...] = result.array
        _graft(self, result)
        _changed(self)

    def _set(self, index: Any, part: Any) -> None:
        """x[index] = part, as a change of the tensor that x is a view of."""
        root, links = self._origin()
        _remember(root)
        steps = tuple((link.function, link.options) for link in links)
        _graft(root, indexing.SetItem.apply(root._before(), part, steps=steps, index=index))
        _changed(root)


def _rank(dtype: Any) -> int:
    """bool below the integers below the floats: a type holds results of its own rank and of lower ones."""
    return 2 if dtypes.is_float(dtype) else int(dtype != dtypes.bool)


def _is_view(tensor: Any) -> bool:
    """Whether it still shares the memory of what it was made from: copy.deepcopy and x.data = y part them."""
    link = tensor.view_of
    return (
        link is not None
        and link.parent.version is tensor.version
        and (tensor.array.size == 0 or select.overlap(tensor.array, link.parent.array))
    )


def _keep_copies(creator: Any, array: Any) -> None:
    """Before `array` is overwritten: what forward kept of it becomes a copy."""
    names = [name for name, kept in vars(creator).items() if kept is array]
    if names:
        with select.guard(array):
            copy = array.copy()
        for name in names:
            setattr(creator, name, copy)


def _graft(tensor: Any, result: Any) -> None:
    """Let `tensor` go on with the history of `result`, in the graph and in an open trace."""
    if autograd.is_grad_enabled():
        asked = tensor.creator is not None and tensor.creator.release(tensor)
        tensor.requires_grad, tensor.creator = result.requires_grad, result.creator
        tensor.output_index = result.output_index
        if asked and tensor.creator is not None:
            tensor.creator.retain(tensor)
    trace.changed(tensor)


def _remember(root: Any) -> None:
    """An open trace wants to know what its constants were before they changed."""
    if trace.state.calls is not None:
        for tensor in (root, *root.version.living()):
            trace.remember(tensor.array)


def _changed(root: Any) -> None:
    """Count the change, and view anew what is a view of `root`."""
    root.version.count += 1
    if trace.state.calls is not None:
        root.version.traced += 1
    for view in root.version.living():
        link = view.view_of
        if _is_view(view) and not (link.detached and autograd.is_grad_enabled()):
            _graft(view, link.function.apply(link.parent, **link.options))
