"""Notice whether the rule of a node reads elements of its arguments itself, outside of Functions.

A rule that looks only at shapes and types makes the same decisions for all inputs with these shapes and types. A rule
that looks at elements may decide differently next time. So the rule gets stand-ins, which are Tensors whose `array` is
an `Elements`. A rule can ask an `Elements` for shape, type and memory order. Any other use is recorded or raises an
error. Functions get the real arrays. The result of a Function on a stand-in is a stand-in too.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from minorm.tensor.tensor import Tensor

# Modules that get the array itself, because they apply Functions or count bytes.
_TRUSTED = ("minorm.graph.", "minorm.onnx.graph.memory_budget", "minorm.onnx.loading.")
_FORM = ("shape", "dtype", "ndim", "size", "itemsize", "nbytes", "strides", "flags")
_LIKE = (np.empty_like, np.zeros_like, np.ones_like, np.full_like, np.shape, np.ndim, np.size)


class Reads:
    """Holds a flag: `seen` is True once elements were read."""

    seen = False


class Elements(np.lib.mixins.NDArrayOperatorsMixin):
    """Shows a rule the shape and type of an array, and records if the rule reads its elements."""

    def __init__(self, array: Any, reads: Reads) -> None:
        self._array, self._reads = array, reads

    def is_of(self, array: Any) -> bool:
        """Return True if this object watches exactly `array`."""
        return self._array is array

    def __getattr__(self, name: str) -> Any:
        if name not in _FORM:
            self._note()
        return getattr(self._array, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self._note()
        return np.array(self._array, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        self._note()
        return getattr(ufunc, method)(*map(_unwatched, inputs), **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _LIKE:
            self._note()
        return function(*_unwatched(args), **_unwatched(kwargs))

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        self._note()
        return self._array[_unwatched(index)]

    def __bool__(self) -> bool:
        self._note()
        return bool(self._array)

    def __int__(self) -> int:
        self._note()
        return int(self._array)

    def __float__(self) -> float:
        self._note()
        return float(self._array)

    def _note(self) -> None:
        """Record a read of elements, unless the reader is a Function that got this object among its options."""
        frame: Any = sys._getframe(2)
        while frame is not None and not frame.f_globals["__name__"].startswith("minorm.onnx."):
            if frame.f_globals["__name__"] == "minorm.graph.graph":
                return
            frame = frame.f_back
        self._reads.seen = True


class StandIn(Tensor):
    """Stands for a Tensor and watches its elements."""

    __slots__ = ("reads",)

    reads: Reads

    @classmethod
    def of(cls, tensor: Tensor, reads: Reads) -> StandIn:
        """Make a stand-in for a Tensor, with the same array and version counter."""
        self = cls.__new__(cls)
        _array.__set__(self, tensor.array)
        self._requires_grad, self.grad, self.creator, self.output_index = False, None, None, 0
        self.version, self.view_of, self.reads = tensor.version, tensor.view_of, reads
        return self

    @property
    def array(self) -> Any:
        """Return the array to Functions; return an `Elements`, which records reads, to other code."""
        own = _array.__get__(self)
        trusted = sys._getframe(1).f_globals["__name__"].startswith(_TRUSTED)
        return own if trusted else Elements(own, self.reads)

    @array.setter
    def array(self, array: Any) -> None:
        _array.__set__(self, array)

    def from_array(self, array: Any, creator: Any = None, index: int = 0) -> Any:  # type: ignore[override]
        """Make a Function's result a watched Tensor too."""
        return StandIn.of(Tensor.from_array(array, creator, index), self.reads)


_array: Any = vars(Tensor)["array"]  # the slot


def plain(stand_in: StandIn) -> Tensor:
    """Return a plain Tensor with the same array, whose reads are not recorded."""
    result = Tensor.from_array(stand_in.array)
    result.version, result.view_of = stand_in.version, stand_in.view_of
    return result


def _unwatched(value: Any) -> Any:
    """Replace each `Elements` by its array."""
    if isinstance(value, Elements):
        return value._array
    if isinstance(value, (tuple, list)):
        return type(value)(map(_unwatched, value))
    return {name: _unwatched(item) for name, item in value.items()} if isinstance(value, dict) else value
