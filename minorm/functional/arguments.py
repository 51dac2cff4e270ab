"""Checks that functions make before they compute: arguments must be Tensors and, where necessary, of one float type."""

from __future__ import annotations

import operator
from typing import Any

from minorm.devices import dtypes
from minorm.graph import trace
from minorm.support.argument_errors import not_a_tensor
from minorm.tensor.tensor import Tensor


def floats(operation: str, optional: tuple[str, ...] = ("bias",), **tensors: Any) -> None:
    """Raise TypeError unless all `tensors` are Tensors of the same float type. An argument named in `optional` may be
    None.
    """
    first, common = "", None
    for name, x in tensors.items():
        if x is None and name in optional:
            continue
        if isinstance(x, Tensor) and x.array.dtype is common:
            continue
        dtype = float_type(operation, name, x)
        if common is None:
            first, common = name, dtype
        elif dtype != common and trace.state.cast is None:
            raise TypeError(
                f"{operation}: {name} is {dtype}, {first} is {common}; expected one float type; "
                f"convert one, for example {first}.to(minorm.{dtype}) or module.to(minorm.{common})"
            )


def holds_integers(operation: str, name: str, x: Any) -> bool:
    """Return True if x holds integers, and False if it holds floats; raise TypeError for anything else."""
    if isinstance(x, Tensor) and x.array.dtype.kind in "iu":
        return True
    float_type(operation, name, x)
    return False


def float_type(operation: str, name: str, x: Any) -> Any:
    """Return the type of x; raise TypeError unless x is a Tensor of floats."""
    if not isinstance(x, Tensor):
        raise not_a_tensor(operation, name, x)
    dtype = x.array.dtype
    if dtype not in dtypes.FLOATS:
        raise TypeError(f"{operation}: {name} is {dtype}; expected a float type; convert it with {name}.float()")
    return dtype


def number(operation: str, name: str, value: Any) -> None:
    """Raise TypeError unless `value` is a real Python or NumPy number."""
    if isinstance(value, bool) or not hasattr(value, "__float__") or getattr(value, "shape", ()) != ():
        raise TypeError(f"{operation}: {name} is {value!r}; expected a number")


def whole(operation: str, name: str, value: Any) -> int:
    """Return `value` as an int; raise TypeError unless `value` is a Python or NumPy integer."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or getattr(value, "shape", ()) != ():
        raise TypeError(f"{operation}: {name} is {value!r}; expected an int")
    return operator.index(value)
