"""Does NumPy's operations on followed arrays for the judge. Each operation is given by its name.

Functions are available if they only compute. Functions that use files, take a function, or make large results from
small arguments are not available.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from minorm.labs.calling.followed_array import METHODS
from minorm.labs.calling.wire import leaves

LARGEST = 1 << 20  # elements of a result
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(np, name) for name in (
    "all", "allclose", "amax", "amin", "any", "append", "argmax", "argmin", "argsort", "around", "array",
    "array_equal", "array_split", "asanyarray", "asarray", "ascontiguousarray", "atleast_1d", "atleast_2d",
    "average", "broadcast_to", "clip", "column_stack", "concatenate", "copy", "copyto", "corrcoef",
    "count_nonzero", "cov", "cumprod", "cumsum", "diagonal", "diff", "dot", "einsum", "empty", "empty_like",
    "expand_dims", "flip", "full", "full_like", "hsplit", "hstack", "inner", "isclose", "max", "mean", "median",
    "min", "moveaxis", "nan_to_num", "nanmean", "nanstd", "nansum", "nanvar", "ones", "ones_like", "outer",
    "prod", "ptp", "ravel", "repeat", "reshape", "roll", "round", "sort", "split", "squeeze", "stack", "std",
    "sum", "swapaxes", "take", "tensordot", "tile", "trace", "transpose", "var", "vdot", "vsplit", "vstack",
    "where", "zeros", "zeros_like",
)} | {"norm": np.linalg.norm}  # fmt: skip
OPERATORS: dict[str, Callable[..., Any]] = {name: getattr(operator, name) for name in (
    "abs", "add", "eq", "floordiv", "ge", "gt", "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imod",
    "imul", "invert", "ior", "ipow", "irshift", "isub", "itruediv", "ixor", "le", "lshift", "lt", "matmul",
    "mod", "mul", "ne", "neg", "pos", "pow", "rshift", "sub", "truediv", "xor",
)} | {"and": operator.and_, "or": operator.or_}  # fmt: skip
PRODUCTS = {"outer", "tensordot", "einsum", "dot", "matmul", "inner", "vdot", "cov", "corrcoef"}
SHAPED = {"zeros": 0, "ones": 0, "empty": 0, "full": 0, "broadcast_to": 1}  # which argument is the shape
SPREADING = {"where", "clip", "allclose", "isclose", "average"}


class Unknown(ValueError):
    """Raised for an operation that is not available."""


def evaluated(kind: str, name: str, args: list[Any], options: dict[str, Any]) -> Any:
    """Return the result of NumPy's operation with this name; raise Unknown if there is no such operation."""
    function = _function(kind, name, args)
    _require(name.split(".", maxsplit=1)[0], name.endswith(".outer"), args, options)
    with np.errstate(all="ignore"):
        return function(*args, **options)


def _function(kind: str, name: str, args: list[Any]) -> Callable[..., Any]:
    if kind == "ufunc":
        ufunc, method = name.split(".")
        found = getattr(np, ufunc, None)
        if isinstance(found, np.ufunc) and method in ("__call__", "reduce", "accumulate", "reduceat", "outer", "at"):
            chosen: Callable[..., Any] = getattr(found, method)
            return chosen
    elif kind == "function" and name in FUNCTIONS:
        return FUNCTIONS[name]
    elif kind == "method" and name in METHODS and hasattr(args[0], name):
        return lambda array, *others, **options: getattr(array, name)(*others, **options)
    elif kind == "operator" and name in OPERATORS:
        return OPERATORS[name]
    elif kind == "index":
        return operator.getitem if name == "index" else _assign
    raise Unknown(name)


def _assign(array: Any, index: Any, value: Any) -> None:
    array[index] = value


def _require(name: str, outer: bool, args: list[Any], options: dict[str, Any]) -> None:
    """Raise Unknown if the result would be large."""
    arrays = [value for value in leaves([*args, *options.values()]) if isinstance(value, np.ndarray)]
    sizes = sorted((value.size for value in arrays), reverse=True)
    if name in SHAPED:
        shape = options.get("shape", args[SHAPED[name]] if len(args) > SHAPED[name] else ())
        size = prod(int(n) for n in np.ravel(shape))
    elif name in ("tile", "repeat"):
        counts = np.ravel(options.get("reps", options.get("repeats", args[1] if len(args) > 1 else 1)))
        size = prod(sizes) * max(prod(int(n) for n in counts), int(np.sum(counts)))
    elif name in PRODUCTS or outer:
        size = prod(max(size, 1) for size in sizes) >> 4
    elif name in FUNCTIONS and name not in SPREADING:
        size = sum(sizes)
    else:
        size = prod(np.broadcast_shapes(*(value.shape for value in arrays))) if _broadcasts(arrays) else sum(sizes)
    if size > LARGEST:
        raise Unknown(f"{name} with a result of {size} numbers")


def _broadcasts(arrays: list[Any]) -> bool:
    try:
        np.broadcast_shapes(*(value.shape for value in arrays))
    except ValueError:
        return False
    return True
