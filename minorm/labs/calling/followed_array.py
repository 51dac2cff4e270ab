"""Gives students arrays that hold no numbers. Each operation asks the judge, and returns a new array without numbers.

Such an array works with NumPy's functions, ufuncs, operators, methods and indices. Operations that would bring numbers
into this process (float, np.float64, tolist, memoryview) also ask the judge, who refuses most of these operations.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minorm.labs.calling.wire import TYPES

Ask = Callable[..., Any]
BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")
COMPARING = ("lt", "le", "eq", "ne", "gt", "ge")
UNARY = ("neg", "pos", "abs", "invert")
FILLED = ("zeros", "ones", "empty", "full")  # new arrays, into which numbers may be written later
CONVERTING = ("array", "asarray", "asanyarray", "ascontiguousarray")
METHODS = {
    "all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumprod", "cumsum", "diagonal",
    "dot", "fill", "flatten", "max", "mean", "min", "prod", "ravel", "repeat", "reshape", "round", "squeeze",
    "std", "sum", "swapaxes", "take", "trace", "transpose", "var", "view",
}  # fmt: skip


class NotFollowed(TypeError):
    """Raised for an operation that the check cannot follow."""


class FollowedArray:
    """An array whose numbers stay with the judge.

    This object has only its number in the judge's list, its shape and its type.
    """

    def __init__(self, ask: Ask, number: int, shape: tuple[int, ...], dtype: str) -> None:
        self._ask, self.number, self.shape = ask, number, tuple(shape)
        self.dtype = dtype_named(dtype)

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    itemsize = property(lambda self: self.dtype.itemsize)
    nbytes = property(lambda self: self.size * self.itemsize)
    T = property(lambda self: self.transpose())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # protocols that NumPy and IPython look for
            raise AttributeError(name)
        if name not in METHODS:
            with contextlib.suppress(Exception):
                self._run("refused", f"x.{name}")
            raise AttributeError(f"the check cannot follow x.{name}")
        return functools.partial(self._run, "method", name, self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return self._run("ufunc", f"{ufunc.__name__}.{method}", *inputs, **options)

    def __array_function__(self, function: Any, _types: Any, args: Any, options: Any) -> Any:
        name = function.__name__
        if name in ("shape", "ndim", "size") and len(args) == 1 and not options:
            return getattr(args[0], name)
        return self._run("function", name, *args, **options)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._run("conversion", f"np.{np.dtype(dtype)}(...)" if dtype is not None else "np.array(...)", self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return self._run("index", "index", self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._run("index", "assign", self, index, value)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._run("plain", "bool", self))

    def __int__(self) -> int:
        return int(self._run("plain", "int", self))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError("only whole numbers can be an index")
        return int(self._run("plain", "int", self))

    def __float__(self) -> float:
        return float(self._run("plain", "float", self))

    def item(self) -> Any:
        """Ask the judge for the number in an array with one element."""
        return self._run("plain", "item", self)

    def tolist(self) -> Any:
        """Ask the judge for the numbers, as nested lists."""
        return self._run("plain", "tolist", self)

    def __repr__(self) -> str:
        return f"an array of shape {self.shape} and type {self.dtype}"

    def _run(self, kind: str, name: str, *args: Any, **options: Any) -> Any:
        return run(self._ask, kind, name, args, options)


def _operator(name: str, place: int) -> Callable[..., Any]:
    def method(self: FollowedArray, *others: Any) -> Any:
        operands = (self, *others) if place == 0 else (*others, self)
        return self._run("operator", name, *operands)

    return method


for _name in (*BINARY, *COMPARING, *UNARY):
    setattr(FollowedArray, f"__{_name}__", _operator(_name, 0))
for _name in BINARY:
    setattr(FollowedArray, f"__r{_name}__", _operator(_name, 1))
    setattr(FollowedArray, f"__i{_name}__", _operator(f"i{_name}", 0))
FollowedArray.__hash__ = object.__hash__  # type: ignore[method-assign]


def run(ask: Ask, kind: str, name: str, args: Any, options: Any) -> Any:
    """Ask the judge for the result of an operation."""
    with original():
        try:
            question = packed(list(args)), packed(options)
        except NotFollowed as error:
            ask("refused", f"{name} of {error}", [], {})
            raise
        return unpacked(ask, ask(kind, name, *question))


def packed(value: Any) -> Any:
    """Encode arguments for the judge: a followed array as its number, other arguments as values."""
    if isinstance(value, FollowedArray):
        return {"followed": value.number}
    if isinstance(value, np.generic):  # np.float64 is a float as well, and decides a type where a float does not
        return {"value": _ORIGINALS["asarray"](value)}
    if value is None or isinstance(value, (bool, int, float, str, np.ndarray)):
        return {"value": value}
    if isinstance(value, slice):
        return {"slice": [packed(part) for part in (value.start, value.stop, value.step)]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, (tuple, list, range)):
        return {"tuple" if isinstance(value, tuple) else "list": [packed(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": {str(key): packed(item) for key, item in value.items()}}
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, (np.generic, int, float))):
        return {"dtype": str(np.dtype(value))}
    raise NotFollowed(f"a {type(value).__name__}")


def unpacked(ask: Ask, reply: Any) -> Any:
    """Decode the judge's results."""
    ((kind, value),) = reply.items()
    if kind == "followed":
        return FollowedArray(ask, *value)
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(unpacked(ask, item) for item in value)
    return value


def dtype_named(name: str) -> Any:
    """Return the dtype with this name, which may also be bfloat16, a type that NumPy does not have."""
    return TYPES[name] if name in TYPES else np.dtype(name)


# NumPy's functions that make arrays, while a followed function runs

_ORIGINALS = {name: getattr(np, name) for name in (*FILLED, *CONVERTING)}
_REPLACED: list[dict[str, Any]] = []  # the functions in their place while it runs


@contextlib.contextmanager
def making(ask: Ask, names: dict[str, Any]) -> Iterator[None]:
    """Inside the block, let np.zeros, np.array and similar functions return followed arrays.

    A student can write results into these arrays.

    names  the names in the student's module, which may have imported some of NumPy's functions by name
    """
    replaced = {name: _filled(ask, name) for name in FILLED} | {name: _converted(ask, name) for name in CONVERTING}
    by_identity = {id(_ORIGINALS[name]): replaced[name] for name in replaced}
    own = {name: value for name, value in names.items() if id(value) in by_identity}
    names.update({name: by_identity[id(value)] for name, value in own.items()})
    _REPLACED.append(replaced)
    _put(replaced)
    try:
        yield
    finally:
        _put(_ORIGINALS)
        _REPLACED.pop()
        names.update(own)


@contextlib.contextmanager
def original() -> Iterator[None]:
    """Inside the block, restore NumPy's own functions.

    In a notebook, the judge computes in the same process and needs them.
    """
    if not _REPLACED:
        yield
        return
    _put(_ORIGINALS)
    try:
        yield
    finally:
        _put(_REPLACED[-1])


def _put(functions: dict[str, Any]) -> None:
    for name, function in functions.items():
        setattr(np, name, function)


def _filled(ask: Ask, name: str) -> Callable[..., Any]:
    def made(*args: Any, **options: Any) -> Any:
        return run(ask, "function", name, args, options)

    return made


def _converted(ask: Ask, name: str) -> Callable[..., Any]:
    def converted(*args: Any, **options: Any) -> Any:
        if args and _holds(args[0]):
            return run(ask, "function", name, args, options)
        return _ORIGINALS[name](*args, **options)

    return converted


def _holds(value: Any, depth: int = 0) -> bool:
    """Return whether the value is a followed array or a list that holds one."""
    if isinstance(value, (list, tuple)) and depth < 4:
        return any(_holds(item, depth + 1) for item in value)
    return isinstance(value, FollowedArray)
