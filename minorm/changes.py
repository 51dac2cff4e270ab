"""Changes of a Tensor in place: never recorded, so only outside the graph; each counts up the version backward checks.

They stand apart from the Tensor itself, as its operators do. Names are PyTorch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from minorm import autograd
from minorm.kernels import select
from minorm.operators import plain

if TYPE_CHECKING:
    from typing import Self


class Changes:
    """What overwrites a Tensor's elements, on the device where they are."""

    __slots__ = ()

    if TYPE_CHECKING:  # what the Tensor provides
        data: Any
        dtype: Any
        device: Any
        version: Any
        requires_grad: bool

    def _change(self, operation: str) -> Any:
        if self.requires_grad and autograd.is_grad_enabled():
            raise RuntimeError(
                f"{operation}: the tensor requires grad and a change in place is not recorded; "
                "do it inside minorm.no_grad(), or compute a new tensor"
            )
        self.version.count += 1
        return self.data

    def _value(self, operation: str, value: Any) -> Any:
        """What is written into this tensor: a number, or an array on its device."""
        value = plain(value)
        if select.backend(self.data) is not select.cpu and isinstance(value, (list, tuple)):
            value = select.beside(np.asarray(value, self.dtype), self.data)
        if select.is_array(value) and select.device_of(value) != self.device:
            raise RuntimeError(
                f"{operation}: the tensor is on {self.device}, the value on {select.device_of(value)}; expected one "
                f"device; use value.to({self.device!r})"
            )
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        with select.guard(self.data):
            self._change("x[index] = value")[plain(index)] = self._value("x[index] = value", value)

    def copy_(self, source: Any) -> Self:
        """Overwrite with the values of `source`, broadcast and cast to this type; it may be on another device."""
        values = select.as_array(plain(source))
        with select.guard(self.data):
            self._change("copy_")[...] = select.to_device(values, self.device)
        return self

    def fill_(self, value: float) -> Self:
        """Set every element to `value`."""
        with select.guard(self.data):
            self._change("fill_").fill(value)
        return self

    def zero_(self) -> Self:
        """Set every element to 0."""
        return self.fill_(0)

    def add_(self, other: Any, *, alpha: float = 1) -> Self:
        """Add alpha * other."""
        with select.guard(self.data):
            self._change("add_")[...] += self.dtype.type(alpha) * self._value("add_", other)
        return self

    def mul_(self, other: Any) -> Self:
        """Multiply by `other`."""
        with select.guard(self.data):
            self._change("mul_")[...] *= self._value("mul_", other)
        return self
