"""Structs and numbers that kernels take by value; each is made once.

If a structured array were passed, CuPy would read the array's description at every launch, which takes the host 5 to 8
microseconds. For a NumPy scalar CuPy makes an object at every launch. If a Struct is passed, CuPy reads only the
address.
"""

from __future__ import annotations

import functools
from typing import Any

import cupy
import numpy as np

from minorm.kernels.gpu.plans import window_struct


class Struct(cupy.cuda.function.CPointer):  # type: ignore[misc]  # CuPy has no types
    """An argument of a kernel that holds the fields of a structured array without axes, or one number."""

    def __init__(self, fields: Any) -> None:
        super().__init__(fields.ctypes.data)
        self.fields = fields  # keeps the memory at the address alive


def constant(value: Any) -> Struct:
    """Return `value` as an argument that is made once. It is a NumPy scalar of the parameter's type, or a Struct."""
    return value if isinstance(value, Struct) else Struct(np.asarray(value))


@functools.lru_cache(maxsize=1024)
def windows_of(*how: Any) -> Struct:
    """Return the struct Windows. The arguments are the same as those of `window_struct.packed`."""
    return Struct(window_struct.packed(*how))
