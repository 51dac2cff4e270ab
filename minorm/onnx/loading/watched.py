"""Whether the rule of a node looks at the elements of its arguments itself, instead of leaving that to Functions.

What a rule decides by shapes and types it decides alike for all inputs of one form; what it decides by elements it may
decide otherwise next time. So it is given stand-ins, Tensors whose `array` is an `Elements`: shape, type and order of
memory can be asked, and reading anything else is noted. Functions get the arrays as they are. What a stand-in gives
through Functions is a stand-in too.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from minorm.tensor.tensor import Tensor

# Who may have the array itself: what applies Functions, and what counts bytes.
_TRUSTED = ("minorm.graph.", "minorm.onnx.graph.memory_budget", "minorm.onnx.loading.")
_FUNCTIONS = ("minorm.ops.", "minorm.kernels.", "minorm.normalization.")  # where Functions compute
_FORM = {"shape", "dtype", "ndim", "device", "numel"}  # of a Tensor: properties that need no elements
_LIKE = (np.empty_like, np.zeros_like, np.ones_like, np.full_like, np.may_share_memory, np.shape, np.ndim)


class Reads:
    """What was noted."""

    seen = False


class Elements(np.ndarray[Any, Any]):
    """The array of a stand-in."""

    reads: Reads | None = None
    source: Any = None  # the array as it is; None for a view of it

    def __array_finalize__(self, other: Any) -> None:
        self.reads = getattr(other, "reads", None)

    def note(self) -> None:
        """Elements were read: unless by a Function, which was handed this array as an option."""
        if self.reads is not None and not _caller(2).startswith(_FUNCTIONS):
            self.reads.seen = True

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        self.note()
        return getattr(ufunc, method)(*map(_plain, inputs), **options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in _LIKE:
            self.note()
        return function(*_plain(args), **_plain(kwargs))


def _reading(name: str) -> Any:
    def read(self: Elements, *args: Any, **options: Any) -> Any:
        self.note()
        return getattr(self.view(np.ndarray), name)(*_plain(args), **_plain(options))

    return read


for _name in (
    "__bool__", "__contains__", "__float__", "__getitem__", "__index__", "__int__", "__iter__", "all", "any", "argmax",
    "argmin", "argsort", "astype", "choose", "clip", "compress", "copy", "cumprod", "cumsum", "dot", "flatten", "item",
    "max", "mean", "min", "nonzero", "prod", "repeat", "round", "searchsorted", "sort", "std", "sum", "take", "tobytes",
    "tolist", "var",
):  # fmt: skip
    setattr(Elements, _name, _reading(_name))


class StandIn(Tensor):
    """A Tensor whose elements are watched."""

    __slots__ = ("reads",)

    reads: Reads

    @classmethod
    def of(cls, tensor: Tensor, reads: Reads) -> StandIn:
        """One for a Tensor: of the same array, and of the same versions."""
        self = cls.__new__(cls)
        _array.__set__(self, _array.__get__(tensor))
        self._requires_grad, self.grad, self.creator, self.output_index = False, None, None, 0
        self.version, self.view_of, self.reads = tensor.version, tensor.view_of, reads
        return self

    @property  # type: ignore[override]
    def array(self) -> Any:
        """The array itself for Functions; else what notes who reads it."""
        frame = sys._getframe(1)
        own = _array.__get__(self)
        if frame.f_code.co_name in _FORM or frame.f_globals["__name__"].startswith(_TRUSTED):
            return own
        elements = own.view(Elements)
        elements.reads, elements.source = self.reads, own
        return elements

    @array.setter
    def array(self, array: Any) -> None:
        _array.__set__(self, array)

    def holds(self, array: Any) -> bool:
        """Whether it is of this very array, of integers."""
        return _array.__get__(self) is array and array.dtype.kind in "iu" and array.dtype != np.uint8

    def numpy(self, *, force: bool = False) -> Any:  # noqa: ARG002
        """The array itself, which from here on nobody can watch."""
        self.reads.seen = True
        return _array.__get__(self)

    def from_array(self, array: Any, creator: Any = None, index: int = 0) -> Any:  # type: ignore[override]
        """What a Function makes of it is watched too."""
        return StandIn.of(Tensor.from_array(array, creator, index), self.reads)


_array: Any = vars(Tensor)["array"]  # the slot


def plain(tensor: Any) -> Any:
    """The Tensor that is meant: not a stand-in."""
    if not isinstance(tensor, StandIn):
        return tensor
    result = Tensor.from_array(_array.__get__(tensor))
    result.version, result.view_of = tensor.version, tensor.view_of
    return result


def _caller(depth: int) -> str:
    return str(sys._getframe(depth + 1).f_globals["__name__"])


def _plain(value: Any) -> Any:
    if isinstance(value, Elements):
        return value.view(np.ndarray)
    if isinstance(value, (tuple, list)):
        return type(value)(map(_plain, value))
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, dict) else value
