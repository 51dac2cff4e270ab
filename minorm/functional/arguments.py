"""What every functional asks of its arguments before it computes: Tensors, of one float type where they must be."""

from __future__ import annotations

import operator
from typing import Any

from minorm.devices import dtypes
from minorm.graph import trace
from minorm.support.argument_errors import not_a_tensor
from minorm.tensor.tensor import Tensor


def floats(operation: str, optional: tuple[str, ...] = ("bias",), **tensors: Any) -> None:
    """Raise TypeError unless these are Tensors of one and the same float type; those named `optional` may be None."""
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
    """Whether x holds integers; TypeError unless it is a Tensor of integers or of floats."""
    if isinstance(x, Tensor) and x.array.dtype.kind in "iu":
        return True
    float_type(operation, name, x)
    return False


def float_type(operation: str, name: str, x: Any) -> Any:
    """The type of a Tensor; TypeError unless it is one and its type a float."""
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
    """`value` as an int; TypeError unless it is an integer of Python's or NumPy's."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or getattr(value, "shape", ()) != ():
        raise TypeError(f"{operation}: {name} is {value!r}; expected an int")
    return operator.index(value)
