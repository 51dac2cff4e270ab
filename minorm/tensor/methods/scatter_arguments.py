"""Check the arguments of scatter, index_add, index_fill and similar methods: Tensors, their types and shapes."""

from __future__ import annotations

from numbers import Number
from typing import Any

import numpy as np

from minorm.devices import dtypes
from minorm.support.argument_errors import not_a_tensor

REDUCTIONS = {"none": "none", "add": "add", "multiply": "mul", "mul": "mul", "min": "min", "max": "max"}


def line_of_places(operation: str, index: Any, axes: int | None = 1) -> None:
    """Check that index is a Tensor of integers and, unless `axes` is None, that it has at most `axes` axes."""
    if not hasattr(index, "from_array"):
        raise not_a_tensor(operation, "index", index)
    if index.dtype.kind not in "iu":
        raise TypeError(f"{operation}: index is {index.dtype}; expected integers")
    if axes is not None and index.ndim > axes:
        raise ValueError(f"{operation}: index has shape {index.shape}; expected one axis, the places along dim")


def to_write(operation: str, src: Any, value: Any) -> Any:
    """Return src, or value if src is None.

    Raises TypeError if src and value are both given or both None. Also raises TypeError if the argument that is given
    is neither a Tensor nor a number.
    """
    if (src is None) == (value is None):
        both = "None" if src is None else "given"
        raise TypeError(f"{operation}: src and value are both {both}; expected exactly one")
    name, given = ("value", value) if src is None else ("src", src)
    if not hasattr(given, "from_array") and not isinstance(given, (Number, np.generic)):
        raise not_a_tensor(operation, name, given)
    return given


def put_by(operation: str, x: Any, index: Any, src: Any, reduction: str) -> str:
    """Check the arguments of a scatter, and return the name that Functions use for `reduction`.

    Raises ValueError for an unknown reduction, and TypeError for types that do not fit.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"{operation}: reduction is {reduction!r}; expected one of {', '.join(REDUCTIONS)}")
    line_of_places(operation, index, axes=None)
    if not hasattr(src, "from_array"):
        raise not_a_tensor(operation, "src", src)
    if x.dtype != src.dtype or (x.dtype == dtypes.bool and reduction != "none"):
        numbers = " of numbers" if reduction != "none" else ""
        raise TypeError(f"{operation}: x is {x.dtype}, src is {src.dtype}; expected one type{numbers}")
    return REDUCTIONS[reduction]


def check_slices(operation: str, x: Any, index: Any, source: Any) -> None:
    """Check the types of index_add and index_copy, which write whole slices of x."""
    line_of_places(operation, index)
    if not hasattr(source, "from_array"):
        raise not_a_tensor(operation, "source", source)
    if x.dtype != source.dtype:
        raise TypeError(f"{operation}: x is {x.dtype}, source is {source.dtype}; expected one type")


def check_fill(operation: str, index: Any, value: Any) -> None:
    """Check the indices and the single number that index_fill gets."""
    line_of_places(operation, index)
    if shape := np.shape(value.array if hasattr(value, "from_array") else value):
        raise ValueError(f"{operation}: value has shape {shape}; expected a number or a 0-d tensor")
