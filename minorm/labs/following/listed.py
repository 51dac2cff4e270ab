"""Defines the entries of a follower's list: operations, their inputs and outputs, and where these lie in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(eq=False)
class Buffer:
    """A piece of memory.

    depends  whether the numbers in it depend on the data
    born     the index of the operation that made it
    read     the index of the last operation that read it
    """

    size: int
    depends: bool
    born: int
    read: int = -1
    rows: bool = False


@dataclass(eq=False)
class Value:
    """A NumPy array or number, and its piece of memory.

    rows, columns: (first, last) row and column of the data that the array holds
    """

    number: int
    value: Any
    buffer: Buffer
    rows: tuple[int, int] | None = None
    columns: tuple[int, int] = (0, 0)


@dataclass(eq=False)
class Event:
    """One operation. kind: "made", "view", "moved" or "computed"

    types: the types of the results, and of any type that the operation asked for
    """

    place: int
    name: str
    kind: str
    inputs: list[Value]
    outputs: list[Value]
    types: list[str]
    numbers: Any

    @property
    def depends(self) -> bool:
        """Return whether the operation's results depend on the data."""
        return any(value.buffer.depends for value in self.outputs)


def places(shape: tuple[int, ...], axis: int) -> tuple[Any, Any]:
    """Return two arrays: the index of each number along this axis, and its flat index along the other axes."""
    axis %= len(shape)
    columns = np.arange(np.prod(shape) // shape[axis]).reshape(shape[:axis] + shape[axis:][1:])
    rows = np.moveaxis(np.arange(shape[axis]).reshape(-1, *[1] * (len(shape) - 1)), 0, axis)
    return np.broadcast_to(rows, shape), np.broadcast_to(np.expand_dims(columns, axis), shape)


def is_view_index(index: Any) -> bool:
    """Return whether an index gives a view or one number, not a copy."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is ... or isinstance(part, (int, slice, np.integer)) for part in parts)


def with_axes(index: Any) -> tuple[Any, ...]:
    """Return an index that selects the same elements.

    If `index` selects a single number, the result gives an array without axes.
    """
    parts = index if isinstance(index, tuple) else (index,)
    return parts if ... in parts else (*parts, ...)


SIGNS: dict[str, str] = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">=", "neg": "-", "pos": "+", "invert": "~",
    "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>", "abs": "abs",
}  # fmt: skip


def shown(kind: str, name: str) -> str:
    """Show an operation as a student writes it."""
    if kind == "operator":
        in_place = name.startswith("i") and name[1:] in SIGNS
        return f"{SIGNS[name[1:]]}=" if in_place else SIGNS[name]
    if kind == "ufunc":
        return f"np.{name.removesuffix('.__call__')}"
    return f"np.{name}" if kind == "function" else f".{name}" if kind == "method" else f"an index ({name})"
